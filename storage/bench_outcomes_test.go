//go:build linux

package storage

import (
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// BenchmarkOutcomes prints what a million outcomes cost a flush: the bytes written beside
// one in which nothing ends, when 30,000 end in it (32 MB of log in messages of 1 KB) and as
// many are forgotten, and when one does; how long Freeze stops Apply; what the manifest takes;
// and how long a start reads it.
func BenchmarkOutcomes(b *testing.B) {
	for range b.N {
		debug.FreeOSMemory()
		dir := b.TempDir()
		s := benchStore(b, dir)
		defer s.Close()
		l := outcomesLoad{store: s}
		s.RaiseLevel(LevelThree)
		empty := anonymousRSS(b)
		first := l.flush(b, million)
		b.ReportMetric(float64(anonymousRSS(b)-empty)/1e6, "MB_anon_after_first_flush")
		debug.FreeOSMemory() // as a node does
		b.ReportMetric(float64(anonymousRSS(b)-empty)/1e6, "MB_anon_kept")
		b.ReportMetric(float64(first)/million, "B_an_outcome_first_flush")
		none := l.flush(b, 0)
		b.ReportMetric(float64(none), "B_flush_of_none")
		b.ReportMetric(float64(l.flush(b, 1)-none), "B_flush_of_one")
		var written int64
		var freeze, flushed time.Duration
		for range 20 {
			written += l.flush(b, 30_000) - none
			freeze, flushed = max(freeze, l.froze), max(flushed, l.flushed)
		}
		b.ReportMetric(float64(written)/20/1e6, "MB_flush_of_30000")
		b.ReportMetric(float64(freeze.Microseconds()), "us_longest_freeze")
		b.ReportMetric(float64(flushed.Milliseconds()), "ms_longest_flush")
		stat, err := os.Stat(s.manifest.path())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(stat.Size())/1e6, "MB_manifest")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		again, err := Open(Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms_open")
		if err := again.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

type outcomesLoad struct {
	store          *Store
	index, ended   uint64
	froze, flushed time.Duration
}

// flush ends n, and returns the bytes that the flush then writes.
func (l *outcomesLoad) flush(b *testing.B, n int) int64 {
	for range n {
		l.ended++
		o := outcomes.Outcome{
			Name: name.Of("orders.delay", strconv.FormatUint(l.ended, 10)), Kind: outcomes.Delivered, Seq: l.ended, Due: int64(l.ended / 10), At: int64(l.ended/10) + 3,
			Target: [...]string{"orders", "payments", "refunds"}[l.ended%3], Partition: int32(l.ended % 12), Offset: int64(l.ended / 36),
		}
		l.store.End(o)
	}
	l.index++
	l.store.Applied(l.index)
	written := writtenBytes(b)
	began := time.Now()
	f := l.store.Freeze()
	l.froze = time.Since(began)
	if err := f.Flush(SnapshotMeta{Index: l.index, Term: 1}); err != nil {
		b.Fatal(err)
	}
	l.flushed = time.Since(began)
	return writtenBytes(b) - written
}
