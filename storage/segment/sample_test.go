package segment

import (
	"math"
	"math/rand/v2"
	"testing"
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
