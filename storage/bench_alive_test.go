//go:build linux

package storage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage/memtable"
	"github.com/carillonmq/carillon/storage/segment"
	"golang.org/x/sys/unix"
)

// BenchmarkAlive_scattered prints what the alive-set costs a node where many wait,
// one in a hundred seqs is alive, and kills come at random: the bytes written
// beside those flushed, from one fold to the next, how long Freeze stops Apply, the
// memory, and the time to read it at a start. Each flush is of 32 MB in messages
// of 1 KB, and as many die.
func BenchmarkAlive_scattered(b *testing.B) {
	for _, pending := range []int{20 * million, 100 * million} {
		b.Run(fmt.Sprintf("%dM_pending", pending/million), func(b *testing.B) {
			for range b.N {
				scatter(b, pending)
			}
		})
	}
}

func scatter(b *testing.B, pending int) {
	s := benchStore(b, b.TempDir())
	defer s.Close()
	random := rand.New(rand.NewPCG(1, 2))
	seq := uint64(1)
	for range pending {
		seq += 1 + random.Uint64N(199)
		s.alive.AddRange(seq, seq)
	}
	s.values.nextSeq = seq + 1
	s.table = memtable.New(s.values.nextSeq)
	s.RaiseLevel(LevelTwo)
	s.Applied(1)
	flush(b, s, 1) // the base
	l := scatterLoad{store: s, random: random}
	l.restart(b)

	for l.folds < 2 { // the first cycle finds its pace
		if l.folds == 1 && l.flushed == 0 {
			l.startedAt = writtenBytes(b)
		}
		l.step(b)
	}
	b.ReportMetric(float64(l.flushes), "flushes_in_a_fold")
	b.ReportMetric(100*float64(writtenBytes(b)-l.startedAt-l.flushed)/float64(l.flushed), "%_beside_flushed")
	b.ReportMetric(float64(l.stopped.Microseconds())/1000, "ms_longest_freeze")
	b.ReportMetric(float64(l.stoppedCPU.Nanoseconds())/1e6, "cpu_ms_longest_freeze")
	slices.Sort(l.killed)
	b.ReportMetric(float64(l.killed[len(l.killed)/2].Nanoseconds())/100, "ns_a_kill_p50")
	b.ReportMetric(float64(l.killed[len(l.killed)*99/100].Nanoseconds())/100, "ns_a_kill_p99")
	b.ReportMetric(float64(l.planned.Microseconds())/1000, "ms_longest_count_of_live_bytes")
	b.ReportMetric(float64(l.memory)/1e6, "MB_anon_at_most")
	b.ReportMetric(float64(l.opened.Microseconds())/1000, "ms_to_load")
	b.ReportMetric(float64(l.openedCPU.Microseconds())/1000, "cpu_ms_to_load")
}

type scatterLoad struct {
	store  *Store
	random *rand.Rand
	index  uint64

	folds, flushes     int
	flushed, startedAt int64
	memory             int64
	stopped, planned   time.Duration   // at most
	stoppedCPU         time.Duration   // the same, without what the kernel gave to others meanwhile
	killed             []time.Duration // for each hundred
	opened, openedCPU  time.Duration   // just before the last fold
}

// restart gives the store the set as a start reads it.
func (l *scatterLoad) restart(b *testing.B) {
	s := l.store
	set, err := s.manifest.sets.Load(s.manifest.current.stored)
	if err != nil {
		b.Fatal(err)
	}
	s.manifest.current.alive, s.alive = set, set.Thaw()
	debug.FreeOSMemory()
}

// step accepts and kills 32 MB, flushes and merges.
func (l *scatterLoad) step(b *testing.B) {
	s := l.store
	for range 32 << 10 / 100 {
		batch := make([]Entry, 100)
		for i := range batch {
			batch[i] = Entry{Due: l.random.Int64N(day), Target: "orders", Body: make([]byte, 1024)}
		}
		s.Accept(batch)
		runs := make([]SeqRun, 100)
		for i := range runs {
			seq := l.anyAlive()
			runs[i] = SeqRun{seq, seq}
		}
		began := time.Now()
		s.Kill(runs)
		l.killed = append(l.killed, time.Since(began))
	}
	l.index++
	s.Applied(1 + l.index)
	runtime.LockOSThread()
	began, spent := time.Now(), threadTime(b)
	f := s.Freeze()
	l.stopped, l.stoppedCPU = max(l.stopped, time.Since(began)), max(l.stoppedCPU, threadTime(b)-spent)
	runtime.UnlockOSThread()
	l.memory = max(l.memory, anonymousRSS(b))
	before := s.Stats().SegmentBytes
	if err := f.Flush(SnapshotMeta{Index: 1 + l.index, Term: 1}); err != nil {
		b.Fatal(err)
	}
	l.flushed += s.Stats().SegmentBytes - before
	l.flushes++
	f = nil
	l.memory = max(l.memory, anonymousRSS(b))
	debug.FreeOSMemory() // as a node does
	l.merge(b)
}

// merge folds if that is due. Segments are left alone: their cost is another
// benchmark's.
func (l *scatterLoad) merge(b *testing.B) {
	s := l.store
	counted := time.Now()
	from := s.pinToMerge()
	defer segment.ReleaseAll(from.segments)
	for _, g := range from.segments {
		s.planner.LiveBytes(b.Context(), g, from.alive)
	}
	l.planned = max(l.planned, time.Since(counted))
	if !from.shouldFold() {
		return
	}
	began, spent := time.Now(), processorTime(b)
	if _, err := s.manifest.sets.Load(from.stored); err != nil {
		b.Fatal(err)
	}
	l.opened, l.openedCPU = time.Since(began), processorTime(b)-spent
	debug.FreeOSMemory()
	if err := s.fold(b.Context(), &from); err != nil {
		b.Fatal(err)
	}
	l.memory = max(l.memory, anonymousRSS(b))
	debug.FreeOSMemory()
	l.folds++
	if l.folds == 1 {
		l.flushes, l.flushed, l.memory = 0, 0, 0
	}
}

// anyAlive picks a seq, and goes on to the next one of its block that is alive.
func (l *scatterLoad) anyAlive() uint64 {
	for {
		seq := l.random.Uint64N(l.store.values.nextSeq)
		for next := range l.store.alive.Within(seq, seq|0xffff) {
			return next
		}
	}
}

// writtenBytes is what the process has written so far.
func writtenBytes(b *testing.B) (bytes int64) {
	b.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip("no /proc/self/io on this system")
	}
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, "wchar: %d", &bytes); n == 1 {
			return bytes
		}
	}
	return 0
}

// threadTime is the processor time that this thread has used so far.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
