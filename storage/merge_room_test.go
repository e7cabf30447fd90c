//go:build linux

package storage

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

// smallDisk is a store on a file system of its own.
func smallDisk(t *testing.T, size string) *Store {
	t.Helper()
	mount := t.TempDir()
	need(t, "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", mount)
	t.Cleanup(func() { run(t, "umount", mount) })
	s, err := Open(Config{Dir: filepath.Join(mount, "data")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A segment that takes most of the disk has one message in a hundred alive: room
// for that one is enough.
func TestMerge_asksForRoomForWhatIsAlive(t *testing.T) {
	s, m := smallDisk(t, "80m"), newModel()
	script(s, m, operation{Accept: entries(50, 0, 1, 1<<20)})
	flush(t, s, 1)
	script(s, m, operation{Kill: []SeqRun{{2, 50}}})
	flush(t, s, 2)
	mergeAll(t, s)
	if left := s.Stats().SegmentBytes; left > 4<<20 {
		t.Errorf("%d bytes left for one message of 1 MB", left)
	}
	requireEqual(t, s, m)
}

// What a merge wants first has no room: the small ones are merged all the same.
func TestMerge_goesOnBesideWhatHasNoRoom(t *testing.T) {
	s, m := smallDisk(t, "80m"), newModel()
	script(s, m, operation{Accept: entries(40, 0, 1, 1<<20)})
	flush(t, s, 1)
	script(s, m, operation{Kill: []SeqRun{{10, 40}}})
	flush(t, s, 2)
	script(s, m, operation{Accept: entries(6, 0, 1, 1<<20)})
	flush(t, s, 3)
	for range 40 {
		script(s, m, operation{Accept: entries(1, 0, 1, 10)})
		flush(t, s, m.state.AppliedIndex)
	}
	var short int
	for range 20 {
		did, err := s.Merge(context.Background())
		if errors.Is(err, ErrDiskFull) {
			short++
		} else if err != nil {
			t.Fatal(err)
		}
		if !did {
			break
		}
	}
	if n := s.Stats().Segments; n > 12 || short == 0 {
		t.Errorf("%d segments are left of 42, %d merges had no room", n, short)
	}
	requireEqual(t, s, m)
}
