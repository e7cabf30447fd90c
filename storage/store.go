package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/memtable"
	"github.com/carillonmq/carillon/storage/merge"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
	"github.com/carillonmq/carillon/storage/segment"
)

// Config says where a store lives.
type Config struct {
	Dir    string       // created when missing; of one store alone
	Logger *slog.Logger // nil: nothing is logged

	// MergeWidth is how many neighbouring segments of similar size are merged
	// into one: fewer write more, more leave more files to read. Default 8.
	MergeWidth int
	// MaxSegments bounds the number of files whatever their sizes, once Merge
	// has nothing left to do. Default 64.
	MaxSegments int
	// Pace is called by Merge before it writes n bytes more, and returns when it
	// may, or ctx's error. A merge that writes as fast as it can takes the disk
	// from the log. nil: it does. It is not called while the files are twice
	// MaxSegments.
	Pace func(ctx context.Context, n int) error
	// Free returns the bytes that may still be written to the disk of a directory; nil: what
	// the file system says.
	Free func(dir string) (uint64, error)
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Free == nil {
		c.Free = disk.Free
	}
	if c.MergeWidth == 0 {
		c.MergeWidth = 8
	}
	if c.MaxSegments == 0 {
		c.MaxSegments = 64
	}
	return c
}

func (c *Config) validate() error {
	if c.Dir == "" {
		return fmt.Errorf("open store: Dir is empty, name a directory")
	}
	if c.MergeWidth < 2 {
		return fmt.Errorf("open store: MergeWidth is %d, it must be 2 or more", c.MergeWidth)
	}
	if c.MaxSegments < 1 {
		return fmt.Errorf("open store: MaxSegments is %d, it must be 1 or more", c.MaxSegments)
	}
	return nil
}

// Store is the durable schedule of one node. No goroutine of it outlives a call.
//
// Who may call what: the setters, Accept, Kill, End, Applied, Freeze and Reload
// belong to one goroutine, the writer; everything else is safe from any
// goroutine at any time. Close comes last.
type Store struct {
	cfg      Config
	log      *slog.Logger
	manifest *manifest
	merging  sync.Mutex     // one merge at a time
	planner  *merge.Planner // guarded by merging

	// mu guards what is in memory. It is never held over I/O.
	mu         sync.RWMutex
	values     values
	alive      *alive.Set         // the truth about what is pending
	outcomes   *outcomes.Set      // what became of what had an id
	table      *memtable.Table    // takes what is accepted
	flushing   *memtable.Table    // of the Frozen that is outstanding, nil when none; not changed while it is
	segments   []*segment.Segment // sorted by seq, one reference each; replaced, never changed
	generation uint64             // of the contents that memory was loaded from
	midway     bool               // a command is carried out: memory is between two log indexes
	whole      chan struct{}      // closed when memory is at one again; nil: nobody waits for it

	indexes segment.IndexCache // of segments, for Read

	level atomic.Uint32 // values.level, for those who must not wait for mu

	claimVersion uint64 // raised when the claim changes, but for Fresh and holds; not on disk

	earlier uint64 // see MovedEarlier; not on disk

	flushes, merges uint64

	scanned atomic.Uint64
}

// Open opens or creates the schedule in cfg.Dir and removes files that a crash
// left behind. It checks versions and checksums of everything that memory is
// loaded from; entries are checked when they are read. It returns ErrInUse,
// ErrVersion, ErrCorrupt or ErrDiskFull, wrapped with what and where.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := openManifest(cfg.Dir, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: cfg, log: cfg.Logger, manifest: m, planner: merge.NewPlanner(cfg.Logger)}
	if err := s.Reload(); err != nil {
		return nil, fmt.Errorf("open store: %w", errors.Join(err, m.close()))
	}
	return s, nil
}

// Reload makes memory what the manifest holds, after a received snapshot was
// committed. What was accepted since is given up, for the log replays it; a
// Frozen taken before fails. Readers under way finish on what they see. Called
// by the writer.
func (s *Store) Reload() error {
	before, err := s.load()
	segment.ReleaseAll(before)
	if err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	return nil
}

// load puts what the manifest holds into memory. The caller releases what was
// seen before.
func (s *Store) load() (before []*segment.Segment, err error) {
	s.manifest.mu.Lock()
	defer s.manifest.mu.Unlock()
	if s.manifest.err != nil {
		return nil, s.manifest.err
	}
	named := &s.manifest.current
	v, err := named.values()
	if err != nil {
		return nil, err
	}
	set, ended := named.alive.Thaw(), named.outcomes.Thaw()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, s.alive, s.outcomes = v, set, ended
	s.table, s.flushing = memtable.New(v.nextSeq), nil
	s.generation, s.midway = named.generation, false
	s.earlier++ // what was received may have such
	s.level.Store(uint32(v.level))
	return s.show(named.segments), nil
}

// show lets readers see these segments. The caller holds mu, and releases what
// was seen before once it holds no lock any more: that may close and unlink files.
func (s *Store) show(segments []*segment.Segment) (before []*segment.Segment) {
	segment.AcquireAll(segments)
	before, s.segments = s.segments, segments
	return before
}

// Close releases the files. What was not flushed is given up: the log replays
// it. No other call may be running.
func (s *Store) Close() error {
	s.mu.Lock()
	before := s.show(nil)
	s.mu.Unlock()
	segment.ReleaseAll(before)
	if err := s.manifest.close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// ManifestMeta returns the snapshot that the disk holds: log entries at or below
// its index must not be applied again. It is the zero value when
// nothing was flushed yet. It does not wait for a commit under way.
func (s *Store) ManifestMeta() SnapshotMeta { return *s.manifest.meta.Load() }

// ClusterID returns the identity of the cluster; zero before it was founded.
func (s *Store) ClusterID() [16]byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.clusterID
}

// State copies out the replicated values. It costs as much as there are source
// partitions; Claim, Position and Pending are cheap. Holds are told by Holds alone.
func (s *Store) State() State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.state(s.alive.Count())
}

// Holds copies out the holds of the claim, sorted by target. Apply does not wait while it does.
func (s *Store) Holds() []Hold {
	s.mu.Lock() // clone
	holds := s.values.holds.clone()
	s.mu.Unlock()
	out := make([]Hold, 0, holds.len())
	for h := range holds.each {
		out = append(out, h)
	}
	return out
}

// Held returns how many delay topics, or targets, are held.
func (s *Store) Held(kind pause.Kind) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if kind == pause.Topic {
		return s.values.topics.len()
	}
	return s.values.holds.len()
}

// TopicHolds copies out the holds of delay topics, sorted by topic.
func (s *Store) TopicHolds() []TopicHold {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]TopicHold, 0, s.values.topics.len())
	for h := range s.values.topics.each {
		out = append(out, TopicHold{Topic: h.Target, Through: h.Through, Mark: h.Mark})
	}
	return out
}

// Hold returns the hold of a delay topic or a target, whose name Target has, false when it has none.
func (s *Store) Hold(kind pause.Kind, name string) (Hold, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	of := s.values.holds
	if kind == pause.Topic {
		of = s.values.topics
	}
	at, held := of.get(name)
	return Hold{Target: name, Through: at.through, Mark: at.mark}, held
}

// Bulks returns the operations on many messages that run, or have ended and are known, the newest first.
func (s *Store) Bulks() []bulk.Operation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.bulks.All()
}

// RunningBulk returns the operation of that id if it runs.
func (s *Store) RunningBulk(id uint64) (bulk.Operation, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.bulks.Running(id)
}

// Pauses returns what is paused, sorted by kind and name.
func (s *Store) Pauses() []pause.Pause {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.pauses.All()
}

// Replayed reports whether the dead letter at the offset is marked as replayed.
func (s *Store) Replayed(at replayed.Partition, offset int64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.replayed.Has(at, offset)
}

// Paused reports whether the delay topic, or target, of that name is paused.
func (s *Store) Paused(kind pause.Kind, name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.pauses.Has(kind, name)
}

// PauseBounds returns what pauses hold back of messages that other holds release.
func (s *Store) PauseBounds() pause.Bounds {
	s.mu.Lock() // a copy marks both as shared
	defer s.mu.Unlock()
	return s.values.bounds.Clone()
}

// Through returns how far messages that came by the delay topic for the target are claimed: the
// earliest of the claim, of the holds of the two, and of what a pause keeps back. One that is due later
// is not on its way; of one that is due then or before Claimed tells. For a message it never falls.
func (s *Store) Through(topic, target string) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.through(topic, target)
}

// Claim returns the claim without its holds.
func (s *Store) Claim() Claim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.claim
}

// ClaimVersion returns a number that changes when what Claim returns does, but for Fresh.
// It counts within this process only.
func (s *Store) ClaimVersion() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.claimVersion
}

// Position returns how far a source partition has been ingested, false when it
// was never set.
func (s *Store) Position(topicID [16]byte, partition int32) (Position, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, ok := s.values.positions[partitionKey{topicID, partition}]
	return p, ok
}

// Pending returns how many messages are alive.
func (s *Store) Pending() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.alive.Count()
}

// Alive reports whether the message seq is pending now.
func (s *Store) Alive(seq uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.alive.Contains(seq)
}

// Outcome returns what became of the newest message with this id among those that have ended
// and are known, false when there is none.
func (s *Store) Outcome(topic, id string) (outcomes.Outcome, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outcomes.Newest(name.Of(topic, id))
}

// Answered returns what was answered to an operation of that key, from LevelFour on; false when that
// is not known any more, or was never asked. May be called from any goroutine.
func (s *Store) Answered(key name.Hash) (outcomes.Outcome, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outcomes.Answered(key)
}

// Life returns what is known to have happened with this id, oldest first, operations that were
// refused with it: of more than a thousand outcomes the last thousand.
func (s *Store) Life(topic, id string) []outcomes.Outcome {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outcomes.Life(name.Of(topic, id))
}

// OutcomesSince returns the time from which on all messages that have ended with an id are known, epoch
// milliseconds; 0 when none was ever forgotten, and no message is from before LevelThree. Refusals and answers
// to keys may be forgotten sooner, or later.
func (s *Store) OutcomesSince() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outcomes.Since()
}

// OutcomesKept returns what KeepOutcomes has said last.
func (s *Store) OutcomesKept() outcomes.Keep {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outcomes.Keep()
}

// Stats is what a node shows of its store.
type Stats struct {
	Segments        int
	SegmentBytes    int64 // on disk, the manifest not counted
	MemtableEntries int   // not flushed yet
	MemtableBytes   int64 // their bodies
	Flushes, Merges uint64
}

// Stats returns figures of this moment.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := Stats{Segments: len(s.segments), Flushes: s.flushes, Merges: s.merges}
	for _, g := range s.segments {
		st.SegmentBytes += g.Size
	}
	for _, t := range s.tables() {
		st.MemtableEntries += t.Len()
		st.MemtableBytes += t.Bytes()
	}
	return st
}

// tables lists the memtables, the older first. The caller holds mu.
func (s *Store) tables() []*memtable.Table {
	if s.flushing == nil {
		return []*memtable.Table{s.table}
	}
	return []*memtable.Table{s.flushing, s.table}
}

// FreeSpace returns the bytes that this process may still write to the store's
// file system.
func (s *Store) FreeSpace() (uint64, error) {
	return s.cfg.Free(s.manifest.dir)
}

// spareRoom stays free whatever is merged or received: the manifest must be able
// to grow, the log to go on, and a flush to shorten it.
const spareRoom = 16 << 20

// checkRoom returns ErrDiskFull unless need bytes are free: what is known to fail
// is not written first.
func (s *Store) checkRoom(need int64) error {
	free, err := s.FreeSpace()
	if err != nil {
		return err
	}
	if free < uint64(need) {
		return fmt.Errorf("%w: %s has %d bytes free, %d are needed; make room or enlarge it", ErrDiskFull, s.manifest.dir, free, need)
	}
	return nil
}
