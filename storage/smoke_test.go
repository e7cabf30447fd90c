package storage

import (
	"testing"
)

func TestSmoke(t *testing.T) {
	s := openStore(t, t.TempDir())
	m := newModel()
	idx := uint64(0)
	do := func(op operation) {
		idx++
		if g, w := applyTo(s, idx, op), m.apply(idx, op); g != w {
			t.Fatalf("killed %d want %d", g, w)
		}
	}
	do(operation{Accept: entries(3000, 1000, 3, 100)})
	requireEqual(t, s, m)
	flush(t, s, idx)
	requireEqual(t, s, m)
	do(operation{Accept: entries(3000, 500, 5, 100), Kill: []SeqRun{{10, 700}, {3500, 3600}}})
	requireEqual(t, s, m)
	f := s.Freeze()
	do(operation{Accept: entries(300, 500, 5, 100), Kill: []SeqRun{{1000, 1700}, {3500, 3600}}})
	requireEqual(t, s, m)
	if err := f.Flush(SnapshotMeta{Index: idx - 1}); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, s, m)
	flush(t, s, idx)
	mergeAll(t, s)
	requireEqual(t, s, m)
	to := openStore(t, t.TempDir())
	if err := transfer(s, to); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, to, m)
}
