package storage

// State copies out the replicated values. It costs as much as there are source
// partitions; Claim, Position and Pending are cheap. Holds are told by Holds alone.
func (s *Store) State() State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v := &s.values
	return State{
		ClusterID:    v.clusterID,
		Mode:         v.mode,
		Level:        v.level,
		Time:         v.time,
		NextSeq:      v.nextSeq,
		Surveyed:     v.surveyed,
		Claim:        v.claim,
		Positions:    v.sortedPositions(),
		Pending:      s.alive.Count(),
		AppliedIndex: v.appliedIndex,
	}
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
		st.MemtableEntries += t.len()
		st.MemtableBytes += t.bytes
	}
	return st
}

// tables lists the memtables, the older first. The caller holds mu.
func (s *Store) tables() []*memtable {
	if s.flushing == nil {
		return []*memtable{s.table}
	}
	return []*memtable{s.flushing, s.table}
}
