//go:build linux

package storage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkAlive_load prints what it takes to read the alive-set at a start, one seq in
// a hundred alive: a base, and the changes of as many flushes as come before a fold, in
// each of which 32,768 died at random. The file is in memory ("warm") or is read from
// the disk ("cold"); beside it, what it takes to read the file alone.
func BenchmarkAlive_load(b *testing.B) {
	for _, pending := range []int{20 * million, 100 * million} {
		b.Run(fmt.Sprintf("%dM_pending", pending/million), func(b *testing.B) {
			s := benchStore(b, b.TempDir())
			defer s.Close()
			f := changedAlive(b, s.manifest, pending, pending*77/100/million)
			for _, cold := range []bool{false, true} {
				b.Run(map[bool]string{false: "warm", true: "cold"}[cold], func(b *testing.B) {
					best := loadTimes{wall: time.Hour, cpu: time.Hour, read: time.Hour}
					for range b.N {
						best.lower(loadAlive(b, s.manifest, f, cold))
					}
					b.ReportMetric(float64(best.wall.Microseconds())/1000, "ms_to_load")
					b.ReportMetric(float64(best.cpu.Microseconds())/1000, "cpu_ms_to_load")
					b.ReportMetric(float64(best.read.Microseconds())/1000, "ms_to_read_the_file")
					b.ReportMetric(float64(f.size)/1e6, "MB")
				})
			}
		})
	}
}

// changedAlive writes a file with a base and changes.
func changedAlive(b *testing.B, m *manifest, pending, flushes int) aliveFile {
	b.Helper()
	random, set, seq := rand.New(rand.NewPCG(1, 2)), newAliveSet(), uint64(1)
	for range pending {
		seq += 1 + random.Uint64N(199)
		set.addRange(SeqRun{seq, seq})
	}
	next := seq + 1
	then := set.freeze()
	f, err := m.writeBase(then, next, nil)
	if err != nil {
		b.Fatal(err)
	}
	l := scatterLoad{store: &Store{alive: set, values: values{nextSeq: next}}, random: random}
	for range flushes {
		for range 32 << 10 {
			dead := l.anyAlive()
			set.removeRange(SeqRun{dead, dead})
		}
		set.addRange(SeqRun{next, next + 32<<10 - 1})
		now := set.freeze()
		piece := appendPiece(nil, encodeChange(then, now, next, next+32<<10))
		if err := m.appendAlive(f, piece); err != nil {
			b.Fatal(err)
		}
		next += 32 << 10
		l.store.values.nextSeq = next
		f.size, f.count, f.next = f.size+int64(len(piece)), now.count, next
		then = now
	}
	return f
}

// loadTimes are the shortest of several runs, each for itself.
type loadTimes struct{ wall, cpu, read time.Duration }

func (t *loadTimes) lower(o loadTimes) {
	t.wall, t.cpu, t.read = min(t.wall, o.wall), min(t.cpu, o.cpu), min(t.read, o.read)
}

func loadAlive(b *testing.B, m *manifest, f aliveFile, cold bool) (t loadTimes) {
	b.Helper()
	prepare := func() time.Time {
		debug.FreeOSMemory()
		if cold {
			dropFromMemory(b, m.alivePath(f.id))
		}
		return time.Now()
	}
	began := prepare()
	if _, err := os.ReadFile(m.alivePath(f.id)); err != nil {
		b.Fatal(err)
	}
	t.read = time.Since(began)
	began = prepare()
	spent := processorTime(b)
	if _, err := m.loadAlive(f); err != nil {
		b.Fatal(err)
	}
	t.wall, t.cpu = time.Since(began), processorTime(b)-spent
	return t
}

// dropFromMemory has the next read of the file come from the disk.
func dropFromMemory(b *testing.B, path string) {
	b.Helper()
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		b.Fatal(err)
	}
}
