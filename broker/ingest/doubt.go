package ingest

import (
	"time"

	"github.com/carillonmq/carillon/storage"
)

// confirmAfter is how long all answers of Kafka must agree before something is done that
// cannot be undone. A broker that was frozen answers from the past until it has heard from
// the controller, within a second or so.
const confirmAfter = 3 * time.Second

// A finding is what one answer says of a position.
type finding struct {
	kind findingKind
	next int64 // where reading would go on
}

type findingKind int

// Error says what seems to be the matter.
func (k findingKind) Error() string {
	switch k {
	case deleted:
		return "records seem to have been deleted before they were read"
	case replaced:
		return "records that were read seem to have been replaced"
	case shortened:
		return "the log seems to be shorter than what was read"
	}
	return "all that was read is there"
}

const (
	// intact: all that was read is there, and what comes next.
	intact findingKind = iota
	// deleted: records before next were deleted before they were read.
	deleted
	// replaced: from next on Kafka has other records than those that were read.
	replaced
	// shortened: likewise, but Kafka cannot tell from where on.
	shortened
)

// find compares the position with a leader's answer, of an epoch at or above the position's. asked
// tells whether the end of the position's epoch was part of the question.
//
// A log gets shorter only when another leader is elected: within one epoch its leader appends, and nobody
// reads what it might have to take back. So an end below the position proves nothing unless the epoch of
// the answer is above that of the last record read. Even then Latest alone is a bad witness, since
// producers go on: the new log may have grown past the position when it is looked at. What tells
// is where the epochs part (KIP-101):
//
//	position 100, epoch 4:  ... 4 4 4 4 4 4 | next
//	the log of the leader:  ... 4 4 5 5 5 5   5 5 5      end of epoch 4: ReadEnd
func find(position storage.Position, a OffsetsAnswer, asked bool) finding {
	switch {
	case position.Next < a.Earliest:
		return finding{deleted, a.Earliest}
	case position.Epoch >= 0 && (a.Epoch <= position.Epoch || !asked):
		return finding{}
	case max(a.ReadEnd, a.Earliest) >= position.Next: // what was read is there, or no longer
		return finding{}
	case a.ReadEnd >= 0:
		return finding{replaced, max(a.ReadEnd, a.Earliest)}
	case position.Next > a.End: // it is beyond Latest where reading began at the end while a transaction was open
		return finding{shortened, a.Latest}
	}
	return finding{}
}

// A doubt is a finding that would move a position and has to last before it does.
type doubt struct {
	finding
	since time.Time
}

// hear notes what another answer finds and reports whether it is certain by now. An answer
// that says otherwise begins the doubt anew.
func (d *doubt) hear(f finding, now time.Time) bool {
	same := f.kind == d.kind
	switch f.kind {
	case intact:
		*d = doubt{}
		return false
	case deleted: // Kafka goes on deleting
		same = same && f.next >= d.next
	case replaced:
		same = same && f.next == d.next
	case shortened: // and producers go on writing, from where the end was first
		if same {
			f.next = min(f.next, d.next)
		}
	}
	if !same {
		*d = doubt{f, now}
		return false
	}
	d.next = f.next
	return now.Sub(d.since) >= confirmAfter
}
