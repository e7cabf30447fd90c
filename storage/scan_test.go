package storage

import (
	"testing"

	"github.com/carillonmq/carillon/storage/segment"
)

func TestScan_filtersByTargetInMemoryAndOnDisk(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	for index := uint64(1); index <= 2; index++ {
		es := entries(100, 0, 1, 10)
		for i := range es {
			if i%3 == 0 {
				es[i].Target = "held"
			}
		}
		script(s, m, operation{Accept: es})
		if index == 1 {
			flush(t, s, index)
		}
	}
	items, _, done, err := s.Scan(Ref{}, Ref{}, 1000, func(_ Ref, _, target string) bool { return target != "held" }, nil)
	if err != nil || !done || len(items) != 132 {
		t.Fatalf("%d items, done %v, error %v", len(items), done, err)
	}
	for _, item := range items {
		if item.Target == "held" {
			t.Fatalf("item %+v passed the filter", item)
		}
	}
}

func TestScan_countsWhatItLooksAt(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(100, 0, 1, 10)})
	flush(t, s, 1)
	script(s, m, operation{Accept: entries(50, 0, 1, 10)})
	for _, keep := range []Filter{nil, func(Ref, string, string) bool { return false }} {
		before := s.Scanned()
		if _, _, _, err := s.Scan(Ref{}, Ref{}, 1000, keep, nil); err != nil {
			t.Fatal(err)
		}
		if got := s.Scanned() - before; got != 150 {
			t.Errorf("%d entries were looked at, want 150", got)
		}
	}
}

// A filter that accepts nothing must neither block the writer for long nor read
// the whole disk in one call: each call goes on from the one before.
func TestScan_doesABoundedAmountOfWorkPerCall(t *testing.T) {
	for _, onDisk := range []bool{false, true} {
		s, m := openStore(t, t.TempDir()), newModel()
		script(s, m, operation{Accept: entries(3*scanVisits, 0, 1, 200)})
		if onDisk {
			flush(t, s, 1)
		}
		var from Ref
		calls := 0
		for done := false; !done; calls++ {
			items, next, ended, err := s.Scan(from, Ref{}, 10, func(Ref, string, string) bool { return false }, nil)
			if err != nil || len(items) != 0 || !ended && !from.Less(next) {
				t.Fatalf("on disk %v: from %v to %v, %d items, error %v", onDisk, from, next, len(items), err)
			}
			from, done = next, ended
		}
		if calls < 3 {
			t.Errorf("on disk %v: all was looked at in %d calls", onDisk, calls)
		}
	}
}

// Whoever reads little at a time, all of which lies on disk, does not look each time at what is in memory for others.
func TestScan_ofFewLooksAtFewInMemory(t *testing.T) {
	const n = 500
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(n, 0, 1, 10)})
	flush(t, s, 1)
	others := entries(n, 0, 1, 10)
	for i := range others {
		others[i].Target = "others"
	}
	script(s, m, operation{Accept: others})
	found, done := 0, false
	for from := (Ref{}); !done; {
		items, next, ended, err := s.Scan(from, Ref{}, 1, func(_ Ref, _, target string) bool { return target != "others" }, nil)
		if err != nil {
			t.Fatal(err)
		}
		found, from, done = found+len(items), next, ended
	}
	if looked := s.Scanned(); found != n || looked > 10*2*n {
		t.Errorf("%d of %d found, %d entries were looked at", found, n, looked)
	}
}

func TestScan_startsAtFromInclusive(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(2000, 0, 0, 100)}) // all due at once
	flush(t, s, 1)
	for _, seq := range []uint64{1, 2, 777, 2000} {
		items, next, _, err := s.Scan(Ref{Due: 0, Seq: seq}, Ref{}, 1, nil, nil)
		if err != nil || len(items) != 1 || items[0].Seq != seq || next != (Ref{Due: 0, Seq: seq + 1}) {
			t.Fatalf("from seq %d: %v, next %v, error %v", seq, items, next, err)
		}
	}
	if items, _, done, err := s.Scan(Ref{Due: 0, Seq: 2001}, Ref{}, 1, nil, nil); err != nil || len(items) != 0 || !done {
		t.Fatalf("beyond the end: %v, done %v, error %v", items, done, err)
	}
}

func TestRead_leavesOutWhatIsDeadOrUnknown(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(10, 0, 10, 10)})
	flush(t, s, 1)
	script(s, m, operation{Accept: entries(10, 5, 10, 10), Kill: []SeqRun{{2, 2}, {12, 12}}})
	refs := []Ref{{Seq: 1}, {Due: 1, Seq: 1}, {Due: 5, Seq: 11}, {Due: 10, Seq: 2}, {Due: 15, Seq: 12}, {Due: 20, Seq: 3}, {Due: 21, Seq: 3}, {Due: 30, Seq: 99}}
	got, err := s.Read(refs, nil)
	if err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	for _, e := range got {
		seqs = append(seqs, e.Seq)
	}
	if len(seqs) != 3 || seqs[0] != 1 || seqs[1] != 11 || seqs[2] != 3 {
		t.Fatalf("read %v", seqs)
	}
	if _, err := s.Read([]Ref{{Due: 20, Seq: 3}, {Seq: 1}}, nil); err == nil {
		t.Fatal("unsorted refs were accepted")
	}
}

// A read ends where it has as many bytes as it may, wherever the messages lie, but not before the first that is alive. Those after
// that are read next.
func TestReadWithin_endsWithAsManyBytesAsItMay(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	for i := range uint64(3) { // a segment each, mixed
		script(s, m, operation{Accept: entries(10, 0, 10, 100)})
		flush(t, s, 10*i+10)
	}
	script(s, m, operation{Accept: entries(10, 0, 10, 100), Kill: []SeqRun{{1, 2}}})
	want := m.sorted()
	refs := []Ref{{Seq: 1}}
	for _, e := range want {
		refs = append(refs, e.Ref())
	}
	for bytes, each := range map[int]int{1: 1, 100: 1, 199: 1, 200: 2, 1000: 10, 1_000_000: len(want)} {
		var got []Entry
		for left, calls := refs, 1; len(left) > 0; calls++ {
			entries, read, err := s.ReadWithin(bytes, left, nil)
			if err != nil || len(entries) != min(each, len(want)-len(got)) || read < len(entries) {
				t.Fatalf("call %d within %d bytes: %d messages by %d refs, error %v, want %d", calls, bytes, len(entries), read, err, each)
			}
			got, left = append(got, entries...), left[read:]
		}
		if len(got) != len(want) {
			t.Fatalf("within %d bytes: %d messages, want %d", bytes, len(got), len(want))
		}
		for i, e := range got {
			if e.Ref() != want[i].Ref() || len(e.Body) != len(want[i].Body) {
				t.Fatalf("within %d bytes number %d is %v with %d bytes, want %v", bytes, i, e.Ref(), len(e.Body), want[i].Ref())
			}
		}
	}
}

// What lies on disk and in two tables at once is found in order, without a gap and in few calls, whichever of them
// comes first.
func TestScan_findsWhatIsMixedInMemoryAndOnDisk(t *testing.T) {
	const each = 3000
	for _, starts := range [][3]int64{{0, 0, 0}, {0, each, 2 * each}, {2 * each, each, 0}, {each, 0, 0}} {
		s, m := openStore(t, t.TempDir()), newModel()
		script(s, m, operation{Accept: entries(each, starts[0], 1, 10)})
		flush(t, s, 1)
		script(s, m, operation{Accept: entries(each, starts[1], 1, 10)})
		frozen := s.Freeze()
		script(s, m, operation{Accept: entries(each, starts[2], 1, 10), Kill: []SeqRun{{each + 1000, each + 1500}}})
		want := m.sorted()
		const limit = 2000
		var found []Item
		calls, done := 0, false
		for from := (Ref{}); !done; calls++ {
			items, next, ended, err := s.Scan(from, Ref{}, limit, nil, nil)
			if err != nil || !ended && !from.Less(next) {
				t.Fatalf("from %v to %v, error %v", from, next, err)
			}
			found, from, done = append(found, items...), next, ended
		}
		if calls > len(want)/limit+2 {
			t.Errorf("%v: %d messages took %d calls", starts, len(want), calls)
		}
		if len(found) != len(want) {
			t.Fatalf("%v: %d messages were found of %d", starts, len(found), len(want))
		}
		for i := range found {
			if found[i].Ref != want[i].Ref() {
				t.Fatalf("%v: number %d is %v, want %v", starts, i, found[i].Ref, want[i].Ref())
			}
		}
		frozen.Release()
	}
}

// One that is to end somewhere tells all before that and nothing from there on, and does not look further than it must.
func TestScan_endsWhereItIsTo(t *testing.T) {
	const each, step = 3000, 700
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(each, 0, 3, 10)})
	flush(t, s, 1)
	script(s, m, operation{Accept: entries(each, 1, 3, 10)})
	frozen := s.Freeze()
	defer frozen.Release()
	script(s, m, operation{Accept: entries(each, 2, 3, 10), Kill: []SeqRun{{each + 1000, each + 1500}}})
	var found []Item
	before := s.Scanned()
	for from, done := (Ref{}), false; !done; {
		to := Ref{Due: from.Due + step}
		for from.Less(to) && !done {
			items, next, ended, err := s.Scan(from, to, 500, nil, nil)
			if err != nil || !ended && !from.Less(next) || to.Less(next) {
				t.Fatalf("from %v to %v: next is %v, error %v", from, to, next, err)
			}
			found, from, done = append(found, items...), next, ended
		}
	}
	want := m.sorted()
	if len(found) != len(want) {
		t.Fatalf("%d messages were found of %d", len(found), len(want))
	}
	for i := range found {
		if found[i].Ref != want[i].Ref() {
			t.Fatalf("number %d is %v, want %v", i, found[i].Ref, want[i].Ref())
		}
	}
	if looked := s.Scanned() - before; looked > 4*each {
		t.Errorf("%d entries were looked at to find %d", looked, len(want))
	}
}

// What has moved to disk since a walk began is in none of its segments: it must not go on in memory as if it had seen that.
func TestWalk_looksNoFurtherOnceMemoryHasMovedToDisk(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(100, 0, 1, 10)})
	all := func(*Entry) bool { return true }
	look := func(w *walk, further bool) bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		if further {
			return w.lookFurther(s, 10, 10, all)
		}
		w.lookAtMemory(s, Ref{}, 10, 10, all)
		return true
	}
	var w walk
	look(&w, false)
	defer segment.ReleaseAll(w.segments)
	if !look(&w, true) || *w.horizon != (Ref{Due: 20, Seq: 21}) {
		t.Fatalf("the second step ended at %v", w.horizon)
	}
	flush(t, s, 1)
	if look(&w, true) || *w.horizon != (Ref{Due: 20, Seq: 21}) {
		t.Errorf("it looked further, to %v, though all is on disk", w.horizon)
	}
}
