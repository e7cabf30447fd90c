package raftlog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A failingLog fails to append or to cut when told so.
type failingLog struct {
	raft.LogStore
	appends, cuts error
}

func (l *failingLog) StoreLogs(logs []*raft.Log) error {
	if l.appends != nil {
		return l.appends
	}
	return l.LogStore.StoreLogs(logs)
}

func (l *failingLog) DeleteRange(from, to uint64) error {
	if l.cuts != nil {
		return l.cuts
	}
	return l.LogStore.DeleteRange(from, to)
}

// A first start finds the disk full before all pages of a file are written, or ends then. The next starts as well as a first.
func TestOpen_makesItsFilesWholeOrNotAtAll(t *testing.T) {
	const childEnv = "CARILLON_TEST_SMALL_FILES"
	if os.Getenv(childEnv) == "" { // files of this process must not be cut off
		cmd := exec.Command(os.Args[0], "-test.run=^TestOpen_makesItsFilesWholeOrNotAtAll$")
		cmd.Env = append(os.Environ(), childEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, kind := range []string{BoltDB, WAL} {
		for path, open := range map[string]func(dir string) (io.Closer, error){
			StableFile: func(dir string) (io.Closer, error) { return OpenStable(dir) },
			filepath.Join(kind, File(kind)): func(dir string) (io.Closer, error) {
				return Open(Config{Dir: dir, Kind: kind, SegmentSize: 4096, Logger: quiet()})
			},
		} {
			dir := t.TempDir()
			for _, size := range []uint64{0, 4096, 8192, 12_288} {
				if err := withFileSize(t, size, func() error { _, err := open(dir); return err }); err == nil {
					t.Errorf("%s: made with %d bytes for a file", path, size)
				}
				if _, err := os.Stat(filepath.Join(dir, path)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: with %d bytes for a file half of it is there: %v", path, size, err)
				}
			}
			for _, name := range []string{path + ".new", path + ".tmp"} { // ours, and raft-wal's
				if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 8192), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := open(dir)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// withFileSize calls do while no file may get larger than size.
func withFileSize(t *testing.T, size uint64, do func() error) error {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	return do()
}

// Raft tries a failed append again, but not from the end that a cut has left, and
// not the cut of a log that a snapshot has replaced.
func TestLogStore_stopsTheNodeWhereRaftWouldNotTryAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps func(s *Store, l *failingLog)
		stops bool
	}{
		{"an append", func(s *Store, l *failingLog) { l.appends = syscall.ENOSPC; _ = s.StoreLog(entry(11, 1)) }, false},
		{"a cut of the beginning", func(s *Store, l *failingLog) { l.cuts = syscall.ENOSPC; _ = s.DeleteRange(1, 4) }, false},
		{"a cut of the end", func(s *Store, l *failingLog) { l.cuts = syscall.ENOSPC; _ = s.DeleteRange(6, 10) }, true},
		{"a cut of all", func(s *Store, l *failingLog) { l.cuts = syscall.ENOSPC; _ = s.DeleteRange(1, 10) }, true},
		{"an append after a cut of the end", func(s *Store, l *failingLog) {
			_ = s.DeleteRange(6, 10)
			l.appends = syscall.ENOSPC
			_ = s.StoreLog(entry(6, 1))
		}, true},
		{"an append after a cut of all for a snapshot", func(s *Store, l *failingLog) {
			s.saved = func() (index, term uint64) { return 14, 1 }
			_ = s.DeleteRange(1, 10)
			l.appends = syscall.ENOSPC
			_ = s.StoreLog(entry(15, 1))
		}, false},
		{"an append after a cut of all that follows a snapshot", func(s *Store, l *failingLog) {
			_ = s.DeleteRange(1, 10)
			l.appends = syscall.ENOSPC
			_ = s.StoreLog(entry(1, 1))
		}, true},
		{"a note that the log is cleared", func(s *Store, l *failingLog) {
			s.clearing = func(uint64) error { return syscall.ENOSPC }
			_ = s.DeleteRange(1, 10)
		}, true},
		{"an append after one that followed a cut", func(s *Store, l *failingLog) {
			_ = s.DeleteRange(6, 10)
			_ = s.StoreLog(entry(6, 1))
			l.appends = syscall.ENOSPC
			_ = s.StoreLog(entry(7, 1))
		}, false},
		{"an append to a damaged log", func(s *Store, l *failingLog) { l.appends = raftfsm.ErrDamaged; _ = s.StoreLog(entry(11, 1)) }, true},
	} {
		var failure error
		s, err := Open(Config{Dir: t.TempDir(), Kind: WAL, SegmentSize: testSegmentSize, Logger: quiet(), Fail: func(err error) { failure = err }})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(10) {
			if err := s.StoreLog(entry(i+1, 10)); err != nil {
				t.Fatal(err)
			}
		}
		s.KeepAfter(10)
		l := &failingLog{LogStore: s.LogStore}
		s.LogStore = l
		tt.steps(s, l)
		if stops := failure != nil; stops != tt.stops {
			t.Errorf("%s fails: stopped with %v", tt.name, failure)
		} else if stops && !errors.Is(failure, raftfsm.ErrDamaged) && !strings.Contains(failure.Error(), "start the node again") {
			t.Errorf("%s: no remedy: %v", tt.name, failure)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReconcile(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, last uint64 // of the log, term 1
		manifest    storage.SnapshotMeta
		cleared     uint64
		wantFirst   uint64
		wantLast    uint64
		want        error
	}{
		{name: "an empty log", manifest: storage.SnapshotMeta{Index: 9, Term: 1}},
		{name: "nothing flushed yet", first: 1, last: 5, wantFirst: 1, wantLast: 5},
		{name: "flushed within the log", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 6, Term: 1}, wantFirst: 3, wantLast: 9},
		{name: "flushed at its end", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 9, Term: 1}, wantFirst: 3, wantLast: 9},
		{name: "cut right behind the flush", first: 7, last: 9, manifest: storage.SnapshotMeta{Index: 6, Term: 1}, wantFirst: 7, wantLast: 9},
		{name: "received beyond its end", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 10, Term: 1}},
		{name: "received over another history", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 6, Term: 2}},
		{name: "schedule lost", first: 3, last: 9, want: raftfsm.ErrDamaged},
		{name: "schedule too old", first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 1, Term: 1}, want: raftfsm.ErrDamaged},
		{name: "an empty log, once cleared", cleared: 9, manifest: storage.SnapshotMeta{Index: 9, Term: 1}},
		{name: "schedule lost beside an empty log", cleared: 9, want: raftfsm.ErrDamaged},
		{name: "schedule too old beside an empty log", cleared: 9, manifest: storage.SnapshotMeta{Index: 8, Term: 1}, want: raftfsm.ErrDamaged},
		{name: "both too old", cleared: 12, first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 6, Term: 1}, want: raftfsm.ErrDamaged},
		{name: "gone on since the log was cleared", cleared: 2, first: 3, last: 9, manifest: storage.SnapshotMeta{Index: 2, Term: 1}, wantFirst: 3, wantLast: 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Open(Config{Dir: t.TempDir(), Kind: WAL, SegmentSize: testSegmentSize, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for i := tt.first; i <= tt.last && tt.last > 0; i++ {
				if err := s.StoreLog(entry(i, 100)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.reconcile(tt.manifest, tt.cleared); !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			} else if err != nil {
				return
			}
			first, _ := s.FirstIndex()
			last, _ := s.LastIndex()
			if first != tt.wantFirst || last != tt.wantLast {
				t.Errorf("log %d to %d, want %d to %d", first, last, tt.wantFirst, tt.wantLast)
			}
			if err := s.StoreLog(entry(max(last, tt.manifest.Index)+1, 10)); err != nil {
				t.Errorf("the next entry: %v", err)
			}
		})
	}
}

// Raft cuts a number of entries back from the log's end, which has moved on.
func TestLogStore_isCutNoFurtherThanAllowed(t *testing.T) {
	for _, kind := range []string{WAL, BoltDB} {
		s, err := Open(Config{Dir: t.TempDir(), Kind: kind, SegmentSize: testSegmentSize, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range uint64(20) {
			if err := s.StoreLog(entry(i+1, 100)); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct{ floor, from, to, wantFirst, wantLast uint64 }{
			{0, 1, 5, 1, 20},
			{5, 1, 3, 4, 20},
			{5, 4, 9, 6, 20},
			{5, 6, 9, 6, 20},
			{5, 18, 20, 6, 17}, // the end differs from the leader's
			{5, 6, 17, 0, 0},   // a snapshot was received
		} {
			s.KeepAfter(step.floor)
			if err := s.DeleteRange(step.from, step.to); err != nil {
				t.Fatal(err)
			}
			first, _ := s.FirstIndex()
			if last, _ := s.LastIndex(); first != step.wantFirst || last != step.wantLast {
				t.Errorf("%s, cut %+v: it has %d to %d", kind, step, first, last)
			}
		}
	}
}
