package storage

import (
	"math"

	"github.com/carillonmq/carillon/storage/segment"
)

// planner decides which segments a merge replaces. They are given in order of
// seq, and only neighbours are merged: a segment answers for a range of seqs.
type planner struct {
	width, limit int
	room         int64 // bytes that a merge may write
	segments     []*segment.Segment
	live         []int64 // estimated bytes of the alive
	lacking      int64   // of the step that was wanted first and has no room
}

// mostlyDead is the share of live bytes, as 1/mostlyDead, below which a segment
// is written anew for its own sake: for each byte written 3 are given back.
const mostlyDead = 4

// smallWindow is how many live bytes neighbours may have together to be merged
// although their number is within the limit: files this small are worth less
// than the seeks they cost. A node that flushes every 64 MB writes no byte again
// for it.
const smallWindow = 64 << 20

// All segments together may have wasteSlack bytes and, in halves, wasteShare
// times what is alive. Below the promised 3 times and 256 MB, for live bytes are
// estimated.
const (
	wasteSlack = 128 << 20
	wasteShare = 5
)

func (p *planner) add(g *segment.Segment, live int64) {
	p.segments = append(p.segments, g)
	p.live = append(p.live, live)
}

// pick returns the segments to replace by one, none when all is well. A step
// that the disk has no room for gives way to the next: what is small goes on
// although what is large cannot. lacking tells of it.
//
//  1. Neighbours that are mostly dead.
//  2. When the dead of all take too much room: the segment with the smallest live
//     share, for it gives back most for each byte written.
//  3. A window of width small neighbours of which none has more than half of the
//     bytes: what is written again lands in a file twice its size or more, so a
//     byte is written again once for each doubling, at most.
//  4. Above limit files, such a window whatever its size, else the two neighbours
//     that are cheapest: the bound holds whatever the sizes.
func (p *planner) pick() []*segment.Segment {
	if run := p.mostlyDead(); run != nil {
		return run
	}
	if g := p.wasteful(); g != nil {
		return g
	}
	over, most := len(p.segments) > p.limit, int64(smallWindow)
	if over {
		most = math.MaxInt64
	}
	if window := p.cheapest(p.width, true, most); window != nil || !over {
		return window
	}
	return p.cheapest(2, false, most)
}

// fits reports whether the segments from first to last can be read, and the disk has
// room for what is alive in them. To the estimate an eighth is added, and what a sample
// cannot see.
func (p *planner) fits(first, last int) bool {
	var need int64
	for i := first; i <= last; i++ {
		if p.segments[i].Damaged {
			return false
		}
		if p.live[i] > 0 {
			need += p.live[i] + p.live[i]/8 + p.segments[i].Size/segment.SampleSize
		}
	}
	if need > p.room && p.lacking == 0 {
		p.lacking = need
	}
	return need <= p.room
}

// mostlyDead returns the first run of mostly dead segments, of width at most,
// that fits.
func (p *planner) mostlyDead() []*segment.Segment {
	for start := 0; start < len(p.segments); start++ {
		end := start
		for end < len(p.segments) && end-start < p.width && p.isMostlyDead(end) && p.fits(start, end) {
			end++
		}
		if end > start {
			return p.segments[start:end]
		}
	}
	return nil
}

func (p *planner) isMostlyDead(i int) bool { return p.live[i] < p.segments[i].Size/mostlyDead }

// wasteful returns the segment that is least alive of those that fit, while the
// dead take too much room.
func (p *planner) wasteful() []*segment.Segment {
	var size, live int64
	for i, g := range p.segments {
		size += g.Size
		live += p.live[i]
	}
	if size <= live*wasteShare/2+wasteSlack {
		return nil
	}
	worst, share := -1, 1.0
	for i, g := range p.segments {
		if s := float64(p.live[i]) / float64(g.Size); s < share && p.fits(i, i) {
			worst, share = i, s
		}
	}
	if worst < 0 {
		return nil
	}
	return p.segments[worst : worst+1]
}

// cheapest returns the window of n neighbours with the fewest live bytes, most at
// most, of those that fit; if balanced, only one in which no segment has more than
// half of them.
func (p *planner) cheapest(n int, balanced bool, most int64) (window []*segment.Segment) {
	for i := 0; i+n <= len(p.segments); i++ {
		var sum, largest int64
		for _, live := range p.live[i : i+n] {
			sum += live
			largest = max(largest, live)
		}
		if sum > most || window != nil && sum == most || balanced && largest > sum/2 {
			continue
		}
		if p.fits(i, i+n-1) {
			window, most = p.segments[i:i+n], sum
		}
	}
	return window
}
