package raftfsm

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
)

// BenchmarkHalf prints what the disk holds of two million messages of 100 bytes with ids, of what is left when half of
// them, and nine of ten, are cancelled, or delivered, and all is merged; and how long Apply was stopped at most by one of the
// first 300,000 of these commands, or by the beginning of a flush, while flushes and merges went on. That is what it took
// without what other work on the machine had of the processor. Beside it: a loop of as long, in turn with each command,
// which needs nobody: Go's scheduler stops it as well. Of both it says in how many stops somebody waited for a lock
// or the collector.
func BenchmarkHalf(b *testing.B) {
	const count = 2_000_000
	for _, way := range []string{"cancelled", "delivered at random", "delivered by due time"} {
		b.Run(way, func(b *testing.B) {
			for range b.N {
				benchHalf(b, way, count)
			}
		})
	}
}

func benchHalf(b *testing.B, way string, count int) {
	store := openStore(b, b.TempDir())
	defer store.Close()
	f := NewFSM(store, fsmConfig(1<<40, func(err error) { b.Errorf("failed: %v", err) }))
	f.cfg.Understands = storage.LevelThree
	apply(b, f, RaiseLevel{Level: storage.LevelThree})
	apply(b, f, OpenIDs{})
	w := writer{b: b, fsm: f, done: make(chan error, 1), clock: newClock(b)}
	w.done <- nil
	const batch = 500
	for first := 0; first < count; first += batch {
		c := Operate{Time: 1}
		for i := first; i < first+batch; i++ {
			e := storage.Entry{Due: dueOf(i), Target: "orders", Topic: "orders.delay", ID: idOf(i), Body: make([]byte, 100)}
			c.Operations = append(c.Operations, Operation{Verb: Schedule, Entry: e})
		}
		w.apply(c)
		w.flushAfter(32 << 20)
	}
	w.settle()
	before := store.Stats().SegmentBytes

	end := func(some []int) Command {
		c := Operate{Time: 1}
		var ack Ack
		for _, i := range some {
			ack.Runs = append(ack.Runs, storage.SeqRun{First: uint64(i + 1), Last: uint64(i + 1)})
			c.Operations = append(c.Operations, Operation{Verb: Cancel, Entry: storage.Entry{Topic: "orders.delay", ID: idOf(i)}})
		}
		if way == "cancelled" {
			return c
		}
		slices.SortFunc(ack.Runs, func(a, b storage.SeqRun) int { return cmp.Compare(a.First, b.First) })
		return ack
	}
	// Flushes go by what has ended, not by bytes of log, of which a cancel takes several times as many as a delivery:
	// how much of a file is alive when it is written anew decides how much of it is dead in the end. For the same reason
	// merges come to their end after each flush once nothing is timed.
	const flushEach = 30_000
	order, timed := orderOf(way, count), 300_000
	var stopped, ofNothing stops
	for at, i := range order[:timed] {
		took := w.apply(end([]int{i}))
		stopped.note(took, w.clock)
		ofNothing.note(w.nothing(min(took, time.Millisecond)), w.clock)
		if at%flushEach == flushEach-1 {
			stopped.note(w.flushAfter(0), w.clock)
		}
	}
	stopped.report(b, "")
	ofNothing.report(b, "_of_nothing")
	for _, until := range []int{count / 2, count / 10 * 9} {
		for some := range slices.Chunk(order[timed:until], 100_000) {
			for some := range slices.Chunk(some, batch) {
				w.apply(end(some))
			}
			w.settle()
		}
		timed = until
		w.settle()
		b.ReportMetric(float64(store.Stats().SegmentBytes)/1e6, fmt.Sprintf("MB_of_%d%%", 100*(count-until)/count))
	}
	if left := store.Pending(); left != uint64(count/10) {
		b.Fatalf("%d are pending", left)
	}
	w.settle()
	b.ReportMetric(float64(before)/1e6, "MB_of_100%")
	b.ReportMetric(float64(w.flushes), "flushes")
	b.ReportMetric(0, "ns/op")
}

func dueOf(i int) int64 { return 1_000_000 + int64(i)*7919%86_400_000 }

func idOf(i int) string { return fmt.Sprintf("order-%012d", i) }

// orderOf returns count messages in the order in which they end.
func orderOf(way string, count int) []int {
	all := rand.New(rand.NewPCG(1, 2)).Perm(count)
	if way == "delivered by due time" {
		slices.SortFunc(all, func(a, b int) int { return cmp.Compare(dueOf(a), dueOf(b)) })
	}
	return all
}

// A writer applies commands and flushes and merges meanwhile, as a node does.
type writer struct {
	b       *testing.B
	fsm     *FSM
	unsaved int
	done    chan error // tells how the last flush, with the merges after it, ended
	flushes int
	clock   *clock
}

// apply returns how long it took.
func (w *writer) apply(c Command) time.Duration {
	data := c.append(nil)
	w.unsaved += len(data)
	w.clock.start()
	if res, ok := w.fsm.Apply(&raft.Log{Index: w.fsm.applied + 1, Term: 1, Data: data}).(Result); !ok {
		w.b.Fatal(res, w.fsm.broken)
	}
	return w.clock.stop()
}

// nothing runs for some time, and returns how long that took.
func (w *writer) nothing(length time.Duration) time.Duration {
	w.clock.start()
	for began := time.Now(); time.Since(began) < length; {
	}
	return w.clock.stop()
}

// flushAfter begins a flush if so much is not saved and none is under way, and returns for how long nothing could be applied.
func (w *writer) flushAfter(bytes int) time.Duration {
	if w.unsaved < bytes {
		return 0
	}
	select {
	case err := <-w.done:
		if err != nil {
			w.b.Fatal(err)
		}
	default:
		return 0
	}
	store := w.fsm.store
	w.clock.start()
	frozen, meta := store.Freeze(), storage.SnapshotMeta{Index: w.fsm.applied, Term: 1}
	took := w.clock.stop()
	w.unsaved = 0
	w.flushes++
	go func() {
		err := frozen.Flush(meta)
		for did := true; did && err == nil; {
			did, err = store.Merge(w.b.Context())
		}
		w.done <- err
	}()
	return took
}

// settle returns when all is flushed and merged.
func (w *writer) settle() {
	for range 2 {
		if err := <-w.done; err != nil {
			w.b.Fatal(err)
		}
		w.done <- nil
		w.flushAfter(0)
	}
	if err := <-w.done; err != nil {
		w.b.Fatal(err)
	}
	w.done <- nil
}

// stops are how long Apply was stopped.
type stops struct {
	longest time.Duration
	over    int // 5 ms
	heldUp  int // of these, in which a lock was waited for in this process, or the collector held it up
}

func (s *stops) note(took time.Duration, by *clock) {
	s.longest = max(s.longest, took)
	if took <= 5*time.Millisecond {
		return
	}
	if s.over++; by.heldUp > time.Millisecond {
		s.heldUp++
	}
}

func (s *stops) report(b *testing.B, of string) {
	b.ReportMetric(float64(s.longest.Microseconds())/1000, "ms_longest"+of)
	b.ReportMetric(float64(s.over), "over_5ms"+of)
	b.ReportMetric(float64(s.heldUp), "over_5ms_held_up"+of)
}

// A clock measures how long this thread runs or waits, but not for a processor that others have.
type clock struct {
	b      *testing.B
	stat   *os.File
	began  time.Time
	stole  time.Duration
	waits  []metrics.Sample
	before time.Duration // of all that waits say
	heldUp time.Duration // of these between the last start and stop
}

// newClock binds the goroutine to its thread, until the benchmark ends.
func newClock(b *testing.B) *clock {
	runtime.LockOSThread()
	b.Cleanup(runtime.UnlockOSThread)
	stat, err := os.Open("/proc/thread-self/schedstat")
	if err != nil {
		b.Skip("the kernel does not say how long a thread waits for a processor")
	}
	b.Cleanup(func() { stat.Close() })
	return &clock{b: b, stat: stat, waits: []metrics.Sample{
		{Name: "/sync/mutex/wait/total:seconds"}, {Name: "/cpu/classes/gc/mark/assist:cpu-seconds"}, {Name: "/cpu/classes/gc/pause:cpu-seconds"},
	}}
}

func (c *clock) start() {
	c.before = c.waited()
	c.stole, c.began = c.stolen(), time.Now()
}

func (c *clock) stop() time.Duration {
	took := time.Since(c.began)
	took = max(0, took-(c.stolen()-c.stole))
	c.heldUp = c.waited() - c.before
	return took
}

// waited returns how long all goroutines have waited for locks and the collector so far.
func (c *clock) waited() (sum time.Duration) {
	metrics.Read(c.waits)
	for _, w := range c.waits {
		sum += time.Duration(w.Value.Float64() * float64(time.Second))
	}
	return sum
}

// stolen returns for how long the thread was ready to run and did not, so far.
func (c *clock) stolen() time.Duration {
	var text [128]byte
	n, err := c.stat.ReadAt(text[:], 0)
	fields := strings.Fields(string(text[:n]))
	if len(fields) != 3 {
		c.b.Fatalf("%q, %v", text[:n], err)
	}
	waited, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		c.b.Fatal(err)
	}
	return time.Duration(waited)
}
