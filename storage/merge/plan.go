package merge

import (
	"math"

	"github.com/carillonmq/carillon/storage/segment"
)

// Limits are what a plan keeps to.
type Limits struct {
	Width int   // how many neighbours of similar size become one
	Files int   // how many there may be
	Room  int64 // bytes that a merge may write
}

// plan decides which segments a merge replaces. They are given in order of seq, and
// only neighbours are merged: a segment answers for a range of seqs.
type plan struct {
	Limits
	segments []candidate
	lacking  int64 // bytes that the step that was wanted first has no room for
}

type candidate struct {
	*segment.Segment
	live    int64 // estimated bytes of the alive
	damaged bool
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

// pick returns the segments to replace by one, none when all is well. A step
// that the disk has no room for gives way to the next: what is small goes on
// although what is large cannot. lacking tells of it.
//
//  1. Neighbours that are mostly dead.
//  2. When the dead of all take too much room: the segment with the smallest live
//     share, for it gives back most for each byte written.
//  3. A window of Width small neighbours of which none has more than half of the
//     bytes: what is written again lands in a file twice its size or more, so a
//     byte is written again once for each doubling, at most.
//  4. Above Files, such a window whatever its size, else the two neighbours
//     that are cheapest: the bound holds whatever the sizes.
func (p *plan) pick() []candidate {
	if run := p.mostlyDead(); run != nil {
		return run
	}
	if g := p.wasteful(); g != nil {
		return g
	}
	over, most := len(p.segments) > p.Files, int64(smallWindow)
	if over {
		most = math.MaxInt64
	}
	if window := p.cheapest(p.Width, true, most); window != nil || !over {
		return window
	}
	return p.cheapest(2, false, most)
}

// fits reports whether the segments from first to last can be read, and the disk has
// room for what is alive in them. To the estimate an eighth is added, and what a sample
// cannot see.
func (p *plan) fits(first, last int) bool {
	var need int64
	for i := first; i <= last; i++ {
		if p.segments[i].damaged {
			return false
		}
		if g := p.segments[i]; g.live > 0 {
			need += g.live + g.live/8 + g.Size/segment.SampleSize
		}
	}
	if need > p.Room && p.lacking == 0 {
		p.lacking = need
	}
	return need <= p.Room
}

// mostlyDead returns the first run of mostly dead segments, of width at most,
// that fits.
func (p *plan) mostlyDead() []candidate {
	for start := 0; start < len(p.segments); start++ {
		end := start
		for end < len(p.segments) && end-start < p.Width && p.isMostlyDead(end) && p.fits(start, end) {
			end++
		}
		if end > start {
			return p.segments[start:end]
		}
	}
	return nil
}

func (p *plan) isMostlyDead(i int) bool { return p.segments[i].live < p.segments[i].Size/mostlyDead }

// wasteful returns the segment that is least alive of those that fit, while the
// dead take too much room.
func (p *plan) wasteful() []candidate {
	var size, live int64
	for _, g := range p.segments {
		size += g.Size
		live += g.live
	}
	if size <= live*wasteShare/2+wasteSlack {
		return nil
	}
	worst, share := -1, 1.0
	for i, g := range p.segments {
		if s := float64(g.live) / float64(g.Size); s < share && p.fits(i, i) {
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
func (p *plan) cheapest(n int, balanced bool, most int64) (window []candidate) {
	for i := 0; i+n <= len(p.segments); i++ {
		var sum, largest int64
		for _, g := range p.segments[i : i+n] {
			sum += g.live
			largest = max(largest, g.live)
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
