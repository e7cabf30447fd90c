package clock

import (
	"cmp"
	"slices"
	"time"
)

// steadyFor is how long the wall clock must have kept step with the monotonic clock before
// a node that has nobody to compare with goes on by it.
const steadyFor = 10 * time.Second

// A Reading is what another member's wall clock said.
type Reading struct {
	Member string
	Shift  time.Duration // of its wall clock against this process's monotonic clock
	Error  time.Duration // by which Shift may be wrong, either way
}

// Evidence is what a node knows of clocks at one moment. Shifts are wall clocks against
// its own monotonic clock.
type Evidence struct {
	MaxSkew time.Duration
	Own     time.Duration // shift of the own wall clock
	Right   time.Duration // shift that was held to be right until now
	Stopped bool          // nothing becomes due: Own has left Right
	Steady  time.Duration // for how long nobody has set the own wall clock
	Others  []Reading
}

// A Standing is what came of a comparison of clocks.
type Standing string

// What a comparison can come to.
const (
	Alone   Standing = "alone"   // nobody reported
	Agreed  Standing = "agreed"  // a majority of those who reported, the node included, agrees with it
	Skewed  Standing = "skewed"  // a majority agrees with the median, which the node is too far from
	Divided Standing = "divided" // neither
)

// A Verdict is what evidence proves.
type Verdict struct {
	Standing Standing
	Right    time.Duration // shift to hold to be right from now on
	Error    time.Duration // by which that may be wrong
	Median   time.Duration // shift
	Skew     time.Duration // of the own wall clock against the median
	Agreeing int           // members whose clocks agree with the own one, itself included
	Believed bool          // alone, and its clock was set: it counts since it is steady, unconfirmed
	Able     []string      // of a node that is skewed: the members whose clocks agree with the median
}

// Proven reports whether more than half of all the members, and not only of those that reported,
// stand for the verdict: they agree with this node, or with the median that it is too far from.
func (v Verdict) Proven(members int) bool {
	switch v.Standing {
	case Agreed:
		return v.Agreeing*2 > members
	case Skewed:
		return len(v.Able)*2 > members
	}
	return false
}

// Judge decides which time is right.
func (e Evidence) Judge() Verdict {
	own := Reading{Shift: e.Own}
	v := Verdict{Standing: Divided, Right: e.Own, Median: e.Own, Agreeing: 1}
	for _, other := range e.Others {
		if own.agrees(other, e.MaxSkew) {
			v.Agreeing++
		}
	}
	median, supporters, isMajority := e.median()
	v.Median, v.Skew = median.Shift, e.Own-median.Shift
	near := v.Skew.Abs()-median.Error <= e.limit()
	switch {
	case len(e.Others) == 0:
		v.Standing = Alone
		if v.Believed = e.Stopped && e.Steady >= steadyFor; e.Stopped && !v.Believed {
			v.Right = e.Right
		}
	case !near && isMajority:
		v.Standing, v.Right, v.Error, v.Able = Skewed, median.Shift, median.Error, supporters
	case v.Agreeing*2 > len(e.Others)+1:
		v.Standing = Agreed
		if near {
			v.Right, v.Error = median.Shift, median.Error
		}
	case e.Stopped:
		v.Right = e.Right
	}
	return v
}

// limit is how far from the right time the wall clock may be. One at the edge must not
// stop firing again and again.
func (e Evidence) limit() time.Duration {
	if e.Stopped {
		return e.MaxSkew - e.MaxSkew/4
	}
	return e.MaxSkew
}

// median returns the clock in the middle: of two that are, the one nearer to the own clock,
// and the own one if it lies between them. It also returns the other members that agree with
// it, and whether a majority of all voices does. While firing is stopped the time that was held
// to be right has a voice.
func (e Evidence) median() (median Reading, supporters []string, isMajority bool) {
	voices := append([]Reading{{Shift: e.Own}}, e.Others...)
	if e.Stopped {
		voices = append(voices, Reading{Shift: e.Right})
	}
	slices.SortFunc(voices, func(a, b Reading) int { return cmp.Compare(a.Shift, b.Shift) })
	low, high := voices[(len(voices)-1)/2], voices[len(voices)/2]
	switch {
	case e.Own < low.Shift:
		median = low
	case e.Own > high.Shift:
		median = high
	default:
		median = Reading{Shift: e.Own}
	}
	agreeing := 0
	for _, voice := range voices {
		if median.agrees(voice, e.MaxSkew) {
			agreeing++
			if voice.Member != "" {
				supporters = append(supporters, voice.Member)
			}
		}
	}
	slices.Sort(supporters)
	return median, supporters, agreeing*2 > len(voices)
}

// agrees reports whether the two may be within the skew of each other.
func (r Reading) agrees(other Reading, most time.Duration) bool {
	return (r.Shift-other.Shift).Abs()-r.Error-other.Error <= most
}
