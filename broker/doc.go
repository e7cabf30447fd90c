// Package broker does the leader's work: it takes records from delay topics into
// the replicated schedule and delivers each at its time.
//
// The life of one message is a straight line:
//
//	Source -> ingest -> raftfsm (log, quorum, Apply on every node) -> storage
//	storage -> scheduler -> publisher -> Sink -> acks -> raftfsm
//
// Everything that only a leader has lives in a term (term.go): built from storage
// when Raft says that this node leads, run as one errgroup, and dropped whole when
// leadership goes or anything is in doubt. DESIGN.md has the invariants; read
// term.go, ingest.go, scheduler.go and publisher.go in that order.
package broker
