package storage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// A copy of the holds stays what it was, whichever of the two is written to.
func TestHolds_copyIsItsOwn(t *testing.T) {
	of := func(h holds) []Hold { return slices.Collect(h.each) }
	h := newHolds()
	for i := range 500 {
		h.set(Hold{Target: fmt.Sprintf("t%03d", i), Mark: Ref{Due: 100}})
	}
	c := h.clone()
	before := of(h)
	h.lower("t100", Ref{Due: 5})
	h.lift("t200")
	h.set(Hold{Target: "new"})
	if !slices.Equal(of(c), before) {
		t.Error("writing to the original changed the copy")
	}
	after := of(h)
	c.lift("t001")
	c.lower("t002", Ref{Due: 1})
	if !slices.Equal(of(h), after) {
		t.Error("writing to the copy changed the original")
	}
}

// Names are free text and may be many: that of a target with messages in memory is kept once.
func TestHolds_keepANameOnce(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept := strings.Clone("orders")
	s.table.Add(&Entry{Seq: s.table.Next(), Due: 1, Target: kept})
	s.ChangeClaim(ClaimChange{Set: []Hold{{Target: strings.Clone(kept)}, {Target: "others"}}})
	holds := s.Holds()
	if len(holds) != 2 || holds[0].Target != kept || holds[1].Target != "others" {
		t.Fatalf("holds %v", holds)
	}
	if unsafe.StringData(holds[0].Target) != unsafe.StringData(kept) {
		t.Error("the name is kept twice")
	}
}

// What 100,000 held targets cost a flush: while Apply waits, and in the manifest.
func BenchmarkFreezeHolds(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var change ClaimChange
	for i := range 100_000 {
		change.Set = append(change.Set, Hold{Target: fmt.Sprintf("customer-%08d.replies", i), Through: 1_700_000_000_000, Mark: Ref{Due: 1_700_000_000_000, Seq: 1}})
	}
	s.ChangeClaim(change)
	var frozen, named time.Duration
	index := uint64(1)
	for b.Loop() {
		index++
		begin := time.Now()
		f := s.Freeze()
		frozen += time.Since(begin)
		if err := f.Flush(SnapshotMeta{Index: index}); err != nil {
			b.Fatal(err)
		}
		named += time.Since(begin)
		s.ChangeClaim(ClaimChange{Set: change.Set[index%1000 : index%1000+1]})
	}
	b.ReportMetric(float64(frozen.Microseconds())/float64(b.N), "us/freeze")
	b.ReportMetric(float64(named.Microseconds())/float64(b.N)/1e3, "ms/flush")
	b.ReportMetric(float64(len(encodeValues(&s.values).Payload))/1e6, "MB/flush")
}
