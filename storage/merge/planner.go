// Package merge has what is known of merging segments: in which order their entries
// come, and which of them should be written anew. What is written, and named, is the
// store's business.
package merge

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/segment"
)

// A Planner picks the segments to merge, and remembers what it has learned of them.
// One goroutine uses it at a time.
type Planner struct {
	log   *slog.Logger
	known map[*segment.Segment]*knowledge
}

type knowledge struct {
	sample  segment.Sample // nil until it is needed
	damaged bool
}

// NewPlanner returns one that knows nothing yet.
func NewPlanner(log *slog.Logger) *Planner {
	return &Planner{log: log, known: make(map[*segment.Segment]*knowledge)}
}

// Plan returns which of the segments, neighbours, one should take the place of; none
// when all is well. lacking is how many bytes the step that was wanted first has no
// room for, 0 when there is room. What was known of other segments is forgotten. It
// may read samples from the disk, which ctx ends.
func (p *Planner) Plan(ctx context.Context, segments []*segment.Segment, set *alive.Set, limits Limits) (step []*segment.Segment, lacking int64, err error) {
	maps.DeleteFunc(p.known, func(g *segment.Segment, _ *knowledge) bool { return !slices.Contains(segments, g) })
	next := plan{Limits: limits}
	for _, g := range segments {
		live := p.LiveBytes(ctx, g, set)
		next.segments = append(next.segments, candidate{g, live, p.of(g).damaged})
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	for _, picked := range next.pick() {
		step = append(step, picked.Segment)
	}
	return step, next.lacking, nil
}

// of returns what is known of g.
func (p *Planner) of(g *segment.Segment) *knowledge {
	if p.known[g] == nil {
		p.known[g] = new(knowledge)
	}
	return p.known[g]
}

// LiveBytes estimates how much of the file is alive: by a sample, or by the number of
// entries where none can be taken.
func (p *Planner) LiveBytes(ctx context.Context, g *segment.Segment, set *alive.Set) int64 {
	n := set.CountRange(g.Info.First, g.Info.Last)
	switch {
	case g.Info.Foreign > 0: // their messages lie elsewhere
		n += g.Info.Foreign
	case n == 0:
		return 0
	case n == g.Info.Count:
		return g.Size
	}
	k := p.of(g)
	if k.sample == nil && !k.damaged {
		taken, err := g.TakeSample(ctx)
		if err != nil && ctx.Err() == nil {
			p.setAside(g, err)
		}
		k.sample = taken
	}
	if k.sample == nil {
		return max(1, int64(float64(g.Size)*float64(n)/float64(g.Info.Count+g.Info.Foreign)))
	}
	return max(1, k.sample.LiveBytes(g.Size, set.Contains))
}

// SetAsideDamaged reads the segments of a step that failed, and plans no more with
// those that cannot be read.
func (p *Planner) SetAsideDamaged(step []*segment.Segment, set *alive.Set) {
	for _, g := range step {
		if _, err := g.Verify(set, nil); err != nil {
			p.setAside(g, err)
		}
	}
}

// setAside leaves a damaged segment as it is, to those who read what is whole in it.
// Tried again and again it would keep all others from being merged.
func (p *Planner) setAside(g *segment.Segment, cause error) {
	p.of(g).damaged = true
	p.log.Error("a damaged segment is not merged: restore the node from the others", "path", g.Path, "error", cause)
}

// Entries calls add for those entries of the segments that are in the set, in order of
// delivery, after checking their bodies, which are good until it returns. It reads all
// of the segments.
func Entries(ctx context.Context, segments []*segment.Segment, set *alive.Set, add func(*segment.Entry) error) error {
	return disk.Guard(func() error {
		var h Heap
		for _, g := range segments {
			c, err := g.Cursor(true)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := h.Start(c, g.Info.Min); err != nil {
				return err
			}
		}
		for !h.Empty() {
			if err := ctx.Err(); err != nil {
				return err
			}
			if e := h.Peek(); set.Contains(e.Seq) {
				if err := add(e); err != nil {
					return err
				}
			}
			if err := h.Skip(); err != nil {
				return err
			}
		}
		return nil
	})
}
