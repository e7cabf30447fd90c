package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage/memtable"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/segment"
	"golang.org/x/sys/unix"
)

// orderID is an id of 18 bytes.
func orderID(i int) string { return "order-" + strconv.Itoa(100_000_000_000+i) }

// Accept alone, per entry: what a memtable takes for an entry with a topic, and with an id.
func BenchmarkAccept(b *testing.B) {
	for _, c := range []struct {
		name      string
		topic, id bool
	}{{"plain", false, false}, {"topic", true, false}, {"id", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			s := benchStore(b, b.TempDir())
			defer s.Close()
			s.RaiseLevel(LevelThree)
			s.Applied(1)
			flush(b, s, 1)
			body := make([]byte, 100)
			batch := make([]Entry, perBatch)
			for done := 0; done < b.N; done += perBatch {
				b.StopTimer()
				if done%(256*perBatch) == 0 { // a memtable does not grow forever
					if err := s.Reload(); err != nil {
						b.Fatal(err)
					}
				}
				for i := range batch {
					at := done + i
					batch[i] = Entry{Due: int64(at*7919) % day, Target: "orders", Body: body}
					if c.topic {
						batch[i].Topic = "orders.delay"
					}
					if c.id {
						batch[i].ID = orderID(at)
					}
				}
				b.StartTimer()
				s.Accept(batch)
			}
		})
	}
}

// The whole way of messages with ids, beside that of messages without: each is looked up, as Apply
// does, accepted and flushed.
func BenchmarkIDs_acceptAndFlush(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("1M_x_%dB", size), func(b *testing.B) {
			for range b.N {
				var took, spent [2]time.Duration
				var disk [2]int64
				for round := range 4 {
					with := round % 2
					s := benchStore(b, b.TempDir())
					s.RaiseLevel(LevelThree)
					started, before := time.Now(), processorTime(b)
					load(b, s, million, size, day, func(i int, e *Entry) {
						e.Target, e.Topic = "orders", "orders.delay"
						if id := orderID(i); with == 1 {
							e.ID = id
						}
					}, lookUpNew(b, s))
					took[with], spent[with] = took[with]+time.Since(started), spent[with]+processorTime(b)-before
					disk[with] = s.Stats().SegmentBytes
					s.Close()
				}
				b.ReportMetric(2*million/took[0].Seconds(), "msg/s_without")
				b.ReportMetric(2*million/took[1].Seconds(), "msg/s_with")
				b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "with/without")
				b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "cpu_with/without")
				b.ReportMetric(float64(disk[1]-disk[0])/million-float64(len(orderID(0))), "disk_bytes/id")
			}
		})
	}
}

// lookUpNew returns what looks up those of a batch that have an id, as Apply does, and finds none.
func lookUpNew(b *testing.B, s *Store) func(batch []Entry) {
	var names []name.Hash
	var fresh []bool
	return func(batch []Entry) {
		names = names[:0]
		for i := range batch {
			if e := &batch[i]; e.ID != "" {
				e.Name = name.Of(e.Topic, e.ID)
				names = append(names, e.Name)
			}
		}
		fresh = s.Fresh(names, fresh[:0])
		for i := range names {
			if fresh[i] {
				continue
			}
			if found, ended, err := s.Newest(&batch[i]); found.Seq != 0 || ended.Seq != 0 || err != nil {
				b.Fatal(batch[i].ID, found, err)
			}
		}
	}
}

// Twenty segments of a hundred thousand messages with ids: looking up one that is there, one that
// is not, and both with nothing in the page cache.
func BenchmarkLookup_in_20_segments(b *testing.B) {
	const segments, each = 20, 100_000
	dir := b.TempDir()
	s := benchStore(b, dir)
	s.RaiseLevel(LevelThree)
	for g := range segments {
		for at := 0; at < each; at += 500 {
			batch := make([]Entry, 500)
			for i := range batch {
				n := g*each + at + i
				batch[i] = Entry{Due: int64(n*7919) % day, Target: "orders", Topic: "orders.delay", ID: orderID(n), Body: make([]byte, 100)}
			}
			s.Accept(batch)
		}
		flush(b, s, uint64(g+1))
	}
	for _, c := range []struct {
		name  string
		first int
		ok    bool
		cold  bool
	}{{"there", 0, true, false}, {"not_there", segments * each, false, false}, {"there_cold", 0, true, true}} {
		b.Run(c.name, func(b *testing.B) {
			if c.cold {
				s.Close()
				forget(b, dir)
				s = benchStore(b, dir)
			}
			var times []time.Duration
			for i := range 10_000 {
				id := orderID(c.first + i*7919%(segments*each))
				started := time.Now()
				_, ok, err := s.Lookup("orders.delay", id)
				times = append(times, time.Since(started))
				if ok != c.ok || err != nil {
					b.Fatal(id, ok, err)
				}
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1000, "us_median")
			b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1000, "us_p99")
		})
	}
	s.Close()
}

// forget has the kernel drop what it has read of the segments and the alive-set.
func forget(b *testing.B, dir string) {
	b.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			b.Fatal(err)
		}
		file.Close()
	}
}

// Memory and room of many ids, beside as many messages without: 20 million, or as many millions as
// CARILLON_IDS says. All is merged as it comes. At the end, what a start takes to open all of it, from memory and from
// the disk. The last time as many others are alive, one seq in a hundred, which is the most that an alive-set of their
// number takes; they have no ids.
func BenchmarkIDs_pending(b *testing.B) {
	n := 20 * million
	if text := os.Getenv("CARILLON_IDS"); text != "" {
		millions, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		n = millions * million
	}
	var disk [3]int64
	for i, name := range []string{"without", "with", "with_beside_scattered"} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				disk[i] = pendingIDs(b, n, i > 0, i > 1)
				if i == 1 {
					b.ReportMetric(float64(disk[1]-disk[0])/float64(n)-float64(len(orderID(0))), "disk_bytes/id")
				}
			}
		})
	}
}

// scatterAlive makes n further messages alive, one seq in a hundred, in a file of their own.
func scatterAlive(b *testing.B, s *Store, n int) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	span := SeqRun{First: s.NextSeq(), Last: s.NextSeq()}
	written, err := s.writeSegment(segment.WithIDs, SeqRun{First: span.First, Last: span.First + 200*uint64(n)}, uint64(n), func(w *segment.Writer) error {
		for range n {
			span.Last += 1 + random.Uint64N(199)
			s.alive.AddRange(span.Last, span.Last)
			if err := w.Add(&Entry{Due: day, Seq: span.Last, Target: "orders", Topic: "orders.delay"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	s.values.nextSeq = span.First + 200*uint64(n) + 1
	s.table = memtable.New(s.values.nextSeq)
	at := s.State().AppliedIndex + 1
	s.Applied(at)
	before, err := s.Freeze().name(written, SnapshotMeta{Index: at, Term: 1})
	segment.ReleaseAll(before)
	from := s.manifest.current
	if err = errors.Join(err, s.fold(context.Background(), &from)); err != nil { // else all of it were one change
		b.Fatal(err)
	}
}

func pendingIDs(b *testing.B, n int, with, beside bool) (disk int64) {
	dir, err := os.MkdirTemp("", "pending")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	debug.FreeOSMemory()
	before := anonymousRSS(b)
	s := benchStore(b, dir)
	defer func() { s.Close() }()
	s.RaiseLevel(LevelThree)
	most := int64(0)
	for done := 0; done < n; done += million {
		load(b, s, min(million, n-done), 32, day, func(i int, e *Entry) {
			e.Target, e.Topic = "orders", "orders.delay"
			if with {
				e.ID = orderID(done + i)
			}
		})
		for did, err := true, error(nil); did; most = max(most, anonymousRSS(b)-before) {
			if did, err = s.Merge(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	debug.FreeOSMemory()
	st := s.Stats()
	b.ReportMetric(float64(most)/1e6, "MB_anon_most")
	b.ReportMetric(float64(anonymousRSS(b)-before)/1e6, "MB_anon_after_gc")
	b.ReportMetric(float64(st.SegmentBytes)/float64(n), "disk_bytes/msg")
	b.ReportMetric(float64(st.Segments), "segments")
	if beside {
		scatterAlive(b, s, n)
	}
	for _, from := range []string{"memory", "disk"} {
		s.Close()
		if from == "disk" {
			forget(b, dir)
		}
		debug.FreeOSMemory()
		started, spent := time.Now(), processorTime(b)
		s = benchStore(b, dir)
		b.ReportMetric(float64(time.Since(started).Microseconds())/1000, "ms_to_open_from_"+from)
		b.ReportMetric(float64((processorTime(b)-spent).Microseconds())/1000, "cpu_ms_to_open_from_"+from)
	}
	return st.SegmentBytes
}
