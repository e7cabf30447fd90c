package storage

import (
	"fmt"

	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/segment"
)

const (
	// scanChunks bounds the chunks that one scan reads, beside one per segment.
	scanChunks = 64
	// scanVisits bounds the memtable entries that one scan looks at under the lock.
	scanVisits = 16 << 10
	// scanBatch is how many items are compared with the alive-set at a time.
	scanBatch = 256
)

// Scan appends to out, in order of delivery, messages that are alive, lie at or
// after from, and go to a target that keep accepts (nil: all), until out holds
// limit. It does a bounded amount of work, so it may return fewer, even none: go
// on at next until done, which says that nothing lies at or after next. It may
// wait for the disk. keep must be quick and must not call the store.
//
// What is returned was alive when it was read; it may be dead by now. A message
// accepted during the scan may be missed.
func (s *Store) Scan(from Ref, limit int, keep func(target string) bool, out []Item) (items []Item, next Ref, done bool, err error) {
	if keep == nil {
		keep = func(string) bool { return true }
	}
	sc := scan{store: s, limit: limit, keep: keep, out: out, checked: len(out), next: from}
	sc.lookAtMemory(from)
	defer segment.ReleaseAll(sc.segments)
	if err := disk.Guard(func() error { return sc.run(from) }); err != nil {
		return sc.out[:sc.checked], from, false, fmt.Errorf("scan: %w", err)
	}
	return sc.out, sc.next, sc.done, nil
}

type scan struct {
	store    *Store
	limit    int
	keep     func(target string) bool
	segments []*segment.Segment
	memory   []sliceSource // of each memtable
	horizon  *Ref          // memory was looked at up to here, exclusive; nil: all of it

	out     []Item
	checked int // items of out known to be alive
	next    Ref // everything before was looked at
	done    bool
}

// lookAtMemory takes everything that may move from memory to disk at one moment:
// what is not in the tables is in the segments.
func (sc *scan) lookAtMemory(from Ref) {
	s := sc.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	sc.segments = s.segments
	segment.AcquireAll(sc.segments)
	for _, t := range s.tables() {
		var found sliceSource
		visits := 0
		t.ascend(from, func(e Entry) bool {
			if visits++; visits > scanVisits || len(found) > sc.limit {
				sc.lowerHorizon(e.Ref())
				return false
			}
			if s.alive.Contains(e.Seq) && sc.keep(e.Target) {
				found = append(found, e)
			}
			return true
		})
		sc.memory = append(sc.memory, found)
	}
}

func (sc *scan) lowerHorizon(r Ref) {
	if sc.horizon == nil || r.Less(*sc.horizon) {
		sc.horizon = &r
	}
}

func (sc *scan) run(from Ref) error {
	var m merger
	for i := range sc.memory {
		if e, ok, _ := sc.memory[i].Next(); ok {
			m.add(e, &sc.memory[i])
		}
	}
	cursors := make([]*segment.Cursor, 0, len(sc.segments))
	for _, g := range sc.segments {
		if g.Info.Max.Less(from) {
			continue
		}
		c, err := g.Cursor(false)
		if err != nil {
			return err
		}
		defer c.Close()
		cursors = append(cursors, c)
		if err := m.start(c, from); err != nil {
			return err
		}
	}
	budget := scanChunks + len(cursors)
	for {
		more, err := sc.batch(&m)
		sc.dropDead()
		if err != nil || !more {
			return err
		}
		loads := 0
		for _, c := range cursors {
			loads += c.ChunksRead()
		}
		if len(sc.out) >= sc.limit || loads > budget {
			return nil
		}
	}
}

// batch appends what passes keep, scanBatch entries at most. It returns false at
// the end of what can be seen.
func (sc *scan) batch(m *merger) (more bool, err error) {
	for range scanBatch {
		if m.empty() || sc.horizon != nil && !m.peek().Ref().Less(*sc.horizon) {
			sc.finish()
			return false, nil
		}
		if len(sc.out) >= sc.limit {
			return true, nil
		}
		e := m.peek()
		if sc.keep(e.Target) {
			sc.out = append(sc.out, Item{Ref: e.Ref(), Target: e.Target, Size: len(e.Body)})
		}
		sc.next = Ref{Due: e.Due, Seq: e.Seq + 1}
		if err := m.skip(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// finish says where to go on when the horizon, or the end, was reached.
func (sc *scan) finish() {
	if sc.horizon == nil {
		sc.done = true
		return
	}
	sc.next = *sc.horizon
}

// dropDead removes what is dead from the items appended last.
func (sc *scan) dropDead() {
	s := sc.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	kept := sc.out[:sc.checked]
	for _, item := range sc.out[sc.checked:] {
		if s.alive.Contains(item.Seq) {
			kept = append(kept, item)
		}
	}
	sc.out, sc.checked = kept, len(kept)
}
