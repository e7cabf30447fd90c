package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Each benchmark does its whole job once per iteration and prints figures of its
// own: run with -benchtime 1x.

const (
	million  = 1_000_000
	day      = 24 * 60 * 60 * 1000
	perBatch = 512
	// flushBytes is what a node freezes after, in bodies.
	flushBytes = 64 << 20
)

// load accepts n messages due at random within span ms in batches, as Apply does, number i dressed by dress,
// and flushes in the background each time flushBytes were accepted. Each of before sees a batch first.
func load(b *testing.B, s *Store, n, size int, span int64, dress func(i int, e *Entry), before ...func(batch []Entry)) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	flushed := make(chan error, 1)
	flushed <- nil
	gathered, index := 0, uint64(0)
	freeze := func() {
		if err := <-flushed; err != nil {
			b.Fatal(err)
		}
		f, at := s.Freeze(), index
		go func() { flushed <- f.Flush(SnapshotMeta{Index: at, Term: 1}) }()
		gathered = 0
	}
	for done := 0; done < n; done += perBatch {
		batch := make([]Entry, min(perBatch, n-done))
		log := make([]byte, len(batch)*size) // one log entry holds the batch's bodies
		for i := range batch {
			batch[i] = Entry{Due: random.Int64N(span), Body: log[i*size : (i+1)*size : (i+1)*size]}
			dress(done+i, &batch[i])
		}
		for _, see := range before {
			see(batch)
		}
		s.Accept(batch)
		index++
		s.Applied(index)
		if gathered += len(log); gathered >= flushBytes {
			freeze()
		}
	}
	freeze()
	if err := <-flushed; err != nil {
		b.Fatal(err)
	}
}

func oneTarget(_ int, e *Entry) { e.Target = "orders" }

func benchStore(b *testing.B, dir string) *Store {
	b.Helper()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func loaded(b *testing.B, n, size int, span int64) (s *Store, dir string) {
	b.Helper()
	dir = b.TempDir()
	s = benchStore(b, dir)
	load(b, s, n, size, span, oneTarget)
	b.Cleanup(func() { s.Close() })
	return s, dir
}

func BenchmarkApplyAndFlush(b *testing.B) {
	for _, c := range []struct {
		name    string
		n, size int
		span    int64
	}{
		{"1M_x_1KB_over_24h", million, 1024, day},
		{"1M_x_1KB_over_a_year", million, 1024, 365 * day},
		{"5M_x_100B_over_24h", 5 * million, 100, day},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				s := benchStore(b, b.TempDir())
				started, spent := time.Now(), processorTime(b)
				load(b, s, c.n, c.size, c.span, oneTarget)
				b.ReportMetric(float64(c.n)/time.Since(started).Seconds(), "msg/s")
				b.ReportMetric(float64((processorTime(b)-spent).Nanoseconds())/1000/float64(c.n), "cpu_us/msg")
				st := s.Stats()
				b.ReportMetric(float64(st.SegmentBytes)/float64(c.n*c.size), "disk_bytes/byte")
				b.ReportMetric(float64(st.Segments), "segments")
				started = time.Now()
				for {
					did, err := s.Merge(context.Background())
					if err != nil {
						b.Fatal(err)
					}
					if !did {
						break
					}
				}
				b.ReportMetric(time.Since(started).Seconds(), "merge_s")
				s.Close()
			}
		})
	}
}

func BenchmarkPending_1M_x_100B(b *testing.B) {
	for range b.N {
		debug.FreeOSMemory()
		before := anonymousRSS(b)
		s, dir := loaded(b, million, 100, day)
		after := anonymousRSS(b)
		debug.FreeOSMemory()
		b.ReportMetric(float64(after-before)/1e6, "MB_anon_after_load")
		b.ReportMetric(float64(anonymousRSS(b)-before)/1e6, "MB_anon_after_gc")
		s.Close()
		started := time.Now()
		s = benchStore(b, dir)
		b.ReportMetric(float64(time.Since(started).Microseconds())/1000, "restart_ms")
		s.Close()
	}
}

func BenchmarkScan(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
		n    int
		span int64
	}{
		{"1M_x_1KB_over_24h", 1024, million, day},
		{"10M_x_100B_in_a_minute", 100, 10 * million, 60_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, _ := loaded(b, c.n, c.size, c.span)
			b.ResetTimer()
			for range b.N {
				started := time.Now()
				got, calls := 0, 0
				var from Ref
				var buf []Item
				for done := false; !done; calls++ {
					var err error
					if buf, from, done, err = s.Scan(from, Ref{}, 4096, nil, buf[:0]); err != nil {
						b.Fatal(err)
					}
					got += len(buf)
				}
				if got != c.n {
					b.Fatalf("scanned %d of %d", got, c.n)
				}
				b.ReportMetric(float64(got)/time.Since(started).Seconds(), "msg/s")
				b.ReportMetric(float64(s.Stats().Segments), "segments")
			}
		})
	}
}

func BenchmarkRead_in_order(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, batch := range []int{16, 256} {
			b.Run(fmt.Sprintf("1M_x_%dB_%d_at_a_time", size, batch), func(b *testing.B) {
				s, _ := loaded(b, million, size, day)
				b.ResetTimer()
				for range b.N {
					readAll(b, s, batch)
				}
			})
		}
	}
}

// What is due for a thousand targets is read for each of them on its own, while others read from the same chunks.
func BenchmarkRead_for_1000_targets(b *testing.B) {
	s := benchStore(b, b.TempDir())
	b.Cleanup(func() { s.Close() })
	load(b, s, 400_000, 100, 1000, func(i int, e *Entry) { e.Target = fmt.Sprintf("customer-%08d.replies", i%1000) })
	for range b.N {
		readAll(b, s, 64)
	}
}

// readAll reads what there is, each target's on its own, as lanes do.
func readAll(b *testing.B, s *Store, batch int) {
	b.Helper()
	refs := make(map[string][]Ref)
	var items []Item
	var from Ref
	for done := false; !done; {
		var err error
		if items, from, done, err = s.Scan(from, Ref{}, 4096, nil, items[:0]); err != nil {
			b.Fatal(err)
		}
		for _, it := range items {
			refs[it.Target] = append(refs[it.Target], it.Ref)
		}
	}
	started, spent, n := time.Now(), processorTime(b), 0
	var out []Entry
	for len(refs) > 0 { // each its next batch, in turn
		for target, waiting := range refs {
			some := waiting[:min(batch, len(waiting))]
			var err error
			if out, err = s.Read(some, out[:0]); err != nil {
				b.Fatal(err)
			}
			if n += len(some); len(some) == len(waiting) {
				delete(refs, target)
				continue
			}
			refs[target] = waiting[len(some):]
		}
	}
	b.ReportMetric(float64(n)/time.Since(started).Seconds(), "msg/s")
	b.ReportMetric(float64((processorTime(b)-spent).Nanoseconds())/1000/float64(n), "cpu_us/msg")
}

func BenchmarkKill_10M_in_runs_of_1M(b *testing.B) {
	s, _ := loaded(b, 10*million, 10, day)
	b.ResetTimer()
	for range b.N {
		started := time.Now()
		for first := uint64(1); first < 10*million; first += million {
			s.Kill([]SeqRun{{first, first + million - 1}})
		}
		b.ReportMetric(float64(time.Since(started).Microseconds())/1000, "ms")
	}
}

// processorTime is what the process has used: on a busy machine it says more than
// the clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// anonymousRSS is the memory that the process itself holds, without mapped files.
func anonymousRSS(b *testing.B) int64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc/self/status on this system")
	}
	for line := range strings.Lines(string(status)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kb); n == 1 {
			return kb * 1024
		}
	}
	b.Fatal("no RssAnon in /proc/self/status")
	return 0
}
