package raftfsm

import (
	"slices"

	"github.com/carillonmq/carillon/storage"
)

// An entry that is accepted between the moment a ClaimCommand was made up and
// the moment it is applied may lie below the marks it proposes, and a term that
// starts at those marks would never read it. So the state keeps the lowest entry
// accepted since the last ClaimCommand, called fresh, and marks are lowered to it.
//
// fresh has to be in every snapshot: it is stored in the claim as a hold of the
// topic "", which no topic is called and which sorts first.
const freshHold = ""

// visible is c without fresh.
func visible(c storage.Claim) storage.Claim {
	if len(c.Holds) > 0 && c.Holds[0].Target == freshHold {
		c.Holds = c.Holds[1:]
	}
	return c
}

// fresh returns the lowest entry accepted since the last ClaimCommand, if any.
func fresh(c storage.Claim) (low storage.Ref, any bool) {
	if len(c.Holds) > 0 && c.Holds[0].Target == freshHold {
		return c.Holds[0].Mark, true
	}
	return storage.Ref{}, false
}

// withFresh returns c after low was accepted.
func withFresh(c storage.Claim, low storage.Ref) storage.Claim {
	if was, any := fresh(c); any {
		c.Holds[0].Mark = lower(was, low)
		return c
	}
	c.Holds = slices.Insert(c.Holds, 0, storage.Hold{Target: freshHold, Mark: low})
	return c
}

// nextClaim is what a proposed claim makes of the present one. fresh covers all
// targets, so that it does not matter which of them are held now.
func nextClaim(now, proposed storage.Claim) storage.Claim {
	next := visible(proposed)
	next.Holds = slices.Clone(next.Holds)
	next.Through = max(now.Through, proposed.Through)
	if low, any := fresh(now); any {
		next.Mark = lower(next.Mark, low)
		for i := range next.Holds {
			next.Holds[i].Mark = lower(next.Holds[i].Mark, low)
		}
	}
	return next
}

// lowest returns the lowest of entries that got their seqs from first on.
func lowest(es []storage.Entry, first uint64) storage.Ref {
	low := storage.Ref{Due: es[0].Due, Seq: first}
	for i := range es[1:] {
		low = lower(low, storage.Ref{Due: es[i+1].Due, Seq: first + uint64(i) + 1})
	}
	return low
}

func lower(a, b storage.Ref) storage.Ref {
	if b.Less(a) {
		return b
	}
	return a
}

func sameClaim(a, b storage.Claim) bool {
	return a.Through == b.Through && a.Mark == b.Mark && slices.Equal(a.Holds, b.Holds)
}
