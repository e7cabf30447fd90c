package storage

import (
	"math"
	"math/rand/v2"
	"testing"
)

// BenchmarkMerge_space prints how much disk the store takes beside what is alive,
// and what merging writes for it. After each flush of 32 MB some messages are
// delivered and merges run until there is nothing to do.
func BenchmarkMerge_space(b *testing.B) {
	for _, c := range []struct {
		name string
		// waits draws after how many flushes a message is delivered.
		waits func(random *rand.Rand, size int) int
	}{
		{"one_in_a_hundred_stays_the_others_go_within_5", func(r *rand.Rand, _ int) int {
			if r.IntN(100) == 0 {
				return math.MaxInt
			}
			return r.IntN(5)
		}},
		{"small_ones_stay_large_ones_go_within_20", func(r *rand.Rand, size int) int {
			if size < 1000 {
				return math.MaxInt
			}
			return r.IntN(20)
		}},
		{"all_go_within_40", func(r *rand.Rand, _ int) int { return r.IntN(40) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				s := benchStore(b, b.TempDir())
				l := spaceLoad{store: s, random: rand.New(rand.NewPCG(1, 2)), named: make(map[uint64]bool)}
				for range 120 {
					l.step(b, c.waits)
				}
				l.report(b)
				s.Close()
			}
		})
	}
}

type spaceLoad struct {
	store  *Store
	random *rand.Rand
	due    [][]SeqRun // killed after each flush
	sizes  []int      // by seq - 1
	index  uint64
	live   int64
	named  map[uint64]bool // segments seen so far

	flushed, merged  int64
	files            int
	ratio, overSlack float64 // the highest of disk / live, and of (disk - 256 MB) / live
}

func (l *spaceLoad) step(b *testing.B, waits func(*rand.Rand, int) int) {
	now := int(l.index)
	for len(l.due) <= now+1 {
		l.due = append(l.due, nil)
	}
	for gathered := 0; gathered < 32<<20; {
		// From 100 bytes to 100 KB, as many between 1 and 10 as between 10 and 100.
		size := int(100 * math.Pow(10, 3*l.random.Float64()))
		seq := l.store.Accept([]Entry{{Due: l.random.Int64N(day), Target: "orders", Body: make([]byte, size)}})
		l.sizes = append(l.sizes, size)
		l.live += int64(size)
		gathered += size
		if wait := waits(l.random, size); wait < math.MaxInt {
			for len(l.due) <= now+wait {
				l.due = append(l.due, nil)
			}
			l.due[now+wait] = append(l.due[now+wait], SeqRun{seq, seq})
		}
	}
	for _, run := range l.due[now] {
		l.live -= int64(l.sizes[run.First-1])
	}
	l.store.Kill(l.due[now])
	l.index++
	l.store.Applied(l.index)
	flush(b, l.store, l.index)
	l.flushed += l.fresh()
	for {
		did, err := l.store.Merge(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		l.merged += l.fresh()
		if !did {
			break
		}
	}
	st := l.store.Stats()
	l.files = max(l.files, st.Segments)
	l.ratio = max(l.ratio, float64(st.SegmentBytes)/float64(l.live))
	l.overSlack = max(l.overSlack, float64(st.SegmentBytes-256<<20)/float64(l.live))
}

// fresh returns the bytes of segments not seen before.
func (l *spaceLoad) fresh() (bytes int64) {
	for _, g := range l.store.segments {
		if !l.named[g.ID] {
			l.named[g.ID] = true
			bytes += g.Size
		}
	}
	return bytes
}

func (l *spaceLoad) report(b *testing.B) {
	st := l.store.Stats()
	b.ReportMetric(float64(l.flushed)/1e6, "MB_flushed")
	b.ReportMetric(float64(l.merged)/float64(l.flushed), "rewritten/flushed")
	b.ReportMetric(float64(st.SegmentBytes)/1e6, "MB_disk_at_the_end")
	b.ReportMetric(float64(l.live)/1e6, "MB_alive_at_the_end")
	b.ReportMetric(l.ratio, "most_disk/alive")
	b.ReportMetric(l.overSlack, "most_(disk-256MB)/alive")
	b.ReportMetric(float64(l.files), "most_segments")
}
