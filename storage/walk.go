package storage

import (
	"slices"

	"github.com/carillonmq/carillon/storage/merge"
	"github.com/carillonmq/carillon/storage/segment"
)

// A walk goes over memtables and segments in order of delivery, over what they held at the moment
// in which it looked at memory.
type walk struct {
	to       Ref                // it ends there, exclusive; zero: nowhere
	memory   []merge.Slice      // of each memtable
	horizon  *Ref               // memory was looked at up to here, exclusive; nil: all of it
	segments []*segment.Segment // pinned
	cursors  []*segment.Cursor
	heads    merge.Heap
}

// lookAtMemory takes everything that may move from memory to disk at one moment: what is not in
// the tables is in the segments. It looks at visits entries of each table, and takes limit and one more of
// those that keep accepts. The caller holds mu.
func (w *walk) lookAtMemory(s *Store, from Ref, visits, limit int, keep func(e *Entry) bool) {
	w.segments = s.segments
	segment.AcquireAll(w.segments)
	w.gather(s, from, visits, limit, keep)
}

// lookFurther goes on looking at memory from the horizon on, when all before it was passed, and reports whether it
// did. It does not when the horizon is none, or when something has moved to disk meanwhile: the segments that are
// pinned lack that. The caller holds mu.
func (w *walk) lookFurther(s *Store, visits, limit int, keep func(e *Entry) bool) bool {
	if w.horizon == nil || w.isBeyond(*w.horizon) || !slices.Equal(w.segments, s.segments) {
		return false
	}
	from := *w.horizon
	w.horizon, w.memory = nil, nil
	w.heads.Keep(func(from merge.Source) bool { // what a table showed beyond the horizon is looked at again
		_, onDisk := from.(*segment.Cursor)
		return onDisk
	})
	w.gather(s, from, visits, limit, keep)
	w.addMemory()
	return true
}

// gather looks at the tables; see lookAtMemory.
func (w *walk) gather(s *Store, from Ref, visits, limit int, keep func(e *Entry) bool) {
	var looked Entry // shown to keep, which may not hold on to it
	for _, t := range s.tables() {
		var found merge.Slice
		left := visits
		t.Ascend(from, func(e Entry) bool {
			if left--; left < 0 || len(found) > limit || w.isBeyond(e.Ref()) {
				w.lowerHorizon(e.Ref())
				return false
			}
			if looked = e; keep(&looked) {
				found = append(found, e)
			}
			return true
		})
		w.memory = append(w.memory, found)
	}
}

// isBeyond reports whether the walk has ended before r.
func (w *walk) isBeyond(r Ref) bool { return w.to != Ref{} && !r.Less(w.to) }

func (w *walk) lowerHorizon(r Ref) {
	if w.horizon == nil || r.Less(*w.horizon) {
		w.horizon = &r
	}
}

// start opens what there is at or after from. It is called within disk.Guard, and close follows it.
func (w *walk) start(from Ref) error {
	w.addMemory()
	for _, g := range w.segments {
		if g.Info.Max.Less(from) {
			continue
		}
		c, err := g.Cursor(false)
		if err != nil {
			return err
		}
		w.cursors = append(w.cursors, c)
		if err := w.heads.Start(c, from); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) addMemory() {
	for i := range w.memory {
		if e, _ := w.memory[i].Next(); e != nil {
			w.heads.Add(e, &w.memory[i])
		}
	}
}

// close ends the cursors; segments stay pinned.
func (w *walk) close() {
	for _, c := range w.cursors {
		c.Close()
	}
}

// peek returns the next entry, good until skip; nil at the end of what can be seen.
func (w *walk) peek() *Entry {
	if w.heads.Empty() {
		return nil
	}
	e := w.heads.Peek()
	if w.isBeyond(e.Ref()) || w.horizon != nil && !e.Ref().Less(*w.horizon) {
		return nil
	}
	return e
}

// body returns that of the entry which peek shows, checked and copied if a file has it.
func (w *walk) body() ([]byte, error) {
	if c, onDisk := w.heads.From().(*segment.Cursor); onDisk {
		return c.Body()
	}
	return w.heads.Peek().Body, nil
}

// skip moves past the entry that peek shows.
func (w *walk) skip() error { return w.heads.Skip() }

// spent reports whether more chunks were read than one call may, beside one for each segment.
func (w *walk) spent(chunks int) bool {
	for _, c := range w.cursors {
		chunks -= c.ChunksRead() - 1
	}
	return chunks < 0
}

// end says where to go on when peek has shown nothing: done when nothing lies at or after next.
func (w *walk) end(next Ref) (Ref, bool) {
	switch {
	case w.horizon != nil && !w.isBeyond(*w.horizon):
		return *w.horizon, false
	case w.horizon != nil || !w.heads.Empty():
		return w.to, false
	}
	return next, true
}
