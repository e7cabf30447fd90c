package storage

import (
	"context"
	"fmt"
	"math"

	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/memtable"
	"github.com/carillonmq/carillon/storage/segment"
)

const (
	// tallyVisits bounds the memtable entries that a tally looks at under the lock.
	tallyVisits = 2048
	// tallyChunks bounds the chunks that it reads to count exactly.
	tallyChunks = 32
	// deviations is how far a figure may be off, in standard deviations: of a hundred figures five are further off.
	deviations = 1.96
)

// A Group is what a tally counts as one thing.
type Group struct {
	Bucket int
	Target string
}

// A TallyQuery says what is counted.
type TallyQuery struct {
	From Ref   // what lies at or after
	Last int64 // and is due no later
	// Sort says of a message to which group it belongs, and false if it is not counted. It is shown messages
	// without bodies, under the conditions of ListQuery.Keep.
	Sort func(m *Moment, e *Entry) (g Group, counted bool)
}

// A Figure is a number of messages.
type Figure struct {
	Count uint64
	// Within is by how much Count may be off, with a probability of 95 %; 0: it is exact.
	Within uint64
}

// A Tally is how many messages there are of each group at one log index.
type Tally struct {
	Moment Moment
	Exact  bool
	Groups map[Group]Figure
	// Unseen is how many messages a group may have that is not told of, likewise with 95 %.
	Unseen uint64
}

// Tally counts the messages alive, group by group. It does a bounded amount of work: few it counts one by one; of many it
// looks at SurveySize of each segment, and at as many of memory as a page, takes how many of these are alive and of a group
// for the share of all that are alive there, which is known exactly, and says how far that may be off.
// What it looks at of a segment is read once. It blocks as List does.
func (s *Store) Tally(ctx context.Context, q TallyQuery) (Tally, error) {
	if err := s.lockAtIndex(ctx); err != nil {
		return Tally{}, fmt.Errorf("count: %w", err)
	}
	t := tally{TallyQuery: q, moment: s.moment()}
	for _, table := range s.tables() {
		t.memory = append(t.memory, t.lookAt(table))
	}
	segments := s.segments
	segment.AcquireAll(segments)
	s.mu.Unlock()
	defer segment.ReleaseAll(segments)

	err := disk.Guard(func() error { return t.countSegments(segments) })
	if err == nil && !t.exact {
		err = t.surveySegments(ctx, segments)
	}
	if err != nil {
		return Tally{}, fmt.Errorf("count: %w", err)
	}
	return t.result(), nil
}

type tally struct {
	TallyQuery
	moment Moment
	memory []stratum // of each table
	disk   []stratum
	exact  bool // of the disk
}

// A stratum is a part of what there is, of which some was looked at.
type stratum struct {
	alive  uint64 // all that are
	looked uint64 // of them
	groups map[Group]uint64
}

func (t *tally) newStratum(alive uint64) stratum {
	return stratum{alive: alive, groups: make(map[Group]uint64)}
}

// look counts the entry if it is alive. It may change it.
func (t *tally) look(at *stratum, e *Entry) {
	if !t.moment.alive.Contains(e.Seq) {
		return
	}
	at.looked++
	e.Body = nil
	if e.Ref().Less(t.From) || e.Due > t.Last {
		return
	}
	if g, counted := t.Sort(&t.moment, e); counted {
		at.groups[g]++
	}
}

// lookAt looks at all of a small table, and at one entry in each of as many parts of a large one.
func (t *tally) lookAt(table *memtable.Table) stratum {
	first, count := table.First(), table.Next()-table.First()
	at := t.newStratum(0)
	if count == 0 {
		return at
	}
	at.alive = t.moment.alive.CountRange(first, table.Next()-1)
	parts := min(count, tallyVisits)
	var e Entry
	for part := range parts {
		seq := first + segment.Surveyed(part, parts, count)
		if found, ok := table.Get(seq); ok {
			e = found
			t.look(&at, &e)
		}
	}
	return at
}

// countSegments looks at all that is meant, unless that is too much; then exact is false.
func (t *tally) countSegments(segments []*segment.Segment) error {
	left := tallyChunks
	for _, g := range segments {
		if g.Info.Max.Less(t.From) || g.Info.Min.Due > t.Last || g.Info.Count == 0 {
			continue
		}
		at := t.newStratum(0)
		c, err := g.Cursor(false)
		if err != nil {
			return err
		}
		e, err := c.Start(t.From)
		for ; e != nil && err == nil && e.Due <= t.Last && c.ChunksRead() <= left; e, err = c.Next() {
			t.look(&at, e)
		}
		read := c.ChunksRead()
		c.Close()
		if err != nil {
			return err
		}
		if left -= read; left < 0 {
			return nil
		}
		at.alive = at.looked
		t.disk = append(t.disk, at)
	}
	t.exact = true
	return nil
}

// surveySegments looks at some of each segment.
func (t *tally) surveySegments(ctx context.Context, segments []*segment.Segment) error {
	t.disk = t.disk[:0]
	for _, g := range segments {
		if g.Info.First > g.Info.Last {
			continue
		}
		at := t.newStratum(t.moment.alive.CountRange(g.Info.First, g.Info.Last))
		if at.alive == 0 {
			continue
		}
		entries, err := g.Survey(ctx)
		if err != nil {
			return err
		}
		for i := range entries {
			e := entries[i]
			t.look(&at, &e)
		}
		t.disk = append(t.disk, at)
	}
	return nil
}

func (t *tally) result() Tally {
	strata := append(t.memory, t.disk...)
	result := Tally{Moment: t.moment, Exact: true, Groups: make(map[Group]Figure)}
	for i := range strata {
		result.Exact = result.Exact && strata[i].looked == strata[i].alive
		for g := range strata[i].groups {
			result.Groups[g] = Figure{}
		}
	}
	for g := range result.Groups {
		result.Groups[g] = figure(strata, g)
	}
	result.Unseen = figure(strata, Group{Bucket: math.MinInt}).Within
	return result
}

// figure adds up what the strata say of a group. What nothing alive was looked at of may be of it as a whole.
func figure(strata []stratum, g Group) Figure {
	sum, variance, unknown := 0.0, 0.0, 0.0
	for i := range strata {
		s := &strata[i]
		alive, looked, hits := float64(s.alive), float64(s.looked), float64(s.groups[g])
		switch {
		case s.alive == s.looked:
			sum += hits
		case s.looked == 0:
			unknown += alive
		default:
			sum += alive * hits / looked
			// As if two more had been of the group and two more not (Agresti and Coull): where none was seen there may be some.
			share := (hits + 2) / (looked + 4)
			variance += alive * alive * share * (1 - share) / (looked + 4)
		}
	}
	return Figure{Count: uint64(math.Round(sum)), Within: uint64(math.Ceil(deviations*math.Sqrt(variance) + unknown))}
}
