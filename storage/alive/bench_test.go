//go:build linux

package alive

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkLoad prints what it takes to read the alive-set at a start, one seq in
// a hundred alive: a base, and the changes of as many flushes as come before a fold, in
// each of which 32,768 died at random. The file is in memory ("warm") or is read from
// the disk ("cold"); beside it, what it takes to read the file alone.
func BenchmarkLoad(b *testing.B) {
	for _, millions := range []int{20, 100} {
		b.Run(fmt.Sprintf("%dM_pending", millions), func(b *testing.B) {
			d := Dir{filepath.Join(b.TempDir(), "alive")}
			f := changedFile(b, d, millions*1_000_000, millions*77/100)
			for _, cold := range []bool{false, true} {
				b.Run(map[bool]string{false: "warm", true: "cold"}[cold], func(b *testing.B) {
					best := loadTimes{wall: time.Hour, cpu: time.Hour, read: time.Hour}
					for range b.N {
						best.lower(timeLoad(b, d, f, cold))
					}
					b.ReportMetric(float64(best.wall.Microseconds())/1000, "ms_to_load")
					b.ReportMetric(float64(best.cpu.Microseconds())/1000, "cpu_ms_to_load")
					b.ReportMetric(float64(best.read.Microseconds())/1000, "ms_to_read_the_file")
					b.ReportMetric(float64(f.Size)/1e6, "MB")
				})
			}
		})
	}
}

// changedFile writes a file with a base and changes.
func changedFile(b *testing.B, d Dir, pending, flushes int) File {
	b.Helper()
	random, set, seq := rand.New(rand.NewPCG(1, 2)), NewSet(), uint64(1)
	for range pending {
		seq += 1 + random.Uint64N(199)
		set.AddRange(seq, seq)
	}
	next := seq + 1
	then := set.Freeze()
	f, err := d.Write(1, then, next, nil)
	if err != nil {
		b.Fatal(err)
	}
	for range flushes {
		for range 32 << 10 {
			set.remove(anyOf(set, random, next))
		}
		set.AddRange(next, next+32<<10-1)
		now := set.Freeze()
		piece := EncodeChange(then, now, next, next+32<<10)
		if err := d.Append(f, piece); err != nil {
			b.Fatal(err)
		}
		next += 32 << 10
		f.Size, f.Count, f.Next = f.Size+int64(len(piece)), now.count, next
		then = now
	}
	return f
}

// anyOf picks a block below next, and a seq in it.
func anyOf(set *Set, random *rand.Rand, next uint64) uint64 {
	for {
		seq := random.Uint64N(next)
		b := set.block(seq)
		switch {
		case b == nil:
		case b.isLow():
			return seq&^(blockSeqs-1) | uint64(b.low[random.IntN(len(b.low))])
		case b.contains(uint16(seq)):
			return seq
		}
	}
}

// loadTimes are the shortest of several runs, each for itself.
type loadTimes struct{ wall, cpu, read time.Duration }

func (t *loadTimes) lower(o loadTimes) {
	t.wall, t.cpu, t.read = min(t.wall, o.wall), min(t.cpu, o.cpu), min(t.read, o.read)
}

func timeLoad(b *testing.B, d Dir, f File, cold bool) (t loadTimes) {
	b.Helper()
	prepare := func() time.Time {
		debug.FreeOSMemory()
		if cold {
			dropFromMemory(b, d.PathOf(f.ID))
		}
		return time.Now()
	}
	began := prepare()
	if _, err := os.ReadFile(d.PathOf(f.ID)); err != nil {
		b.Fatal(err)
	}
	t.read = time.Since(began)
	began = prepare()
	spent := usedTime(b)
	if _, err := d.Load(f); err != nil {
		b.Fatal(err)
	}
	t.wall, t.cpu = time.Since(began), usedTime(b)-spent
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

// usedTime is what the process has used: on a busy machine it says more than
// the clock.
func usedTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
