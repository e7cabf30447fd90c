package torture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// margin is how long before its time a message must have been accepted for its order to be promised:
// the 100 ms of a claim, and room for the claim's own way through the log.
const margin = 350 // milliseconds

// A turn is a first copy in its target partition.
type turn struct {
	due, seq int64
	offset   int64
	accepted int64 // no later than this, epoch milliseconds
}

// disordered returns, in words, the first copies that stand behind one due later in their partition although both
// were accepted before either was claimed. When a message was accepted is nowhere to be read, but
// seqs are given at that moment: it was before whatever has a higher seq was written.
func (l *Ledger) disordered() []string {
	turns := map[place][]turn{} // by partition; the offset is left out
	for _, e := range l.entries {
		if len(e.copies) == 0 || e.Fate != Delivered {
			continue
		}
		first := slices.MinFunc(e.copies, func(a, b Copy) int { return cmp.Compare(a.Offset, b.Offset) })
		_, number, _ := strings.Cut(first.Seq, "/")
		seq, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			continue // Close says what is wrong with it
		}
		at := place{topic: first.Topic, partition: first.Partition}
		turns[at] = append(turns[at], turn{due: e.Due, seq: seq, offset: first.Offset, accepted: first.Written})
	}
	boundAcceptance(turns)
	var found []string
	for at, all := range turns {
		slices.SortFunc(all, func(a, b turn) int { return cmp.Compare(a.offset, b.offset) })
		latest := int64(math.MinInt64)
		for i, t := range all {
			if t.due < latest && t.accepted < t.due-margin && slices.ContainsFunc(all[:i], func(before turn) bool {
				return before.due > t.due && before.accepted < t.due-margin
			}) {
				found = append(found, fmt.Sprintf("seq %d, due %s, stands at offset %d of %s/%d behind one due later, and both had been accepted",
					t.seq, clock(t.due), t.offset, at.topic, at.partition))
			}
			latest = max(latest, t.due)
		}
	}
	return found
}

// boundAcceptance lowers each bound to that of the messages with higher seqs.
func boundAcceptance(turns map[place][]turn) {
	var all []*turn
	for _, some := range turns {
		for i := range some {
			all = append(all, &some[i])
		}
	}
	slices.SortFunc(all, func(a, b *turn) int { return cmp.Compare(b.seq, a.seq) })
	bound := int64(math.MaxInt64)
	for _, t := range all {
		bound = min(bound, t.accepted)
		t.accepted = bound
	}
}
