package storage

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// Position says how far one source partition has been ingested.
type Position struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Next      int64 // next offset to ingest; -1: awaits an explicit start
	Epoch     int32 // leader epoch of Next, -1 when unknown
}

// Hold excepts one target topic from the claim.
type Hold struct {
	Target  string
	Through int64 // the topic's own claim
	Mark    Ref   // where reading the topic starts again
}

// Claim is the leader's word on what may be published.
type Claim struct {
	Through int64  // nothing due later is published
	Mark    Ref    // where a new term starts reading
	Fresh   Ref    // lowest entry accepted since the claim was set; zero: none
	Holds   []Hold // of one that is set; there may be any number, so Store.Holds alone returns them
}

// ClaimChange makes a claim of the present one: all holds stay but those it names.
type ClaimChange struct {
	Through int64
	Mark    Ref
	Set     []Hold   // added, or put in the place of the one for the same target
	Lift    []string // targets that are not held any more
}

// State is the small replicated values, copied out.
type State struct {
	ClusterID [16]byte
	Mode      string // delivery mode, committed with ClusterID
	Level     Level  // feature level in force
	Time      int64  // highest leader's time seen
	NextSeq   uint64
	Surveyed  bool // the first discovery of source topics is done
	Claim     Claim
	Positions []Position // sorted by topic id and partition
	Pending   uint64     // messages alive

	AppliedIndex uint64 // of the log entry applied last
}

// SnapshotMeta says which log entry a flush stands for. Configuration is opaque.
type SnapshotMeta struct {
	Index, Term        uint64
	Configuration      []byte
	ConfigurationIndex uint64
}

type partitionKey struct {
	topicID   [16]byte
	partition int32
}

// values is what the writer changes beside entries; the alive-set is kept apart.
type values struct {
	level     Level
	clusterID [16]byte
	mode      string
	time      int64
	nextSeq   uint64
	surveyed  bool
	claim     Claim // without holds
	holds     holds
	positions map[partitionKey]Position

	appliedIndex uint64
}

func newValues() values {
	return values{level: LevelOne, nextSeq: 1, holds: newHolds(), positions: make(map[partitionKey]Position)}
}

// clone costs a copy of the positions. Nobody else may use v meanwhile, not even to read.
func (v *values) clone() values {
	c := *v
	c.holds = v.holds.clone()
	c.positions = maps.Clone(v.positions)
	return c
}

func (v *values) sortedPositions() []Position {
	return slices.SortedFunc(maps.Values(v.positions), func(a, b Position) int {
		if c := bytes.Compare(a.TopicID[:], b.TopicID[:]); c != 0 {
			return c
		}
		return cmp.Compare(a.Partition, b.Partition)
	})
}

// lower moves the mark that covers target down to r if r lies below it, and notes
// that r is fresh. It reports whether the claim's own mark moved.
func (v *values) lower(target string, r Ref) (moved bool) {
	if v.claim.Fresh == (Ref{}) || r.Less(v.claim.Fresh) {
		v.claim.Fresh = r
	}
	if v.holds.lower(target, r) || !r.Less(v.claim.Mark) {
		return false
	}
	v.claim.Mark = r
	return true
}
