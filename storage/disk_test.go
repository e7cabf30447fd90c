//go:build linux

package storage

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/carillonmq/carillon/storage/outcomes"
	"golang.org/x/sys/unix"
)

// need runs a command of the test's preparation. Without it there is no test:
// under CI that is a failure, elsewhere the test is skipped and says why.
func need(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("needs root and %s %v: %v: %s", name, args, err, out)
	}
	t.Skipf("needs root and %s %v: %v: %s", name, args, err, out)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// cutPower makes every later write to the ext4 file system fail and forgets what
// was not synced.
func cutPower(mount string) error {
	const shutdown, noLogFlush = 0x8004587d, uint32(2)
	d, err := os.Open(mount)
	if err != nil {
		return err
	}
	defer d.Close()
	flag := noLogFlush
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), shutdown, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		return errno
	}
	return nil
}

func TestPowerLoss_leavesWhatWasFlushed(t *testing.T) {
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	need(t, "dd", "if=/dev/zero", "of="+image, "bs=1M", "count=256")
	need(t, "mkfs.ext4", "-q", image)
	need(t, "mount", "-o", "loop", image, mount)
	mounted := true
	defer func() {
		if mounted {
			run(t, "umount", mount)
		}
	}()
	data := filepath.Join(mount, "data")
	models := []*model{newModel()}
	var ops []operation
	for round := range 12 {
		acknowledged := writeUntilPowerLoss(t, data, &models, &ops, round)
		run(t, "umount", mount)
		mounted = false
		run(t, "mount", "-o", "loop", image, mount)
		mounted = true
		s, err := Open(Config{Dir: data, MergeWidth: 2, MaxSegments: 4})
		if err != nil {
			t.Fatalf("round %d: open after power loss: %v", round, err)
		}
		index := s.ManifestMeta().Index
		if index < acknowledged {
			t.Fatalf("round %d: manifest at index %d, flushed up to %d", round, index, acknowledged)
		}
		requireEqual(t, s, models[index])
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("12 power cuts, %d log entries", len(ops))
}

// writeUntilPowerLoss replays the log, goes on with it, and cuts the power while
// a later flush or merge is under way. It returns the index flushed last.
func writeUntilPowerLoss(t *testing.T, data string, models *[]*model, ops *[]operation, round int) (acknowledged uint64) {
	t.Helper()
	s, err := Open(Config{Dir: data, MergeWidth: 2, MaxSegments: 4})
	if err != nil {
		t.Fatalf("round %d: open: %v", round, err)
	}
	defer s.Close()
	for i := s.ManifestMeta().Index; i < uint64(len(*ops)); i++ {
		applyTo(s, i+1, (*ops)[i])
	}
	acknowledged = s.ManifestMeta().Index
	cut := make(chan error, 1)
	var rounds atomic.Int64
	trigger := make(chan struct{})
	go func() {
		<-trigger
		cut <- cutPower(filepath.Dir(data))
	}()
	for {
		index := uint64(len(*ops) + 1)
		op := operation{Accept: entries(400, int64(index), 3, 1500), Kill: []SeqRun{{index * 100, index*100 + 250}}}
		if round > 3 {
			op.Level = LevelTwo
		}
		if round > 7 {
			op.Level, op.Time, op.End = LevelThree, int64(index), ends(900, index, int64(index))
			op.Keep = &outcomes.Keep{For: outcomes.DefaultKeep.For, Count: 5000}
		}
		next := (*models)[len(*models)-1].clone()
		next.apply(index, op)
		*models, *ops = append(*models, next), append(*ops, op)
		applyTo(s, index, op)
		f := s.Freeze()
		if rounds.Add(1) == int64(1+round%4) {
			close(trigger) // the cut races with the flush
		}
		if err = f.Flush(SnapshotMeta{Index: index, Term: 1}); err != nil {
			break
		}
		acknowledged = index
		if _, err = s.Merge(context.Background()); err != nil {
			break
		}
	}
	if err := <-cut; err != nil {
		t.Fatalf("cut power: %v", err)
	}
	return acknowledged
}

func TestDiskFull_losesNothingAndGoesOn(t *testing.T) {
	mount := t.TempDir()
	need(t, "mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", mount)
	defer run(t, "umount", mount)
	s, err := Open(Config{Dir: filepath.Join(mount, "data"), MergeWidth: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := newModel()
	for range 2 {
		script(s, m, operation{Accept: entries(3000, 0, 1, 1000)})
		flush(t, s, m.state.AppliedIndex)
	}
	filler := filepath.Join(mount, "filler")
	fill(t, filler)
	script(s, m, operation{Accept: entries(3000, 0, 1, 1000), Kill: []SeqRun{{10, 2000}}})

	f, files := s.Freeze(), s.manifest.lastID.Load()
	if err := f.Flush(SnapshotMeta{Index: 3, Term: 1}); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("flush on a full disk: %v", err)
	}
	if s.manifest.lastID.Load() != files {
		t.Error("the flush began to write what has no room")
	}
	requireEqual(t, s, m)
	script(s, m, operation{Accept: entries(5, 0, 1, 10), Kill: []SeqRun{{6500, 6600}}})
	f.Release()
	requireEqual(t, s, m)
	if did, err := s.Merge(context.Background()); did || !errors.Is(err, ErrDiskFull) {
		t.Fatalf("merge on a full disk: %v, %v", did, err)
	}
	requireEqual(t, s, m)
	requireNoStray(t, s)

	again := s.Freeze()
	if err := again.Flush(SnapshotMeta{Index: 4, Term: 1}); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("flush on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := again.Flush(SnapshotMeta{Index: 4, Term: 1}); err != nil {
		t.Fatalf("the same flush with room: %v", err)
	}
	mergeAll(t, s)
	requireEqual(t, s, m)
	requireNoStray(t, s)
}

// A process is killed before a commit of the manifest is synced. The next one says how far its schedule goes, the log is cut on
// that, and then the power goes.
func TestPowerLoss_leavesWhatAStartHasRead(t *testing.T) {
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	need(t, "dd", "if=/dev/zero", "of="+image, "bs=1M", "count=128")
	need(t, "mkfs.ext4", "-q", image)
	need(t, "mount", "-o", "loop", image, mount)
	defer func() { run(t, "umount", mount) }()
	data := filepath.Join(mount, "data")
	s, err := Open(Config{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	m := newModel()
	script(s, m, operation{Accept: entries(20, 0, 1, 10)})
	flush(t, s, 1)
	s.manifest.db.NoSync = true
	script(s, m, operation{Kill: []SeqRun{{2, 2}}})
	flush(t, s, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	start := func() {
		s, err := Open(Config{Dir: data})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() // as far as it can
		if got := s.ManifestMeta().Index; got != 2 {
			t.Errorf("the manifest ends at index %d, want 2", got)
			return
		}
		requireEqual(t, s, m)
		if err := cutPower(mount); err != nil {
			t.Fatal(err)
		}
	}
	start()
	run(t, "umount", mount)
	run(t, "mount", "-o", "loop", image, mount)
	start()
}

// A stream that does not fit is refused by its header, before any file.
func TestReceive_refusesAStreamWithoutRoom(t *testing.T) {
	mount := t.TempDir()
	need(t, "mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", mount)
	defer run(t, "umount", mount)
	to, err := Open(Config{Dir: filepath.Join(mount, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	from, m := openStore(t, t.TempDir()), newModel()
	script(from, m, operation{Accept: entries(6000, 0, 1, 1000)})
	flush(t, from, 1)
	if err := transfer(from, to); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("transfer: %v", err)
	}
	requireEqual(t, to, newModel())
	requireNoStray(t, to)
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
