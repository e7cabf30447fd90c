// Package outcomes has what became of messages with an id of their user's choice: the last of
// each for a while, in memory and in files of its own.
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
)

// An Outcome is the end of one message.
type Outcome struct {
	Name name.Hash
	Kind Kind
	Seq  uint64 // of the message that ended
	By   uint64 // Replaced: the seq of its successor
	Due  int64  // what it was due at, epoch milliseconds
	At   int64  // when it ended, epoch milliseconds of the leader
	// Where it went, of those that went somewhere.
	Target    string
	Partition int32
	Offset    int64 // -1: not known
}

// Keep says how much is kept: what ended longer ago than For milliseconds before the state's time
// is forgotten, and the oldest of more than Count.
type Keep struct {
	For   int64
	Count uint64
}
