package main

import (
	"math/rand/v2"
	"time"
)

// A workload is how far ahead the timers lie, and how many are cancelled before they fire.
type workload struct {
	name      string
	delay     func(r *rand.Rand) time.Duration
	cancelled float64
}

// soonest keeps what a runtime holds from firing while its operations are measured.
const soonest = 10 * time.Minute

func workloads() []workload {
	uniform := func(r *rand.Rand) time.Duration { return soonest + between(r, 24*time.Hour) }
	return []workload{
		{"uniform over 24 h", uniform, 0.1},
		{"exponential, mean 1 h", func(r *rand.Rand) time.Duration {
			return soonest + time.Duration(r.ExpFloat64()*float64(time.Hour)).Truncate(time.Millisecond)
		}, 0.1},
		{"all at one tick", func(*rand.Rand) time.Duration { return time.Hour }, 0.1},
		{"within one second, 12 h ahead", func(r *rand.Rand) time.Duration { return 12*time.Hour + between(r, time.Second) }, 0.1},
		{"uniform over 24 h, 90 % cancelled", uniform, 0.9},
	}
}

// between returns whole milliseconds below span.
func between(r *rand.Rand, span time.Duration) time.Duration {
	return time.Duration(r.Int64N(span.Milliseconds())) * time.Millisecond
}

// plan is a workload drawn for n timers, the same for each contender.
type plan struct {
	delays    []time.Duration
	worn      []int32 // a permutation: in which order all timers are replaced once
	order     []int32 // another: which timers are then replaced, moved, cancelled
	cancelled int
}

func (w workload) plan(n int) plan {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	p := plan{
		delays:    make([]time.Duration, n),
		worn:      permutation(r, n),
		order:     permutation(r, n),
		cancelled: int(w.cancelled * float64(n)),
	}
	for i := range p.delays {
		p.delays[i] = w.delay(r)
	}
	return p
}

func permutation(r *rand.Rand, n int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
