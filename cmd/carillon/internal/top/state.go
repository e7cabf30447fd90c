package top

import (
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
)

// A State is what a screen shows.
type State struct {
	Now  time.Time // when the screen is drawn
	Name string    // of the cluster, as the user has it

	// Trouble is why the last look at the cluster failed, and At when the one before it succeeded, of which
	// all else is. "": nothing failed.
	Trouble string
	At      time.Time

	// Status is the leader's, or that of the node that was asked where the leader cannot be reached: it
	// lacks what only a leader knows then.
	Status broker.Status

	// Due counts what is pending by the Bounds, which are those of DueBounds. DueTrouble is why it is not
	// known; "": it is.
	Due        client.Histogram
	Bounds     []int64
	DueTrouble string

	// Rates are of the leader. RatesTrouble is why they are not known; "": they are.
	Rates        Rates
	RatesTrouble string
}

const (
	// minutes are how far ahead the chart looks.
	minutes = 60
	// DueWidth is the time of one bar of the chart.
	DueWidth = time.Minute
)

// DueBounds part the time for State.Due, epoch milliseconds: what is overdue, each minute of the next hour,
// and what is due later.
func DueBounds(now time.Time) []int64 {
	bounds := make([]int64, minutes+1)
	for i := range bounds {
		bounds[i] = now.Add(time.Duration(i) * DueWidth).UnixMilli()
	}
	return bounds
}

// A due is State.Due by bars.
type due struct {
	overdue, hour, later uint64
	bars                 [minutes]uint64
}

// dueOf sums up what is counted by the bounds.
func dueOf(h client.Histogram, bounds []int64) (d due) {
	for _, b := range h.Buckets {
		switch {
		case b.From == nil:
			d.overdue += b.Count
		case b.To == nil:
			d.later += b.Count
		default:
			i, _ := slices.BinarySearch(bounds, *b.From)
			d.bars[min(i, minutes-1)] += b.Count
			d.hour += b.Count
		}
	}
	return d
}
