package segment

import (
	"encoding/binary"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/carillonmq/carillon/storage/name"
)

// Sizes over five decades, dead ones at random: the sample must not be far off,
// whatever lives.
func TestSample_estimatesLiveBytes(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	random := rand.New(rand.NewPCG(5, 6))
	var es []Entry
	for i := range 20_000 {
		size := int(10 * math.Pow(10, 4*math.Pow(random.Float64(), 3)))
		es = append(es, Entry{Due: random.Int64N(day), Seq: uint64(i + 1), Target: "orders", Body: make([]byte, size)})
	}
	g := written(t, es)
	taken, err := g.TakeSample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var bodies int64
	for _, e := range es {
		bodies += int64(len(e.Body)) + 16
	}
	for name, alive := range map[string]func(e *Entry) bool{
		"large":    func(e *Entry) bool { return len(e.Body) > 10_000 },
		"small":    func(e *Entry) bool { return len(e.Body) < 1000 },
		"late":     func(e *Entry) bool { return e.Due > day/3 },
		"one in 4": func(e *Entry) bool { return e.Seq%4 == 0 },
		"all":      func(*Entry) bool { return true },
		"none":     func(*Entry) bool { return false },
	} {
		var want int64
		for i := range es {
			if alive(&es[i]) {
				want += int64(len(es[i].Body)) + 16
			}
		}
		got := taken.LiveBytes(g.Size, func(seq uint64) bool { return alive(&es[seq-1]) })
		if off := float64(got)/float64(g.Size) - float64(want)/float64(bodies); math.Abs(off) > 0.06 {
			t.Errorf("%s: %d of %d bytes estimated, %d of %d are alive", name, got, g.Size, want, bodies)
		}
	}
}

// Of a few small messages, too, one is sampled, also where pages of 64 KB make the
// file large.
func TestSample_ofAFewBytes(t *testing.T) {
	g := written(t, []Entry{{Seq: 1, Target: "orders"}, {Due: 1, Seq: 2, Target: "orders"}})
	for _, g.Size = range []int64{g.Size, 5 << 16} {
		if taken, err := g.TakeSample(t.Context()); err != nil || len(taken) == 0 {
			t.Errorf("%v of %d bytes: %v", taken, g.Size, err)
		}
	}
}

// A file may hold rows alone, of messages that lie elsewhere: it is as much alive as these are.
func TestSample_estimatesRowsOfMessagesElsewhere(t *testing.T) {
	const rows = 20_000
	path := filepath.Join(t.TempDir(), "1.seg")
	w, err := Create(path, WithIDs, rows+1, rows, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(rows) {
		r := name.Row{Seq: i + 1, Due: int64(i), Target: "orders", Foreign: true}
		binary.BigEndian.PutUint64(r.Hash[:], i)
		if err := w.AddRow(&r); err != nil {
			t.Fatal(err)
		}
	}
	record, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	g, err := Open(path, 1, record, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Release)
	taken, err := g.TakeSample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, alive := range map[string]struct {
		is    func(seq uint64) bool
		share float64
	}{
		"all":        {func(uint64) bool { return true }, 1},
		"the second": {func(seq uint64) bool { return seq > rows/2 }, 0.5},
		"one in 4":   {func(seq uint64) bool { return seq%4 == 0 }, 0.25},
		"none":       {func(uint64) bool { return false }, 0},
	} {
		if got := float64(taken.LiveBytes(g.Size, alive.is)) / float64(g.Size); math.Abs(got-alive.share) > 0.06 {
			t.Errorf("%s: %.2f of the file is taken for alive, want %.2f", what, got, alive.share)
		}
	}
	if len(taken) > 2*SampleSize {
		t.Errorf("%d rows were sampled, of %d", len(taken), rows)
	}
}
