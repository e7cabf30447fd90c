package storage

import (
	"context"
	"errors"
	"testing"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/segment"
)

// changed is a store above LevelOne with changes behind the base.
func changed(t *testing.T, dir string) (*Store, *model) {
	t.Helper()
	s, m := raised(t, dir)
	for range 4 {
		first := m.state.NextSeq
		script(s, m, operation{Accept: entries(500, 0, 1, 0), Kill: []SeqRun{{first, first + 99}, {first - 200, first - 150}}})
		flush(t, s, m.state.AppliedIndex)
	}
	return s, m
}

func foldNow(t *testing.T, s *Store) {
	t.Helper()
	from := s.pinToMerge()
	defer segment.ReleaseAll(from.segments)
	if err := s.fold(t.Context(), &from); err != nil {
		t.Fatal(err)
	}
}

// A base costs a fourteenth of what is flushed, and changes stay few enough to read.
func TestFold_isDueWhenItIsPaidFor(t *testing.T) {
	c := contents{alive: alive.NewSet()}
	for seq := uint64(1); seq < 1<<26; seq += 100 {
		c.alive.Add(seq)
	}
	size := c.alive.BaseSize()
	for _, test := range []struct {
		stored alive.File
		due    bool
	}{
		{alive.File{}, false},
		{alive.File{ID: 1, Base: size, Size: size + foldLeast, Flushed: foldShare * size}, true},
		{alive.File{ID: 1, Base: size, Size: size + foldLeast, Flushed: foldShare*size - 1}, false},
		{alive.File{ID: 1, Base: size, Size: size + foldLeast - 1, Flushed: 1 << 50}, false},
		{alive.File{ID: 1, Base: size, Size: size + foldMost}, true},
	} {
		c.stored = test.stored
		if c.shouldFold() != test.due {
			t.Errorf("%+v: due is %v", test.stored, !test.due)
		}
	}
}

func TestFold_writesABaseOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	s, m := changed(t, dir)
	before := s.manifest.current.stored
	foldNow(t, s)
	after := s.manifest.current.stored
	if after.ID == before.ID || after.Size != after.Base || after.Flushed != 0 {
		t.Errorf("%+v became %+v", before, after)
	}
	if n := fileCount(t, s.manifest.sets.Path); n != 1 {
		t.Errorf("%d files after a fold", n)
	}
	requireEqual(t, s, m)
	requireReopens(t, crash(t, dir, t.TempDir()), m, s.Stats().Segments)
}

// What flushes append while a base is written goes behind it.
func TestFold_goesOnBesideFlushes(t *testing.T) {
	dir := t.TempDir()
	s, m := changed(t, dir)
	from := s.pinToMerge()
	base, err := s.manifest.sets.Write(s.manifest.lastID.Add(1), from.alive, from.stored.Next, nil)
	if err != nil {
		t.Fatal(err)
	}
	requireReopens(t, crash(t, dir, t.TempDir()), m, s.Stats().Segments) // written, not named
	segment.ReleaseAll(from.segments)
	script(s, m, operation{Kill: []SeqRun{{1, 20}}, Accept: entries(30, 0, 1, 10)})
	flush(t, s, m.state.AppliedIndex)
	if err := s.manifest.nameBase(&from, base); err != nil {
		t.Fatal(err)
	}
	if got := s.manifest.current.stored; got.ID != base.ID || got.Size <= got.Base {
		t.Errorf("the manifest names %+v", got)
	}
	requireEqual(t, s, m)
	requireReopens(t, crash(t, dir, t.TempDir()), m, s.Stats().Segments)
	if n := fileCount(t, s.manifest.sets.Path); n != 1 {
		t.Errorf("%d files after a fold", n)
	}
}

func TestFold_givesWayToAReceivedSnapshot(t *testing.T) {
	s, _ := changed(t, t.TempDir())
	sent, m := raised(t, t.TempDir())
	for m.state.AppliedIndex < s.ManifestMeta().Index {
		script(sent, m, operation{Kill: []SeqRun{{3, 3}}})
	}
	flush(t, sent, m.state.AppliedIndex)
	from := s.pinToMerge()
	base, err := s.manifest.sets.Write(s.manifest.lastID.Add(1), from.alive, from.stored.Next, nil)
	if err != nil {
		t.Fatal(err)
	}
	segment.ReleaseAll(from.segments)
	if err := transfer(sent, s); err != nil {
		t.Fatal(err)
	}
	if err := s.manifest.nameBase(&from, base); !errors.Is(err, ErrGeneration) {
		t.Errorf("naming a base of before: %v", err)
	}
	if n := fileCount(t, s.manifest.sets.Path); n != 1 {
		t.Errorf("%d files", n)
	}
	requireEqual(t, s, m)
}

func TestFold_waitsForItsPace(t *testing.T) {
	stopped := errors.New("no more")
	s, m := changed(t, t.TempDir())
	big := alive.NewSet() // a base of more than a MB
	for seq := uint64(1); seq < 200<<16; seq += 17 {
		big.Add(seq)
	}
	s.cfg.Pace = func(context.Context, int) error { return stopped }
	from := s.pinToMerge()
	defer segment.ReleaseAll(from.segments)
	from.alive = big
	if err := s.fold(t.Context(), &from); !errors.Is(err, stopped) {
		t.Errorf("fold: %v", err)
	}
	if n := fileCount(t, s.manifest.sets.Path); n != 1 {
		t.Errorf("%d files after a fold that stopped", n)
	}
	requireEqual(t, s, m)
}
