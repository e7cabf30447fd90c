package storage

// planner decides which segments a merge replaces. They are given in order of
// seq, and only neighbours are merged: a segment answers for a range of seqs.
type planner struct {
	width, limit int
	segments     []*segment
	live         []int64 // estimated bytes of the alive
	dead         []int   // places of the fully dead
}

// mostlyDead is the share of live bytes, as 1/mostlyDead, below which a segment
// is written anew for its own sake: for each byte written 3 are given back.
const mostlyDead = 4

func (p *planner) add(g *segment, alive uint64) {
	if alive == 0 {
		p.dead = append(p.dead, len(p.segments))
	}
	p.segments = append(p.segments, g)
	p.live = append(p.live, int64(float64(g.size)*float64(alive)/float64(g.info.count)))
}

// smallWindow is how many live bytes neighbours may have together to be merged
// although their number is within the limit: files this small are worth less
// than the seeks they cost. A node that flushes every 64 MB writes no byte again
// for it.
const smallWindow = 64 << 20

// pick returns the segments to replace by one, none when all is well.
//
//  1. All that are fully dead: that costs a commit.
//  2. Neighbours that are mostly dead.
//  3. A window of width small neighbours of which none has more than half of the
//     bytes: what is written again lands in a file twice its size or more, so a
//     byte is written again once for each doubling, at most.
//  4. Above limit files, such a window whatever its size, else the two neighbours
//     that are cheapest: the bound holds whatever the sizes.
func (p *planner) pick() []*segment {
	if len(p.dead) > 0 {
		var all []*segment
		for _, i := range p.dead {
			all = append(all, p.segments[i])
		}
		return all
	}
	if run := p.mostlyDead(); run != nil {
		return run
	}
	window, live := p.cheapest(p.width, true)
	if window != nil && live <= smallWindow {
		return window
	}
	if len(p.segments) <= p.limit {
		return nil
	}
	if window == nil {
		window, _ = p.cheapest(2, false)
	}
	return window
}

// mostlyDead returns the first run of mostly dead segments, of width at most.
func (p *planner) mostlyDead() []*segment {
	start := -1
	for i := range p.segments {
		sparse := p.live[i] < p.segments[i].size/mostlyDead
		switch {
		case sparse && start < 0:
			start = i
		case start >= 0 && (!sparse || i-start == p.width):
			return p.segments[start:i]
		}
	}
	if start >= 0 {
		return p.segments[start:]
	}
	return nil
}

// cheapest returns the window of n neighbours with the fewest live bytes; if
// balanced, only one in which no segment has more than half of them.
func (p *planner) cheapest(n int, balanced bool) (window []*segment, live int64) {
	for i := 0; i+n <= len(p.segments); i++ {
		var sum, largest int64
		for _, live := range p.live[i : i+n] {
			sum += live
			largest = max(largest, live)
		}
		if balanced && largest > sum/2 {
			continue
		}
		if window == nil || sum < live {
			window, live = p.segments[i:i+n], sum
		}
	}
	return window, live
}
