package raftfsm

import (
	"slices"

	"github.com/carillonmq/carillon/storage"
)

// What a claim promises, after every command and whatever leads: each message that is
// alive lies at or after the mark of its topic's hold, or else of its target's hold, or of the
// claim where there is none. A term that reads from the marks finds it.
//
// Accepting keeps the promise: the store lowers the mark that covers the message (storage
// Accept). So does killing. That leaves the marks that a command sets. Its proposer has made
// them up from what it had seen: all that was applied up to the last command that set
// marks (see DESIGN.md), and perhaps more. What it may not have seen was accepted since, and the
// lowest of that is Fresh, which the store keeps for this purpose:
//
//	        last claim                        this one
//	----------|-----------------|----------------|------> log
//	 seen     | seen            | in Fresh       |
//	          |     proposed: --'                |
//
// So every mark that a command sets is lowered to Fresh, and then nothing is fresh any
// more. A hold that it does not name has the mark that it had, which has covered all
// of its target since it was set, for accepting asked for the hold and not for the
// claim: emptying Fresh takes nothing from it. One that it lifts leaves its messages to the
// claim's mark: those seen are the proposer's to cover, the others are in Fresh.

// nextClaim is what a proposed claim makes of the present one.
func nextClaim(now, proposed storage.Claim) storage.Claim {
	next := nextChange(now, storage.ClaimChange{Through: proposed.Through, Mark: proposed.Mark, Set: proposed.Holds})
	return storage.Claim{Through: next.Through, Mark: next.Mark, Holds: next.Set}
}

// nextChange is what a proposed change becomes when the present claim is now.
func nextChange(now storage.Claim, proposed storage.ClaimChange) storage.ClaimChange {
	next := proposed
	next.Through = max(now.Through, proposed.Through)
	if now.Fresh == (storage.Ref{}) {
		return next
	}
	next.Mark = next.Mark.Min(now.Fresh)
	next.Set, next.Topics = slices.Clone(next.Set), slices.Clone(next.Topics)
	for i := range next.Set {
		next.Set[i].Mark = next.Set[i].Mark.Min(now.Fresh)
	}
	for i := range next.Topics {
		next.Topics[i].Mark = next.Topics[i].Mark.Min(now.Fresh)
	}
	return next
}
