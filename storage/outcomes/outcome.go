// Package outcomes has what became of messages with an id of their user's choice: the last of
// each for a while, in memory, and in the chunks that they are kept and sent as. Where chunks
// lie, and when they are written, is not known here. DESIGN.md has formats and invariants.
package outcomes

import "github.com/carillonmq/carillon/storage/name"

// A Kind says how a message ended.
type Kind uint8

// The kinds of an Outcome. They are written to disk and into the log.
const (
	Delivered    Kind = 1 + iota // to Target, Partition, Offset
	DeadLettered                 // Target is the dead-letter topic
	Expired
	Cancelled
	Replaced // By is the seq that took its place
	Refused  // the condition of an operation did not hold: no message ended, Seq is 0
	// Answered is what an operation with a key was told, for when it is asked again; from
	// storage.LevelFour on. Name is that of the key, Seq the answer's, Partition its code, and By a
	// digest of what was asked.
	Answered
	// RefusedRecord is as Refused, where it is known which record was refused: Partition and Offset tell it,
	// in the delay topic of the id; from storage.LevelFour on.
	RefusedRecord
)

// hasPlace reports whether there is a partition and an offset.
func (k Kind) hasPlace() bool { return k == Delivered || k == DeadLettered || k == RefusedRecord }

// A class is what outcomes are counted in. Whoever brings about many of one class pushes out nothing of another.
type class int

const (
	ends     class = iota // of messages
	refusals              // of operations: their conditions did not hold
	answers               // to keys
	classes
)

func (k Kind) class() class {
	switch k {
	case Refused, RefusedRecord:
		return refusals
	case Answered:
		return answers
	}
	return ends
}

// An Outcome is the end of one message.
type Outcome struct {
	Name name.Hash
	Kind Kind
	Seq  uint64 // of the message that ended
	By   uint64 // Replaced: the seq of its successor; Answered: see there; 0 of all others
	Due  int64  // what it was due at, epoch milliseconds
	At   int64  // when it ended, epoch milliseconds of the leader
	// Where it went, or would have gone.
	Target string
	// Of Delivered and DeadLettered, where it went, and of RefusedRecord; 0 of all others but Answered.
	Partition int32
	Offset    int64 // -1: not known
}

// Keep says how much is kept: what ended longer ago than For milliseconds before the state's time
// is forgotten, and the oldest of more than Count ends of messages, of more than Count answers, and of more
// refusals than a tenth of Count, rounded up. More than MaxCount counts as MaxCount.
type Keep struct {
	For   int64
	Count uint64
}

// most returns how many outcomes of a class are kept.
func (k Keep) most(c class) uint64 {
	if c == refusals {
		return k.Count/refusalsPart + min(k.Count%refusalsPart, 1)
	}
	return k.Count
}

// refusalsPart is how many ends of messages are kept for each refusal, which is told to people and decides
// nothing.
const refusalsPart = 10

// DefaultKeep is what a schedule keeps that was told nothing.
var DefaultKeep = Keep{For: 24 * 60 * 60 * 1000, Count: 1_000_000}

// MaxCount is how many outcomes of a class may be kept: links between them have 32 bits, and it would be
// 70 GB of memory.
const MaxCount = 1 << 30
