package top

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A Sample is what the counters of a node said at one time.
type Sample struct {
	Node string
	At   time.Time

	accepted, delivered, expired, deadLettered float64
	late                                       []bucket
}

// A bucket is how many messages were at most so late, in seconds, since the node has started.
type bucket struct{ bound, count float64 }

// ReadSample reads the answer of GET /metrics.
func ReadSample(metrics io.Reader, node string, at time.Time) (Sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return Sample{}, fmt.Errorf("read metrics: %w", err)
	}
	sum := func(names ...string) (all float64) {
		for _, name := range names {
			for _, m := range families[name].GetMetric() {
				all += m.GetCounter().GetValue()
			}
		}
		return all
	}
	s := Sample{
		Node: node, At: at,
		accepted:     sum("carillon_accepted_total"),
		delivered:    sum("carillon_delivered_total"),
		expired:      sum("carillon_expired_total"),
		deadLettered: sum("carillon_dead_lettered_total", "carillon_rejected_total"),
	}
	for _, m := range families["carillon_lateness_seconds"].GetMetric() {
		for _, b := range m.GetHistogram().GetBucket() {
			s.late = append(s.late, bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
		}
	}
	return s, nil
}

// Rates are what went on in a time.
type Rates struct {
	Over                          time.Duration // the time; 0: they are not known yet
	In, Out, Expired, DeadLetters float64       // messages a second
	Delivered                     float64       // messages in that time
	// Half of them, 99 % and all were at most so late; below 0: later than is told apart.
	Late50, Late99, LateMost time.Duration
}

// window is the time over which rates are taken: long enough not to flicker.
const window = 10 * time.Second

// A History keeps samples for as long as rates need them. The zero value has none.
type History struct{ samples []Sample }

// Add adds a sample, which is later than all before it, and returns the rates since the oldest one in the
// window: the zero value before there are two of one node that has not started anew in between.
func (h *History) Add(s Sample) Rates {
	if n := len(h.samples); n > 0 && !h.samples[n-1].continues(s) {
		h.samples = nil
	}
	h.samples = append(h.samples, s)
	for len(h.samples) > 2 && s.At.Sub(h.samples[1].At) >= window {
		h.samples = h.samples[1:]
	}
	if len(h.samples) < 2 {
		return Rates{}
	}
	return s.since(h.samples[0])
}

// continues reports whether later is of the same run of the same node.
func (s Sample) continues(later Sample) bool {
	return s.Node == later.Node && later.At.After(s.At) && len(s.late) == len(later.late) &&
		later.accepted >= s.accepted && later.delivered >= s.delivered
}

func (s Sample) since(before Sample) Rates {
	over := s.At.Sub(before.At)
	each := over.Seconds()
	r := Rates{
		Over: over, In: (s.accepted - before.accepted) / each, Out: (s.delivered - before.delivered) / each,
		Expired: (s.expired - before.expired) / each, DeadLetters: (s.deadLettered - before.deadLettered) / each,
		Delivered: s.delivered - before.delivered,
	}
	r.Late50, r.Late99, r.LateMost = s.lateSince(before, .5), s.lateSince(before, .99), s.lateSince(before, 1)
	return r
}

// lateSince returns a bound that so much of what was delivered since then has kept; below 0: it is beyond
// what is told apart.
func (s Sample) lateSince(before Sample, share float64) time.Duration {
	if len(s.late) == 0 {
		return 0
	}
	all := s.late[len(s.late)-1].count - before.late[len(s.late)-1].count
	for i, b := range s.late {
		if b.count-before.late[i].count >= share*all {
			if math.IsInf(b.bound, 1) {
				return -1
			}
			return time.Duration(b.bound * float64(time.Second)).Round(time.Microsecond)
		}
	}
	return -1
}
