package storage

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
	"github.com/carillonmq/carillon/storage/segment"
	"github.com/tidwall/btree"
)

// Position says how far one source partition has been ingested.
type Position struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Next      int64 // next offset to ingest; -1: awaits an explicit start
	Epoch     int32 // leader epoch of the record before Next or of a later one, -1 when unknown
}

// Hold excepts one target topic from the claim.
type Hold struct {
	Target  string
	Through int64 // the topic's own claim
	Mark    Ref   // where reading the topic starts again
}

// TopicHold excepts from the claim what came by one delay topic: a pause sets it, and the leader
// releases it step by step once that is over.
type TopicHold struct {
	Topic   string
	Through int64 // nothing of it that is due later is claimed
	Mark    Ref   // all of it that is alive lies at or after
}

// Claim says what the leader may publish.
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

	// Of delay topics likewise, from LevelThree on.
	Topics     []TopicHold
	LiftTopics []string
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

// Named is a message with an id of its user's choice that was accepted before ids were indexed
// (LevelThree).
type Named struct {
	Ref
	Target  string
	Topic   string // the delay topic that scopes ID
	ID      string
	Expires int64 // as of Entry
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
	idsOpen   bool       // see Store.OpenIDs
	lost      *alive.Set // messages alive that have lost their id, likewise
	claim     Claim      // without holds
	holds     holds      // by target
	topics    holds      // by delay topic
	pauses    pause.Set
	bounds    pause.Bounds // see claimed.go
	replayed  replayed.Set
	bulks     bulk.Set
	positions map[partitionKey]Position

	appliedIndex uint64
}

func newValues() values {
	return values{level: LevelOne, nextSeq: 1, lost: alive.NewSet(), holds: newHolds(), topics: newHolds(), replayed: replayed.New(), positions: make(map[partitionKey]Position)}
}

// clone costs a copy of the positions. Nobody else may use v meanwhile, not even to read.
func (v *values) clone() values {
	c := *v
	c.holds, c.topics = v.holds.clone(), v.topics.clone()
	c.bounds, c.replayed, c.lost = v.bounds.Clone(), v.replayed.Clone(), v.lost.Freeze()
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

// state copies out all but the holds.
func (v *values) state(pending uint64) State {
	return State{
		ClusterID:    v.clusterID,
		Mode:         v.mode,
		Level:        v.level,
		Time:         v.time,
		NextSeq:      v.nextSeq,
		Surveyed:     v.surveyed,
		Claim:        v.claim,
		Positions:    v.sortedPositions(),
		Pending:      pending,
		AppliedIndex: v.appliedIndex,
	}
}

// markOf returns the mark that covers an entry: if it is alive it lies at or after it. The hold of
// its topic stands for all others, which a leader moves on past what is held.
func (v *values) markOf(e *Entry) Ref {
	if at, held := v.topics.get(e.Topic); held {
		return at.mark
	}
	if at, held := v.holds.get(e.Target); held {
		return at.mark
	}
	return v.claim.Mark
}

// lower moves the marks that cover the entry down to it if it lies below them, and notes
// that it is fresh. It reports whether the claim's own mark moved. That of its target moves
// though its topic may be held: it is covered by that one alone once the topic is not.
func (v *values) lower(e *Entry) (moved bool) {
	r := e.Ref()
	if v.claim.Fresh == (Ref{}) || r.Less(v.claim.Fresh) {
		v.claim.Fresh = r
	}
	v.topics.lower(e.Topic, r)
	if v.holds.lower(e.Target, r) || !r.Less(v.claim.Mark) {
		return false
	}
	v.claim.Mark = r
	return true
}

// holdPaused holds what a pause names from now on, unless it is held already; then it is held as far as
// it is. It costs as much as
// there are holds of the other kind.
//
// The mark of a new hold covers what is alive of it, wherever that was covered until now. Messages of
// a topic go to any target, and those of a target come by any topic:
//
//	          target held                 not held
//	topic T   the holds of all targets    claim
//	target X  (keeps its hold)            claim; of what is held by its topic: the holds of all topics
func (v *values) holdPaused(kind pause.Kind, name string) {
	held, others := v.topics, v.holds
	if kind == pause.Target {
		held, others = v.holds, v.topics
	}
	if at, isHeld := held.get(name); isHeld {
		held.set(Hold{Target: name, Through: min(at.through, v.claim.Through), Mark: at.mark})
		return
	}
	mark := v.claim.Mark
	for h := range others.each {
		mark = mark.Min(h.Mark)
	}
	held.set(Hold{Target: name, Through: v.claim.Through, Mark: mark})
}

// encodeValues writes the replicated values without the applied index, which
// belongs to the node and not to the content:
//
//	| cluster id 16 | mode | time varint | next seq uvarint | surveyed u8 |
//	| through varint | mark | fresh mark | n | n x (target, through varint, mark) |
//	| n | n x (topic, topic id 16, partition varint, next varint, epoch varint) |
//
// where a mark is | due varint | seq uvarint | and n a uvarint.
//
// Above LevelOne this is version 2, which begins with | level uvarint |. From LevelThree on it is
// version 3, which ends with
//
//	| n | n x (topic held, through varint, mark) | pause.Set | ids u8 | lost |
//
// where ids is 1 if they are open, and 2 more if some messages have lost theirs: then these are an
// alive.Set, else lost is nothing.
//
// From LevelFour on it is version 4, which goes on with | replayed.Set | bulk.Set |. While there are
// bounds both end with | pause.Bounds |: while something is paused, or has come back before a target that is held.
func encodeValues(v *values) codec.Record {
	r := codec.Record{Version: 1}
	if v.level > LevelOne {
		r = codec.Record{Version: 2, Payload: binary.AppendUvarint(nil, uint64(v.level))}
	}
	if v.level >= LevelThree {
		r.Version = 3
	}
	if v.level >= LevelFour {
		r.Version = 4
	}
	r.Payload = v.append(r.Payload)
	return r
}

func (v *values) append(b []byte) []byte {
	b = append(b, v.clusterID[:]...)
	b = codec.AppendString(b, v.mode)
	b = binary.AppendVarint(b, v.time)
	b = binary.AppendUvarint(b, v.nextSeq)
	b = codec.AppendBool(b, v.surveyed)
	b = binary.AppendVarint(b, v.claim.Through)
	b = segment.AppendRef(b, v.claim.Mark)
	b = segment.AppendRef(b, v.claim.Fresh)
	b = v.holds.append(b)
	b = binary.AppendUvarint(b, uint64(len(v.positions)))
	for _, p := range v.sortedPositions() {
		b = codec.AppendString(b, p.Topic)
		b = append(b, p.TopicID[:]...)
		b = binary.AppendVarint(b, int64(p.Partition))
		b = binary.AppendVarint(b, p.Next)
		b = binary.AppendVarint(b, int64(p.Epoch))
	}
	if v.level < LevelThree {
		return b
	}
	b = v.topics.append(b)
	b = v.pauses.Append(b)
	b = v.appendIDs(b)
	if v.level >= LevelFour {
		b = v.bulks.Append(v.replayed.Append(b))
	}
	return v.bounds.Append(b)
}

// Bits that say how it stands with ids.
const (
	idsAreOpen = 1 << 0
	idsAreLost = 1 << 1 // by some
)

func (v *values) appendIDs(b []byte) []byte {
	ids := byte(0)
	if v.idsOpen {
		ids |= idsAreOpen
	}
	if v.lost.Count() == 0 {
		return append(b, ids)
	}
	return v.lost.Append(append(b, ids|idsAreLost))
}

func (v *values) readIDs(d *codec.Decoder) {
	ids := d.Byte()
	v.idsOpen = ids&idsAreOpen != 0
	if ids&idsAreLost != 0 {
		v.lost = alive.Read(d)
	}
	if ids > idsAreOpen|idsAreLost || ids&idsAreLost != 0 && v.lost.Count() == 0 {
		d.Fail("ids are neither open nor lost")
	}
}

func decodeValues(r codec.Record) (values, error) {
	v := newValues()
	d := codec.NewDecoder(r.Payload)
	if r.Version >= 2 {
		if v.level = readLevel(&d); v.level > NewestLevel {
			return v, fmt.Errorf("%w: the cluster is at feature level %d, this program understands %d: run the program of the other nodes", ErrVersion, v.level, NewestLevel)
		}
	}
	v.clusterID = d.ID()
	v.mode = d.Text()
	v.time = d.Varint()
	v.nextSeq = d.Uvarint()
	v.surveyed = d.Bool()
	v.claim.Through = d.Varint()
	v.claim.Mark = segment.ReadRef(&d)
	v.claim.Fresh = segment.ReadRef(&d)
	v.holds.read(&d)
	for range d.Count() {
		p := Position{Topic: d.Text(), TopicID: d.ID(), Partition: int32(d.Varint()), Next: d.Varint(), Epoch: int32(d.Varint())}
		v.positions[partitionKey{p.TopicID, p.Partition}] = p
	}
	if r.Version >= 3 {
		v.topics.read(&d)
		v.pauses = pause.Read(&d)
		v.readIDs(&d)
	}
	if r.Version >= 4 {
		v.replayed = replayed.Read(&d)
		v.bulks = bulk.Read(&d)
	}
	if r.Version >= 3 {
		v.bounds = pause.ReadBounds(&d)
	}
	return v, d.Finish("state")
}

// readLevel reads one above LevelOne, which no record names.
func readLevel(d *codec.Decoder) Level {
	l := d.Uvarint()
	if l <= uint64(LevelOne) || l > math.MaxUint32 {
		d.Fail("level out of its bounds")
		return LevelOne
	}
	return Level(l)
}

// holds are those of the claim, sorted by target, or by delay topic. Names of targets are free text,
// so there may be a hundred thousand: a copy shares the tree until either is written
// to, and then what is written to is copied, node by node.
type holds struct{ tree *btree.Map[string, hold] }

type hold struct {
	through int64
	mark    Ref
}

func newHolds() holds { return holds{new(btree.Map[string, hold])} }

// clone marks both as shared, so it counts as writing to h.
func (h holds) clone() holds { return holds{h.tree.Copy()} }

func (h holds) set(s Hold) { h.tree.Set(s.Target, hold{s.Through, s.Mark}) }

func (h holds) lift(target string) { h.tree.Delete(target) }

// lower moves the target's mark down to r if it lies above, and reports whether the
// target is held.
func (h holds) lower(target string, r Ref) (held bool) {
	at, held := h.get(target)
	if held && r.Less(at.mark) {
		at.mark = r
		h.tree.Set(target, at)
	}
	return held
}

// each yields the holds in order.
func (h holds) each(yield func(Hold) bool) {
	h.tree.Scan(func(target string, at hold) bool { return yield(Hold{target, at.through, at.mark}) })
}

func (h holds) len() int { return h.tree.Len() }

// get returns what the name is held with, false if it is not held.
func (h holds) get(name string) (hold, bool) {
	if h.tree.Len() == 0 {
		return hold{}, false
	}
	return h.tree.Get(name)
}

// through returns how far the name is held, after all if it is not.
func (h holds) through(name string) int64 {
	if at, held := h.get(name); held {
		return at.through
	}
	return math.MaxInt64
}

func (h holds) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(h.len()))
	for at := range h.each {
		b = codec.AppendString(b, at.Target)
		b = binary.AppendVarint(b, at.Through)
		b = segment.AppendRef(b, at.Mark)
	}
	return b
}

func (h holds) read(d *codec.Decoder) {
	for range d.Count() {
		h.set(Hold{Target: d.Text(), Through: d.Varint(), Mark: segment.ReadRef(d)})
	}
}

// A Level says in which forms a cluster writes: log commands, message bodies,
// snapshot streams, and each node's own files. It is replicated and only ever
// raised, by a log command, once every member runs a program that understands
// it. Below a level nothing is written that programs of the level before cannot
// read; so a node can be taken back to such a program until the raise, and not
// after it.
//
// Whoever writes a form that a level brought asks Store.Level each time: the
// raise comes in the middle of a term.
type Level uint32

const (
	// LevelOne is that of clusters whose state names none: all that ran before
	// there were levels.
	LevelOne Level = 1
	// LevelTwo has records and streams whose parts tell their own versions.
	LevelTwo Level = 2
	// LevelThree has ids: entries that carry one, their index, and what became of those that ended.
	LevelThree Level = 3
	// LevelFour has answers that are kept for who asks twice, messages that came by no record, marks of
	// dead letters that were replayed, and operations on many messages.
	LevelFour Level = 4

	// NewestLevel is what this program understands, with all below it.
	NewestLevel = LevelFour
)

// Level returns the feature level in force. It never waits for Apply or the disk,
// and may be called from any goroutine.
func (s *Store) Level() Level { return Level(s.level.Load()) }

// RaiseLevel raises the feature level; a lower one is passed over. Called by the
// writer, with no more than NewestLevel.
func (s *Store) RaiseLevel(l Level) {
	s.change()
	defer s.mu.Unlock()
	s.values.level = max(s.values.level, l)
	s.level.Store(uint32(s.values.level))
}
