package storage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// withIDs returns n entries with ids that begin with prefix.
func withIDs(n int, due int64, prefix string) []Entry {
	es := entries(n, due, 1, 20)
	for i := range es {
		es[i].Topic, es[i].ID = "orders.delay", fmt.Sprintf("%s-%d", prefix, i)
	}
	return es
}

func requireFound(t *testing.T, s *Store, id string, seq uint64) {
	t.Helper()
	found, ok, err := s.Lookup("orders.delay", id)
	if err != nil || ok != (seq != 0) || found.Seq != seq {
		t.Fatalf("%s: %+v, %v, %v, want seq %d", id, found, ok, err, seq)
	}
}

// An id stands for its newest message that is alive, wherever that lies.
func TestLookup_findsTheNewestAlive(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	for round := uint64(1); round <= 4; round++ {
		s.Accept(withIDs(100, int64(1000*round), "order"))
		s.Applied(round)
		if round < 4 {
			flush(t, s, round)
		}
	}
	check := func() {
		t.Helper()
		requireFound(t, s, "order-7", 308)
		requireFound(t, s, "order-100", 0)
		requireFound(t, s, "order-8", 209)
		requireFound(t, s, "order-9", 0)
	}
	s.Kill([]SeqRun{{309, 309}, {310, 310}, {210, 210}, {110, 110}, {10, 10}})
	check()
	flush(t, s, 5)
	check()
	mergeAll(t, s)
	check()
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	check()
	to := openStore(t, t.TempDir())
	if err := transfer(s, to); err != nil {
		t.Fatal(err)
	}
	s = to
	check()
	if found, _, _ := s.Lookup("orders.delay", "order-7"); found.Due != 4007 || found.Target != "orders" || found.Expires != 0 {
		t.Errorf("found %+v", found)
	}
}

// What has died under an id is looked at once, however many there were, in memory and on the disk: a constant for messages
// that are due at once makes many.
func TestLookup_looksAtTheDeadOnce(t *testing.T) {
	const count = 3000
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	accept := func() {
		es := entries(count, 1000, 0, 20)
		for i := range es {
			es[i].Topic, es[i].ID = "orders.delay", "same"
		}
		s.Accept(es)
	}
	h := name.Of("orders.delay", "same")
	inMemory := func() int { _, _, asked := s.findInTables(h); return asked }
	onDisk := func() (asked int) {
		_, _, err := s.segments[0].FindName(h, func(seq uint64) bool { asked++; return s.named(seq) })
		if err != nil {
			t.Fatal(err)
		}
		return asked
	}
	for _, alive := range []uint64{0, 1, 100} { // the oldest of them
		accept()
		first := s.NextSeq() - count
		s.Kill([]SeqRun{{first + alive, first + count - 1}})
		newest := max(first, first+alive) - 1
		if alive == 0 {
			newest = 0
		}
		requireFound(t, s, "same", newest)
		if n := inMemory(); n > 2 {
			t.Errorf("%d alive in memory: %d are looked at", alive, n)
		}
		requireFound(t, s, "same", newest)
		s.Kill([]SeqRun{{first, first + count - 1}})
	}

	s = openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	accept()
	s.Applied(1)
	flush(t, s, 1)
	for _, alive := range []uint64{2000, 1000, 1, 0} {
		s.Kill([]SeqRun{{alive + 1, count}})
		requireFound(t, s, "same", alive)
		if n := onDisk(); n > 1 {
			t.Errorf("%d alive on the disk: %d are looked at", alive, n)
		}
	}
}

// A name that was never taken is fresh. One of a message is not, wherever that lies, nor is one of which only the end is
// known.
func TestFresh_isWhatNothingIsKnownOf(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	s.Accept(withIDs(10, 1000, "segment"))
	s.Applied(1)
	flush(t, s, 1)
	s.Accept(withIDs(10, 2000, "frozen"))
	s.Applied(2)
	s.Freeze()
	s.Accept(withIDs(10, 3000, "memory"))
	s.End(outcomes.Outcome{Name: name.Of("orders.delay", "ended"), Kind: outcomes.Cancelled, Seq: 1})
	var names []name.Hash
	for _, id := range []string{"segment-3", "frozen-3", "memory-3", "ended", "new", "newer"} {
		names = append(names, name.Of("orders.delay", id))
	}
	if fresh := s.Fresh(names, []bool{true}); !slices.Equal(fresh, []bool{true, false, false, false, false, true, true}) {
		t.Errorf("fresh: %v", fresh)
	}
}

// Messages from before LevelThree are found once their ids were told, however often their
// memtable and its rows are written.
func TestOpenIDs_makesOldMessagesKnown(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.Accept(entries(100, 1000, 1, 20))
	s.Applied(1)
	flush(t, s, 1)
	s.RaiseLevel(LevelThree)
	tell := func(index, first, last uint64, upTo uint64) bool {
		var told []Named
		for seq := first; seq <= last; seq++ {
			told = append(told, Named{Ref: Ref{Due: 999 + int64(seq), Seq: seq}, Target: "orders", Topic: "orders.delay", ID: fmt.Sprint("old-", seq), Expires: 5000})
		}
		open, err := s.OpenIDs(told, upTo)
		if err != nil {
			t.Fatal(err)
		}
		s.Applied(index)
		return open
	}
	if tell(2, 1, 50, 50) || s.IDsOpen() {
		t.Fatal("open with half of the ids")
	}
	flush(t, s, 2)
	if tell(3, 51, 99, 99) || s.IDsOpen() {
		t.Fatal("open with all but one of the ids")
	}
	flush(t, s, 3)
	s.Accept(withIDs(1, 2000, "new"))
	if !tell(4, 100, 100, 101) || !s.IDsOpen() {
		t.Fatal("not open with all ids")
	}
	s.Kill([]SeqRun{{1, 40}, {60, 60}})
	for index := uint64(4); index < 8; index++ {
		requireFound(t, s, "old-40", 0)
		requireFound(t, s, "old-41", 41)
		requireFound(t, s, "old-60", 0)
		requireFound(t, s, "old-100", 100)
		requireFound(t, s, "new-0", 101)
		s.Applied(index + 1)
		flush(t, s, index+1)
		mergeAll(t, s)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if !s.IDsOpen() {
		t.Error("closed by a restart")
	}
	s.Kill([]SeqRun{{1, 101}})
	s.Applied(9)
	flush(t, s, 9)
	mergeAll(t, s)
	if n := s.Stats().Segments; n != 0 {
		t.Errorf("%d segments are left of what is dead", n)
	}
}

// openedStore has 10 messages from before LevelThree on disk, and what is told of them in memory.
func openedStore(t *testing.T) *Store {
	t.Helper()
	s := openStore(t, t.TempDir())
	s.Accept(entries(10, 1000, 1, 20))
	s.Applied(1)
	flush(t, s, 1)
	s.RaiseLevel(LevelThree)
	var told []Named
	for seq := uint64(1); seq <= 10; seq++ {
		told = append(told, Named{Ref: Ref{Due: 999 + int64(seq), Seq: seq}, Target: "orders", Topic: "orders.delay", ID: fmt.Sprint("old-", seq)})
	}
	if _, err := s.OpenIDs(told, 10); err != nil {
		t.Fatal(err)
	}
	s.Applied(2)
	return s
}

// A segment whose own messages are dead stays while it knows others.
func TestFlush_keepsNamesOfMessagesElsewhere(t *testing.T) {
	s := openedStore(t)
	s.Accept(withIDs(5, 2000, "new"))
	flush(t, s, 2)
	s.Kill([]SeqRun{{11, 15}, {1, 8}})
	s.Applied(3)
	for range 2 {
		flush(t, s, 3)
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
		requireFound(t, s, "old-9", 9)
		requireFound(t, s, "old-8", 0)
		requireFound(t, s, "new-0", 0)
		mergeAll(t, s)
	}
	s.Kill([]SeqRun{{9, 10}})
	s.Applied(4)
	flush(t, s, 4)
	mergeAll(t, s)
	if n := s.Stats().Segments; n != 0 {
		t.Errorf("%d segments are left of what is dead", n)
	}
}

// When all messages of a memtable die at once, it still knows others.
func TestKill_keepsNamesOfMessagesElsewhere(t *testing.T) {
	s := openedStore(t)
	s.Accept(withIDs(5, 2000, "new"))
	s.Kill([]SeqRun{{11, 15}})
	requireFound(t, s, "old-9", 9)
	requireFound(t, s, "new-0", 0)
	s.Accept(withIDs(1, 2000, "new"))
	requireFound(t, s, "new-0", 16)
}

// What was accepted while a flush failed keeps its names, and so does what the flush was to write.
func TestRelease_keepsNames(t *testing.T) {
	s := openedStore(t)
	s.Accept(withIDs(5, 2000, "new"))
	frozen := s.Freeze()
	s.Accept(withIDs(2, 3000, "new"))
	if _, err := s.OpenIDs([]Named{{Ref: Ref{Due: 999 + 3, Seq: 3}, Target: "orders", Topic: "orders.delay", ID: "again"}}, 0); err != nil {
		t.Fatal(err)
	}
	s.Kill([]SeqRun{{17, 17}, {14, 14}})
	frozen.Release()
	for seq, id := range map[uint64]string{9: "old-9", 16: "new-0", 12: "new-1", 13: "new-2", 0: "new-3", 3: "again"} {
		requireFound(t, s, id, seq)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// Of several messages with one id the newest that was alive when they were told has it for good. The others
// do not get it when that has died, wherever their rows lie and whichever was told first.
func TestOpenIDs_givesAnIDToTheNewestForGood(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.Accept(entries(9, 1000, 1, 20))
	s.Applied(1)
	flush(t, s, 1)
	s.RaiseLevel(LevelThree)
	index := uint64(1)
	tell := func(id string, seqs ...uint64) {
		t.Helper()
		for _, seq := range seqs {
			named := Named{Ref: Ref{Due: 999 + int64(seq), Seq: seq}, Target: "orders", Topic: "orders.delay", ID: id}
			if _, err := s.OpenIDs([]Named{named}, 0); err != nil {
				t.Fatal(err)
			}
			index++
			s.Applied(index)
			flush(t, s, index)
		}
	}
	tell("rising", 1, 2, 3)
	tell("falling", 6, 5, 4, 5)
	tell("mixed", 8, 9)
	s.Kill([]SeqRun{{9, 9}})
	tell("mixed", 7, 8)
	for range 2 { // as they lie, and as they are read back
		for id, seq := range map[string]uint64{"rising": 3, "falling": 6, "mixed": 7} {
			requireFound(t, s, id, seq)
		}
		mergeAll(t, s)
		index++
		s.Applied(index)
		flush(t, s, index)
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	to := openStore(t, t.TempDir())
	if err := transfer(s, to); err != nil {
		t.Fatal(err)
	}
	if digest(t, s) != digest(t, to) {
		t.Error("a snapshot is not the same")
	}
	for _, s := range []*Store{s, to} {
		s.Kill([]SeqRun{{3, 3}, {6, 7}})
		for _, id := range []string{"rising", "falling", "mixed"} {
			requireFound(t, s, id, 0)
		}
		if s.Pending() != 5 {
			t.Errorf("%d are pending, want 5", s.Pending())
		}
		s.Kill([]SeqRun{{1, 9}})
		if n := s.values.lost.Count(); n > 0 {
			t.Errorf("it is kept of %d that are dead that they have lost their ids", n)
		}
	}
}

// Before LevelThree nothing was kept of what had ended: nobody is told that a message has never been.
func TestOpenIDs_saysSinceWhenEndsAreKnown(t *testing.T) {
	for _, before := range []int{0, 3} {
		s, m := openStore(t, t.TempDir()), newModel()
		if before > 0 {
			script(s, m, operation{Accept: entries(before, 0, 1, 10)})
		}
		for _, op := range []operation{{Time: 5000, Level: LevelThree}, {Open: &opening{UpTo: uint64(before)}}, {Time: 6000}, {Open: &opening{UpTo: uint64(before)}}} {
			script(s, m, op)
		}
		want := int64(0)
		if before > 0 {
			want = 5001
		}
		flush(t, s, 9)
		if got := s.OutcomesSince(); got != want || !s.IDsOpen() {
			t.Errorf("after %d messages: all is known since %d, want %d", before, got, want)
		}
	}
}
