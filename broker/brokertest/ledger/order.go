package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// acceptance is how long after it was written a record may be accepted while all is well, with the
// lead that a claim has.
const acceptance = 250 * time.Millisecond

// checkOrder looks at first copies: those of one target partition come in order of (due, seq),
// if both were accepted before either was claimed. Where the log does not tell that, the time tells at
// which the later one was written, unless a fault delays what is read. What the log gave up as expired was
// never acknowledged: it is there since Kafka wrote it after all, whenever that was, and no further try puts it
// in its place.
func (j *judge) checkOrder() {
	highest := make(map[string]*Delivery) // by target partition
	seen := make(map[uint64]bool)
	for i := range j.Deliveries {
		d := &j.Deliveries[i]
		if d.Seq == 0 || seen[d.Seq] || j.Log.ids.ended[d.Seq].Expired {
			continue
		}
		seen[d.Seq] = true
		where := fmt.Sprintf("%s/%d", d.Topic, d.Partition)
		last := highest[where]
		if last == nil || (Mark{last.Due, last.Seq}).less(Mark{d.Due, d.Seq}) {
			highest[where] = d
			continue
		}
		waited, known := j.bothWaited(last, d)
		if r := j.records[d.Identity]; !known {
			waited = len(r) == 1 && !j.mayBeLate(r[0], last)
		}
		if waited && !j.regrouped(d, last.At) {
			j.problem("order", "in %s, %s (due %d, seq %d) came after %s (due %d, seq %d)",
				where, d.Origin, d.Due, d.Seq, last.Origin, last.Due, last.Seq)
		}
	}
}

// checkKeys looks at first copies of one key: they are sent in order also when the target has another number of
// partitions meanwhile.
func (j *judge) checkKeys() {
	first := make(map[uint64]*Delivery)
	for i := range j.Deliveries {
		d := &j.Deliveries[i]
		if before := first[d.Seq]; d.Seq > 0 && d.Key != "" && !j.Log.ids.ended[d.Seq].Expired && (before == nil || d.At.Before(before.At)) {
			first[d.Seq] = d
		}
	}
	seqs := slices.SortedFunc(maps.Keys(first), func(a, b uint64) int {
		return cmp.Or(first[a].At.Compare(first[b].At), cmp.Compare(first[a].Due, first[b].Due), cmp.Compare(a, b))
	})
	highest := make(map[[2]string]*Delivery)
	for _, seq := range seqs {
		d := first[seq]
		key := [2]string{d.Topic, d.Key}
		last := highest[key]
		if last == nil || (Mark{last.Due, last.Seq}).less(Mark{d.Due, d.Seq}) {
			highest[key] = d
			continue
		}
		if waited, _ := j.bothWaited(last, d); waited && d.At.After(last.At) {
			j.problem("order", "of the key %q in %s, %s (due %d, seq %d) came after %s (due %d, seq %d)",
				d.Key, d.Topic, d.Origin, d.Due, d.Seq, last.Origin, last.Due, last.Seq)
		}
	}
}

// mayBeLate reports whether the record may have been accepted only when the other was claimed.
func (j *judge) mayBeLate(r *Record, other *Delivery) bool {
	claimed := time.UnixMilli(other.Due)
	if len(j.Clocks) > 0 {
		_, ahead := j.wrong(j.Begin, other.At)
		claimed = claimed.Add(-ahead)
	}
	claimed = claimed.Add(-acceptance)
	if r.At.After(claimed) {
		return true
	}
	return calm(j.disturbed(r.Topic, ""), r.At, claimed) < acceptance
}

// regrouped reports whether the topic got more partitions between then and the delivery, so that the
// other one in its partition may have been placed by the number before. In one that is new by then none was.
func (l *Ledger) regrouped(d *Delivery, from time.Time) bool {
	for _, f := range l.Faults {
		isNew := d.Partition >= f.Partitions
		if f.Kind == "partitions" && f.Topic == d.Topic && !isNew && !f.From.After(d.At.Add(time.Minute)) && !l.recovered(f).Before(from) {
			return true
		}
	}
	return false
}
