package raftfsm

import (
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
)

const (
	// ProposalBytes is what the proposer of a batch aims to stay under.
	ProposalBytes = 512 << 10
	// MaxCommandBytes bounds any one command; the log takes entries up to 64 MiB.
	MaxCommandBytes = 48 << 20
)

// A Command is one of Found, Ingest, SetPositions, ClaimCommand, ChangeClaim, Ack,
// Replace, RaiseLevel, Operate, OpenIDs, KeepOutcomes, Pause, Resume, StartBulk, StepBulk and StopBulk. It
// carries every decision that Apply needs: no node looks at its own clock or configuration while it applies.
// Time is always the leader's, in epoch milliseconds; the state keeps the greatest it has seen.
type Command interface {
	// Size returns the exact number of bytes that the encoded command takes.
	Size() int
	// append encodes the command, version and kind first.
	append(dst []byte) []byte
}

// Found gives a new cluster its identity: nothing but a RaiseLevel comes before
// it. A second one changes nothing.
type Found struct {
	Time      int64
	ClusterID [16]byte
	Mode      string // delivery mode
}

// Ingest accepts messages and moves the positions of the source partitions that
// they came from. Each Part is applied whole or not at all.
type Ingest struct {
	Time         int64
	ClaimThrough int64 // 0: none; else raises the Claim to this due time before anything is accepted
	Parts        []Part
}

// A Part is what one source partition gives to an Ingest: the records from
// offset From up to, not including, Next. It is applied only if the stored
// position still is From.
type Part struct {
	TopicID   [16]byte
	Topic     string
	Partition int32
	From      int64
	Next      int64
	Epoch     int32           // leader epoch of the source partition, -1 unknown
	Entries   []storage.Entry // Seq is given by Apply; of each its Due, Target and Body are carried, no more
	// Operations takes the place of Entries from storage.LevelThree on. An entry without a
	// topic belongs to that of the part.
	Operations []Operation
}

// FromAbsent is the PositionSet.From that expects no position to be stored yet.
const FromAbsent = -2

// SetPositions writes source positions, each by compare-and-set.
type SetPositions struct {
	Time     int64
	Surveyed bool // the first discovery of source topics is complete
	Sets     []PositionSet
}

// A PositionSet stores a position if the stored Next is From, or if there is none
// and From is FromAbsent.
type PositionSet struct {
	storage.Position
	From int64
}

// ClaimCommand replaces marks and holds and raises Through. Apply lowers its
// marks to what was accepted since the last one (Claim.Fresh), so a mark never
// passes an entry that the proposer had not seen.
type ClaimCommand struct {
	Time  int64
	Claim storage.Claim
}

// ChangeClaim raises Through, replaces the mark, and changes the holds that it names.
// The others stay as they are, so a claim costs as much as there are changes, however
// many targets are held. Marks are lowered as those of a ClaimCommand. It may be
// proposed from storage.LevelTwo on, and change holds of delay topics from storage.LevelThree on.
type ChangeClaim struct {
	Time int64
	storage.ClaimChange
}

// Ack ends the life of messages that were delivered, or that expired before they were.
type Ack struct {
	Time int64
	Runs []storage.SeqRun
	// Ended tells of those of Runs that have an id what became of them; only
	// from storage.LevelThree on.
	Ended []Ended
}

// Replace ends the life of Kills[i] and accepts Entries[i] in its place, for
// every i whose message is still alive.
type Replace struct {
	Time    int64
	Kills   []uint64
	Entries []storage.Entry // without an id: it has ended with the message that had it
	// Ended tells of those of Kills that have an id what became of them; only
	// from storage.LevelThree on, as is an entry with a topic.
	Ended []Ended
}

// Operate carries out what was asked without a record. One without operations moves the state's time and
// nothing else: whoever reads behind it is told what has expired by then (DESIGN.md). It may be proposed from
// storage.LevelThree on.
type Operate struct {
	Time       int64
	Operations []Operation
}

// OpenIDs indexes messages that were accepted before ids were. When all up to UpTo were
// named, and nothing came after them, ids are open for good. It may be proposed from
// storage.LevelThree on.
type OpenIDs struct {
	Time  int64
	Named []storage.Named
	UpTo  uint64 // all messages with an id up to this seq were named, here or before
}

// KeepOutcomes sets how much is kept of what has ended. It may be proposed from
// storage.LevelThree on.
type KeepOutcomes struct {
	Time int64
	Keep outcomes.Keep
}

// Pause holds what came by a delay topic, or goes to a target, from now on; the time is that of its
// beginning. What is paused already stays as it is. It may be proposed from storage.LevelThree on.
type Pause struct {
	Time int64
	Kind pause.Kind
	Name string // not empty
	Who  string // in words of the user's
	Why  string
}

// Resume ends a pause. It may be proposed from storage.LevelThree on.
type Resume struct {
	Time int64
	Kind pause.Kind
	Name string
}

// StartBulk begins an operation on many messages: those that are known by the time when it is applied. It
// may be proposed from storage.LevelFour on. The answer is Scheduled, with the id of the operation as its Seq,
// or Conflict where as many run as may (then nothing is kept of Once), or KeyReused.
type StartBulk struct {
	Time int64
	What string // for the leader, at most bulk.MostWhat bytes
	Who  string // in words of the user's, at most bulk.MostWho bytes
	Once Once   // zero: each is a new one
}

// StepBulk carries an operation on, if it runs and is at From: so whoever led before, each message that it
// comes to has one fate. It may be proposed from storage.LevelFour on.
type StepBulk struct {
	Time       int64
	ID         uint64
	From, Next string // where it goes on, at most bulk.MostCursor bytes; "": at its beginning
	Finished   bool   // there is nothing behind Next
	Operations []Operation
	// Passed counts what the leader has come to and asks nothing of the log for; Done is 0.
	Passed  bulk.Counts
	Problem string // of the last of these that failed, "": none has; at most bulk.MostProblem bytes
}

// StopBulk ends an operation that runs. It may be proposed from storage.LevelFour on.
type StopBulk struct {
	Time    int64
	ID      uint64
	Problem string // why, at most bulk.MostProblem bytes
}

// RaiseLevel raises the feature level to Level; a lower one changes nothing. It is
// proposed only when every member says that it understands that level: one that
// does not must stop when it applies this.
type RaiseLevel struct {
	Time  int64
	Level storage.Level
}

// Result is what applying a command did, on every node alike.
type Result struct {
	Index        uint64 // of the command in the log
	PartsApplied []bool // per Part of an Ingest, per PositionSet, per pair of a Replace
	FirstSeq     uint64 // of the entries that were accepted, which are dense from here
	Accepted     int
	Killed       uint64
	Changed      bool // a Pause, Resume, StepBulk or StopBulk has changed something
	// Answers has for each Part of an Ingest, and once for an Operate, a StartBulk and a StepBulk, an answer to each of its
	// operations; nil where none of them has an id or a condition, or the part was not applied.
	Answers [][]Answer
}
