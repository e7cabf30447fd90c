package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// damaged is a closed store with segments of several chunks and branch pages,
// and what it holds.
func damaged(t *testing.T, level Level) (dir string, m *model) {
	t.Helper()
	dir = memoryDir(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	m = newModel()
	for index := uint64(1); index <= 2; index++ {
		op := operation{Level: level, Accept: entries(700, 1000, 7, 900), Kill: []SeqRun{{5, 9}}}
		if level >= LevelThree {
			op.End = ends(1500, 1, 1000)
			for i := range op.Accept {
				if i%2 == 0 {
					op.Accept[i].Topic, op.Accept[i].ID, op.Accept[i].Expires = "orders.delay", fmt.Sprint(index, "-", i), int64(i%3)
				}
			}
			op.Open = tellOdd(index)
		}
		m.apply(index, op)
		applyTo(s, index, op)
		flush(t, s, index)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

// tellOdd tells of the messages of the batch that came before without an id.
func tellOdd(index uint64) *opening {
	o := new(opening)
	for i := uint64(1); i < 700 && index == 2; i += 2 {
		o.Named = append(o.Named, Named{Ref: Ref{Due: 1000 + 7*int64(i), Seq: i + 1}, Target: "orders", Topic: "orders.delay", ID: fmt.Sprint("1-", i)})
	}
	return o
}

// lookUpAll fails only if what is found by an id differs from the model.
func lookUpAll(t *testing.T, s *Store, m *model) error {
	t.Helper()
	if m.state.Level < LevelThree {
		return nil
	}
	byID := make(map[string]Found) // each is that of one message
	for seq, e := range m.entries {
		if told, isTold := m.told[seq]; isTold {
			e.ID, e.Expires = told.ID, told.Expires
		}
		byID[e.ID] = Found{Ref: e.Ref(), Target: e.Target, Topic: e.Topic, Expires: e.Expires}
	}
	for i := range 1402 {
		id := fmt.Sprint(1+i/701, "-", i%701)
		want, wantOK := byID[id]
		got, ok, err := s.Lookup("orders.delay", id)
		if err != nil {
			return err
		}
		if ok != wantOK || got != want {
			t.Fatalf("%s is %+v, %v, found was %+v, %v without an error", id, want, wantOK, got, ok)
		}
	}
	return nil
}

func storeFiles(t *testing.T, dir string) []string {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, segmentsName, "*"))
	if err != nil || len(segments) != 2 {
		t.Fatalf("segments %v, error %v", segments, err)
	}
	sets, err := filepath.Glob(filepath.Join(dir, aliveName, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return append(segments, append(sets, filepath.Join(dir, manifestName))...)
}

// readEverything fails only if what can be read differs from the model: damage
// must be reported or be without effect.
func readEverything(t *testing.T, dir string, m *model) error {
	t.Helper()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		return err
	}
	defer s.Close()
	want := m.sorted()
	var refs []Ref
	for _, e := range want {
		refs = append(refs, e.Ref())
	}
	var from Ref
	var items []Item
	for done := false; !done && err == nil; {
		items, from, done, err = s.Scan(from, Ref{}, len(items)+100, nil, items)
	}
	if err != nil {
		return err
	}
	if len(items) != len(want) {
		t.Fatalf("scan found %d of %d without an error", len(items), len(want))
	}
	got, err := s.Read(refs, nil)
	if err != nil {
		return err
	}
	for i, e := range want {
		if items[i].Ref != e.Ref() || i >= len(got) || !sameEntry(got[i], e) {
			t.Fatalf("entry %v was read wrongly without an error", e.Ref())
		}
	}
	if err := lookUpAll(t, s, m); err != nil {
		return err
	}
	if s.ManifestMeta().Index != m.state.AppliedIndex {
		t.Fatalf("manifest is back at index %d without an error", s.ManifestMeta().Index)
	}
	requireOutcomes(t, s, m)
	return s.Check()
}

func flip(t *testing.T, path string, at int, bit byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], int64(at)); err != nil {
		t.Fatal(err)
	}
	b[0] ^= bit
	if _, err := f.WriteAt(b[:], int64(at)); err != nil {
		t.Fatal(err)
	}
}

func requireTyped(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
		t.Fatalf("damage is reported as %v", err)
	}
}

func TestOpen_reportsTruncatedFiles(t *testing.T) {
	dir, m := damaged(t, LevelOne)
	for _, path := range storeFiles(t, dir) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 100, 4096, 8192, len(content) / 2, len(content) - 4096, len(content) - 1} {
			if err := os.Truncate(path, int64(size)); err != nil {
				t.Fatal(err)
			}
			err := readEverything(t, dir, m)
			if err != nil {
				requireTyped(t, err)
			} else if filepath.Base(path) != manifestName {
				t.Errorf("%s cut to %d bytes: no error", path, size)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestOpen_reportsMissingFiles(t *testing.T) {
	dir, m := damaged(t, LevelOne)
	for _, path := range storeFiles(t, dir) {
		if err := os.Rename(path, dir+".aside"); err != nil {
			t.Fatal(err)
		}
		if err := readEverything(t, dir, m); !errors.Is(err, ErrCorrupt) {
			t.Errorf("without %s: %v", path, err)
		}
		if err := os.Rename(dir+".aside", path); err != nil {
			t.Fatal(err)
		}
	}
	if err := readEverything(t, dir, m); err != nil {
		t.Fatalf("with all files back: %v", err)
	}
}

func TestOpen_refusesADirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	openStore(t, dir)
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Fatalf("second Open: %v", err)
	}
}

// A leaf page whose count was lowered hides chunks that are themselves sound.
func TestScan_reportsHiddenChunks(t *testing.T) { reportsHiddenChunks(t, LevelOne) }

// A chunk of rows, or a filter, that is hidden must not make an id unknown.
func TestLookup_reportsHiddenRows(t *testing.T) { reportsHiddenChunks(t, LevelThree) }

func reportsHiddenChunks(t *testing.T, level Level) {
	dir, m := damaged(t, level)
	hidden := 0
	for _, path := range storeFiles(t, dir)[:2] {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		size := os.Getpagesize()
		for page := 0; page < len(content); page += size {
			head := content[page:]
			isLeaf := binary.NativeEndian.Uint64(head) == uint64(page/size) && binary.NativeEndian.Uint16(head[8:]) == 2
			if !isLeaf || binary.NativeEndian.Uint32(head[12:]) == 0 {
				continue
			}
			for lower := range binary.NativeEndian.Uint16(head[10:]) {
				damage := append([]byte{}, content...)
				binary.NativeEndian.PutUint16(damage[page+10:], lower)
				if err := os.WriteFile(path, damage, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := readEverything(t, dir, m); err != nil {
					requireTyped(t, err)
					hidden++
				}
			}
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if hidden < 10 {
		t.Errorf("%d hidden chunks were reported", hidden)
	}
}
