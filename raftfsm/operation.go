package raftfsm

import (
	"fmt"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/replayed"
)

// A Verb says what an Operation does.
type Verb uint8

// The verbs. They are written into the log.
const (
	Schedule Verb = 1 + iota // accepts Entry; a pending message of the same id gives way to it
	Cancel                   // ends the pending message of Entry's Topic and ID
	Change                   // puts Entry into the place of the pending message of that id; needs one
)

// A Condition is what must hold for an Operation to take effect.
type Condition uint8

// The conditions. They are written into the log.
const (
	Always  Condition = iota
	Absent            // no message of the id is pending that could still be cancelled
	Present           // one is
	Exactly           // one is, and its seq is Operation.Seq
)

// An Operation is what one record, or one call, asks of the schedule. One with an id is
// proposed only when the ids are open (storage.Store IDsOpen).
type Operation struct {
	Verb  Verb
	If    Condition
	Seq   uint64        // with Exactly
	Entry storage.Entry // of a Cancel only Topic and ID

	// Record says which record of its part asks for it, counted by offsets from 1 on; 0: that is not told. A
	// refusal names it. It is carried by an Ingest alone, and may be proposed from storage.LevelFour on.
	Record uint64

	// Of, Once and Replay are carried by an Operate and a StepBulk alone, and may be proposed from storage.LevelFour on. They are
	// pointers, nil for none, since an Ingest has thousands of operations.

	// Of is the message that a Cancel, or a Change without an id, is about, as it was read. With
	// an id, the message has it or has lost it to a newer one: only a Cancel can be about that, since what takes
	// the place of such a message would have the id while another waits with it.
	// A message never changes, so all nodes take it for the same.
	Of     *storage.Found
	Once   *Once
	Replay *Replay
}

// Replay has a Schedule of a dead letter marked as carried out, and not carried out again.
type Replay struct {
	At     replayed.Partition // of the dead-letter topic; its topic has an id
	Offset int64
	First  int64 // the first offset of the partition that Kafka still has: marks below it are forgotten
	Again  bool  // also if it is marked
}

// Once has an operation carried out a single time: what was answered is kept, as long as outcomes are,
// and is the answer to the next one of that key. The zero value asks for nothing, and stands behind no Operation.
type Once struct {
	Key     name.Hash
	Content uint64 // a digest of what is asked: another of the same key is refused
}

// A Code says what came of an Operation.
type Code uint8

// The codes of an Answer.
const (
	Scheduled        Code = 1 + iota // Seq is the new message; Before, if any, is one of the same id that is on its way
	Superseded                       // as Scheduled, and Before is the pending message that gave way to it
	WasCancelled                     // Seq is the message that was pending and will never be delivered
	AlreadyCancelled                 // Seq is the message that was cancelled before; Outcome tells when
	Conflict                         // the condition does not hold; Seq is the pending message, 0: none
	TooLate                          // nothing can be done about it any more: Outcome tells, or Seq is on its way
	NotFound                         // no message of this id is known; see Answer.Since
	KeyReused                        // something else was asked with this key before: nothing was done
	Replayed                         // the dead letter was replayed before: nothing was done
)

// codeNames are the names of codes for people and metrics, by number.
var codeNames = [...]string{
	Scheduled: "scheduled", Superseded: "replaced", WasCancelled: "cancelled", AlreadyCancelled: "already-cancelled",
	Conflict: "conflict", TooLate: "too-late", NotFound: "not-found", KeyReused: "key-reused", Replayed: "replayed",
}

// String returns the code in a word, as users know it.
func (c Code) String() string {
	if c == 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("code(%d)", uint8(c))
	}
	return codeNames[c]
}

// Codes returns all codes.
func Codes() []Code {
	return []Code{Scheduled, Superseded, WasCancelled, AlreadyCancelled, Conflict, TooLate, NotFound, KeyReused, Replayed}
}

// An Answer is what came of an Operation, on every node alike.
type Answer struct {
	Code   Code
	Seq    uint64
	Before uint64
	// Outcome tells how the message ended; nil: that is not known, or not asked. A pointer, since a command has thousands
	// of answers and next to none of them has one.
	Outcome *outcomes.Outcome
	// Since goes with NotFound: what ended at or after this time would be known, epoch
	// milliseconds; 0: nothing was ever forgotten, so there never was such a message. Of what has no
	// id nothing is kept, so it is the present then.
	Since int64
	// Again: it was asked before with the same Once, and answered so. Only Code and Seq are known still.
	Again bool
}

// Ended is a message that an Ack or a Replace ends and whose outcome is kept: one with an id.
// Its By is not carried, since nothing takes the place of such a message.
type Ended = outcomes.Outcome
