package storage

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// BenchmarkList_10M: the first page of a list whose filter means one in ten of what is pending, a page from
// the middle, and a histogram by hour and target, the first one after a start with nothing in the page cache, the
// first one after another start, and when what it looks at is in memory.
func BenchmarkList_10M(b *testing.B) {
	dir := b.TempDir()
	s := benchStore(b, dir)
	b.Cleanup(func() { s.Close() })
	s.RaiseLevel(LevelThree)
	load(b, s, 10*million, 100, day, func(i int, e *Entry) { e.Target = fmt.Sprint("target-", i%10) })
	restart := func(cold bool) {
		s.Close()
		if cold {
			forget(b, dir)
		}
		s = benchStore(b, dir)
		s.Accept(entries(million/4, 0, 300, 100)) // in memory
		s.Applied(1 << 30)
	}
	one := func(_ *Moment, e *Entry) bool { return e.Target == "target-3" }
	page := func(from int64) {
		if p, err := s.List(b.Context(), ListQuery{From: Ref{Due: from}, Last: math.MaxInt64, Limit: 100, Keep: one, Bodies: true}); err != nil || len(p.Items) == 0 {
			b.Fatal(len(p.Items), err)
		}
	}
	groups := 0
	histogram := func() {
		t, err := s.Tally(b.Context(), TallyQuery{From: Ref{Due: math.MinInt64}, Last: math.MaxInt64, Sort: func(_ *Moment, e *Entry) (Group, bool) {
			return Group{Bucket: int(e.Due / (60 * 60 * 1000)), Target: e.Target}, true
		}})
		if err != nil {
			b.Fatal(err)
		}
		groups = len(t.Groups)
	}
	median := func(n int, do func(i int)) float64 {
		took := make([]time.Duration, n)
		for i := range took {
			began := time.Now()
			do(i)
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		return float64(took[n/2].Microseconds()) / 1000
	}
	for range b.N {
		restart(true)
		b.ReportMetric(median(1, func(int) { histogram() }), "first_histogram_cold_ms")
		restart(false)
		b.ReportMetric(median(1, func(int) { histogram() }), "first_histogram_ms")
		b.ReportMetric(median(1, func(int) { page(math.MinInt64) }), "first_ever_ms")
		b.ReportMetric(median(51, func(int) { page(math.MinInt64) }), "first_page_ms")
		b.ReportMetric(median(51, func(i int) { page(int64(i) * day / 51) }), "other_page_ms")
		b.ReportMetric(median(21, func(int) { histogram() }), "histogram_ms")
		b.ReportMetric(float64(groups), "groups")
		b.ReportMetric(float64(s.Stats().Segments), "segments")
	}
}
