package storage

import (
	"fmt"
	"testing"
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
		open := s.OpenIDs(told, upTo)
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
