package storage

import (
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/segment"
)

// Read appends to out the messages that refs name, in their order, with bodies.
// refs must be in order of delivery. Those that are dead, or that name no message,
// are left out. Bodies are the caller's to keep but not to change. It may wait for
// the disk, and reads each chunk once. On an error, which names a message or a
// segment, out comes back as it was.
func (s *Store) Read(refs []Ref, out []Entry) ([]Entry, error) {
	if !slices.IsSortedFunc(refs, Ref.Compare) {
		return out, fmt.Errorf("read: refs are not in order of delivery")
	}
	found := make([]Entry, len(refs)) // Seq 0: not found
	onDisk, segments := s.readMemory(refs, found)
	defer segment.ReleaseAll(segments)
	for i, g := range segments {
		if len(onDisk[i]) == 0 {
			continue
		}
		if err := g.Read(refs, onDisk[i], found, &s.indexes); err != nil {
			return out, fmt.Errorf("read: %w", err)
		}
	}
	for _, e := range found {
		if e.Seq != 0 {
			out = append(out, e)
		}
	}
	return out, nil
}

// readMemory fills in what lies in memtables, and lists for each segment, pinned,
// which refs are alive in it.
func (s *Store) readMemory(refs []Ref, found []Entry) (onDisk [][]int, segments []*segment.Segment) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	onDisk = make([][]int, len(s.segments))
	for i, r := range refs {
		if !s.alive.Contains(r.Seq) {
			continue
		}
		if at, ok := find(s.segments, r.Seq); ok {
			onDisk[at] = append(onDisk[at], i)
			continue
		}
		for _, t := range s.tables() {
			if e, ok := t.get(r.Seq); ok && e.Due == r.Due {
				found[i] = e
			}
		}
	}
	segment.AcquireAll(s.segments)
	return onDisk, s.segments
}

// find returns the place of the segment that answers for seq.
func find(segments []*segment.Segment, seq uint64) (int, bool) {
	at, _ := slices.BinarySearchFunc(segments, seq, func(g *segment.Segment, seq uint64) int {
		if g.Info.Last < seq {
			return -1
		}
		return 1
	})
	return at, at < len(segments) && segments[at].Holds(seq)
}
