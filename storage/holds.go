package storage

import "github.com/tidwall/btree"

// holds are those of the claim, sorted by target. Names of targets are free text,
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
	if h.tree.Len() == 0 {
		return false
	}
	at, held := h.tree.Get(target)
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
