package merge

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/segment"
)

// A hundred million messages of a kilobyte may end up in one file.
func TestLiveBytes_ofAHugeSegment(t *testing.T) {
	p, all := NewPlanner(slog.New(slog.DiscardHandler)), alive.NewSet()
	g := &segment.Segment{Record: segment.Record{Info: segment.Info{First: 1, Last: 1 << 27, Count: 1 << 27}, Size: 1 << 37}}
	all.AddRange(1, 1<<27)
	if got := p.LiveBytes(t.Context(), g, all); got != g.Size {
		t.Errorf("%d bytes are alive of %d", got, g.Size)
	}
}

// A sample of a large file takes long: a node that closes does not wait for it.
func TestPlan_stopsSamplingWithItsContext(t *testing.T) {
	g := written(t, 1000)
	set := alive.NewSet()
	set.AddRange(991, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := NewPlanner(slog.New(slog.DiscardHandler))
	if step, _, err := p.Plan(ctx, []*segment.Segment{g}, set, Limits{Width: 2, Files: 64, Room: 1 << 30}); step != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("step of %d segments, error %v", len(step), err)
	}
	if k := p.of(g); k.sample != nil || k.damaged {
		t.Errorf("%+v is known", k)
	}
}

// What is known of a segment goes with it.
func TestPlan_forgetsWhatIsGone(t *testing.T) {
	g := written(t, 100)
	set := alive.NewSet()
	set.AddRange(1, 90)
	p := NewPlanner(slog.New(slog.DiscardHandler))
	for _, segments := range [][]*segment.Segment{{g}, nil} {
		if _, _, err := p.Plan(t.Context(), segments, set, Limits{Width: 2, Files: 64, Room: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		if len(p.known) != len(segments) {
			t.Errorf("%d segments are known of %d", len(p.known), len(segments))
		}
	}
}

// written returns a segment with n entries of 1 KB.
func written(t *testing.T, n int) *segment.Segment {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1.seg")
	w, err := segment.Create(path, segment.Plain, 1, uint64(n), uint64(n))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := w.Add(&segment.Entry{Due: int64(i), Seq: uint64(i + 1), Target: "orders", Body: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	record, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	g, err := segment.Open(path, 1, record, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Release)
	return g
}

// Each step is chosen by the promise, whatever lives how long: space is at most
// three times what is alive and 256 MB.
func TestPlanner_boundsTheDead(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for round := range 200 {
		p := plan{Limits: Limits{Width: 8, Files: 64, Room: math.MaxInt64}}
		for range 1 + random.IntN(100) {
			size := int64(1+random.IntN(64)) << 20
			p.segments = append(p.segments, sized(size, int64(float64(size)*math.Pow(random.Float64(), float64(round%4)))))
		}
		for steps := 0; ; steps++ {
			step := p.pick()
			if step == nil {
				break
			}
			if steps > 1000 {
				t.Fatal("a thousand steps and no end")
			}
			p.merge(step)
		}
		var size, live int64
		for _, g := range p.segments {
			size, live = size+g.Size, live+g.live
		}
		if size > 3*live+256<<20 || len(p.segments) > p.Files {
			t.Fatalf("round %d ends with %d segments, %d bytes of which %d are alive", round, len(p.segments), size, live)
		}
	}
}

// A merge that takes long keeps the next ones waiting, and so does one of many files.
func TestPlan_mergesNoMoreAtATimeThanItsWidth(t *testing.T) {
	p := plan{Limits: Limits{Width: 8, Files: 64, Room: math.MaxInt64}}
	for range 20 {
		p.segments = append(p.segments, sized(1<<20, 1<<10))
	}
	if step := p.pick(); len(step) != p.Width {
		t.Errorf("%d mostly dead segments become one, want %d", len(step), p.Width)
	}
}

func sized(size, live int64) candidate {
	return candidate{Segment: &segment.Segment{Record: segment.Record{Size: size}}, live: live}
}

// merge does in numbers what a merge of step does.
func (p *plan) merge(step []candidate) {
	at := slices.Index(p.segments, step[0])
	var live int64
	for _, g := range step {
		live += g.live
	}
	p.segments = slices.Replace(slices.Clone(p.segments), at, at+len(step), sized(live, live))
}
