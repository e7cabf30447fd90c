// Package broker is one leadership: it takes records from delay topics into the
// replicated schedule and delivers each at its time.
//
// The life of one message is a straight line, through a room each:
//
//	ingest:   Source -> entry -> raftfsm (log, quorum, Apply on every node) -> storage
//	schedule: storage -> window, claim -> due
//	deliver:  lane of the target -> Sink -> acks -> raftfsm
//
// What they share is message, config and report. They are wired in one place: everything
// that only a leader has lives in a term (term.go), built from storage when Raft says that
// this node leads, run as one errgroup, and dropped whole when leadership goes or
// anything is in doubt. DESIGN.md has what holds between the rooms, each room's own
// DESIGN.md what holds within; read term.go, then ingest, schedule and deliver.
package broker
