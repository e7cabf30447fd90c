// Package report is what a running term tells the world: the parts of a term write it, the
// status reads it.
package report

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A Report is what a running term tells the world: written by its goroutines,
// read by whoever asks for the status.
type Report struct {
	began time.Time // by the monotonic clock

	mu       sync.Mutex
	problems map[string]string
	parked   []string         // targets, where their owner has them; "": none
	aside    map[uint64]int64 // dead letters that their topic refuses: by seq, when they are due
	lag      *int64           // records of delay topics not read yet; nil: not known
	reading  *Reading         // nil: not known yet; not changed once it is here
	running  bool

	// When Kafka began to answer, or not to; by the monotonic clock.
	kafkaAnswers bool
	kafkaSince   time.Time     // zero: it was not asked yet
	kafkaHeard   chan struct{} // holds a token after HearKafka
}

// New returns a report of which nothing is known.
func New() *Report {
	return &Report{began: time.Now(), problems: make(map[string]string), aside: make(map[uint64]int64), kafkaHeard: make(chan struct{}, 1)}
}

// Began returns when the term began, which is when the report was made.
func (r *Report) Began() time.Time { return r.began }

// SetProblem names what keeps part of the term from working; an empty text says
// that it works again.
func (r *Report) SetProblem(part, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == "" {
		delete(r.problems, part)
		return
	}
	r.problems[part] = text
}

// SetParked notes which target is stuck of those that its owner has at a place, counted from 0; "": none is any more. There
// may be a hundred thousand, and the owner has a place for each.
func (r *Report) SetParked(place uint32, target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := int(place) + 1; n > len(r.parked) {
		r.parked = slices.Grow(r.parked, n-len(r.parked))[:n]
	}
	r.parked[place] = target
}

// SetAside notes that a dead letter is refused by its topic and waits, due then in epoch milliseconds.
func (r *Report) SetAside(seq uint64, due int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aside[seq] = due
}

// EndAside notes that it was written after all, or waits for another reason.
func (r *Report) EndAside(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.aside, seq)
}

// Aside returns which dead letters are refused and wait: by seq, when they are due. The map is the
// caller's; nil if there are none, as mostly.
func (r *Report) Aside() map[uint64]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.aside) == 0 {
		return nil
	}
	return maps.Clone(r.aside)
}

// SetLag notes how many records of delay topics wait, nil when that is not known.
func (r *Report) SetLag(records *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lag = records
}

// SetReading notes which partitions of delay topics are read. It is not changed afterwards.
func (r *Report) SetReading(reading *Reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = reading
}

// HearKafka notes whether Kafka answered a look at the delay topics that began then.
func (r *Report) HearKafka(answered bool, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kafkaSince.IsZero() || r.kafkaAnswers != answered {
		r.kafkaAnswers, r.kafkaSince = answered, asked
	}
	select {
	case r.kafkaHeard <- struct{}{}:
	default:
	}
}

// Kafka returns for how long Kafka has been silent, or else for how long it has
// answered. Both are 0 until it was asked.
func (r *Report) Kafka() (silent, answering time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.kafkaSince.IsZero():
	case r.kafkaAnswers:
		answering = max(time.Since(r.kafkaSince), 1) // a look may take no time
	default:
		silent = time.Since(r.kafkaSince)
	}
	return silent, answering
}

// KafkaHeard is received from after HearKafka; one token may stand for several calls.
func (r *Report) KafkaHeard() <-chan struct{} { return r.kafkaHeard }

// SetRunning notes that every part of the term has been started.
func (r *Report) SetRunning() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = true
}

// Contents is a copy of a Report.
type Contents struct {
	Problems []string // sorted by the part that has the problem
	Parked   []string
	Lag      *int64
	Reading  *Reading
	Running  bool // every part of the term has been started
}

// Read returns what was noted so far.
func (r *Report) Read() Contents {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Contents{Parked: []string{}, Lag: r.lag, Reading: r.reading, Running: r.running}
	for _, target := range r.parked {
		if target != "" {
			out.Parked = append(out.Parked, target)
		}
	}
	slices.Sort(out.Parked)
	for _, part := range slices.Sorted(maps.Keys(r.problems)) {
		out.Problems = append(out.Problems, part+": "+r.problems[part])
	}
	return out
}
