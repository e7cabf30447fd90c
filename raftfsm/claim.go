package raftfsm

import (
	"slices"

	"github.com/carillonmq/carillon/storage"
)

// nextClaim is what a proposed claim makes of the present one.
//
// An entry that is accepted between the moment a ClaimCommand was made up and the
// moment it is applied may lie below the marks it proposes, and a term that starts
// at those marks would never read it. So the store keeps the lowest entry accepted
// since the last ClaimCommand, Fresh, and the marks are lowered to it: all of them,
// so that it does not matter which targets are held now.
func nextClaim(now, proposed storage.Claim) storage.Claim {
	next := proposed
	next.Fresh = storage.Ref{}
	next.Holds = slices.Clone(next.Holds)
	next.Through = max(now.Through, proposed.Through)
	if now.Fresh == (storage.Ref{}) {
		return next
	}
	next.Mark = lower(next.Mark, now.Fresh)
	for i := range next.Holds {
		next.Holds[i].Mark = lower(next.Holds[i].Mark, now.Fresh)
	}
	return next
}

func lower(a, b storage.Ref) storage.Ref {
	if b.Less(a) {
		return b
	}
	return a
}
