package raftlog

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
)

// The rounds that lock raft-wal v0.4.2 out without walMeta: 12 of 200 closes and
// 2 of 150 kills, when they were counted with 1 MiB segments.
const (
	closeRounds = 200
	killRounds  = 250
)

// walWriterEnv makes the test binary a process that appends until it is killed.
const walWriterEnv = "CARILLON_TEST_WAL_WRITER"

const testSegmentSize = 8 << 10

func quiet() hclog.Logger { return hclog.NewNullLogger() }

func openWAL(t testing.TB, dir string) *wal.WAL {
	t.Helper()
	w, err := wal.Open(dir, wal.WithSegmentSize(testSegmentSize), wal.WithLogger(quiet()), wal.WithMetaStore(&walMeta{files: &walFiles{VFS: fs.New(), dir: dir, logger: quiet()}, logger: quiet()}))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return w
}

func entry(index uint64, size int) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Data: []byte(strings.Repeat(string('a'+rune(index%26)), size))}
}

// checkWAL appends one more entry and reads all back.
func checkWAL(t testing.TB, w *wal.WAL, acknowledged uint64) uint64 {
	t.Helper()
	last, err := w.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	if last < acknowledged {
		t.Fatalf("log ends at %d, %d was acknowledged", last, acknowledged)
	}
	if err := w.StoreLog(entry(last+1, 10)); err != nil {
		t.Fatalf("locked out after %d: %v", last, err)
	}
	first, err := w.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := first; i <= last+1; i++ {
		var l raft.Log
		if err := w.GetLog(i, &l); err != nil || l.Index != i {
			t.Fatalf("entry %d of %d: index %d, %v", i, last+1, l.Index, err)
		}
	}
	if first+40 < last {
		if err := w.DeleteRange(first, last-20); err != nil {
			t.Fatal(err)
		}
	}
	return last + 1
}

func TestWAL_takesAppendsAfterAClose(t *testing.T) {
	dir := t.TempDir()
	last := uint64(0)
	for range closeRounds {
		w := openWAL(t, dir)
		last = checkWAL(t, w, last)
		// The append that fills the segment, and Close at once.
		last++
		if err := w.StoreLog(entry(last, testSegmentSize)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWAL_takesAppendsAfterAKill(t *testing.T) {
	if dir := os.Getenv(walWriterEnv); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	if testing.Short() {
		t.Skip("short: it starts and kills 250 processes")
	}
	dir := t.TempDir()
	acknowledged := uint64(0)
	for round := range killRounds {
		acknowledged = killWriter(t, dir, round, acknowledged)
		w := openWAL(t, dir)
		acknowledged = checkWAL(t, w, acknowledged)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A kill while a segment is made leaves less of it than there was to be. What is appended from then on is there
// at the next start, and at all after it.
func TestWAL_makesASegmentWholeWhoseMakingWasCutShort(t *testing.T) {
	for _, size := range []int64{0, 4096} {
		dir := t.TempDir()
		w := openWAL(t, dir)
		for i := range uint64(3) { // the last fills the segment
			if err := w.StoreLog(entry(i+1, testSegmentSize/3)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // a start makes the segment after it, unless there was time to
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			w = openWAL(t, dir)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		segments, err := filepath.Glob(filepath.Join(dir, "*-*.wal"))
		if err != nil || len(segments) != 2 {
			t.Fatalf("%v, %v", segments, err)
		}
		if err := os.Truncate(segments[1], size); err != nil {
			t.Fatal(err)
		}
		for start := range uint64(3) {
			w := openWAL(t, dir)
			if got := checkWAL(t, w, 3+start); got != 4+start {
				t.Errorf("cut to %d bytes: the log ends at %d after start %d", size, got, start)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// writeUntilKilled prints the index of every entry that is on disk.
func writeUntilKilled(t *testing.T, dir string) {
	w := openWAL(t, dir)
	last, err := w.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := last + 1; ; i++ {
		if err := w.StoreLog(entry(i, testSegmentSize/3)); err != nil {
			t.Fatal(err)
		}
		fmt.Println("wrote", i)
	}
}

// killWriter lets a writer acknowledge some entries and kills it. The third
// entry after a segment begins fills it, so most kills follow a seal closely.
func killWriter(t *testing.T, dir string, round int, acknowledged uint64) uint64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWAL_takesAppendsAfterAKill$")
	cmd.Env = append(os.Environ(), walWriterEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	lines := bufio.NewScanner(out)
	for seen := 0; lines.Scan(); {
		number, ok := strings.CutPrefix(lines.Text(), "wrote ")
		if !ok {
			t.Errorf("writer: %s", lines.Text())
			continue
		}
		acknowledged, err = strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 3+round%6 {
			_ = cmd.Process.Kill()
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("writer was not killed: %v", err)
	}
	return acknowledged
}
