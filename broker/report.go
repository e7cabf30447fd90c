package broker

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A termReport is what a running term tells the world: written by its goroutines,
// read by whoever asks for the status.
type termReport struct {
	mu       sync.Mutex
	problems map[string]string
	parked   map[string]struct{} // targets
	lag      *int64              // records of delay topics not read yet; nil: not known
	reading  *ReadingStatus      // nil: not known yet; not changed once it is here
	running  bool

	// When Kafka began to answer, or not to; by the monotonic clock.
	kafkaAnswers bool
	kafkaSince   time.Time     // zero: it was not asked yet
	kafkaHeard   chan struct{} // holds a token after hearKafka
}

func newTermReport() *termReport {
	return &termReport{problems: make(map[string]string), parked: make(map[string]struct{}), kafkaHeard: make(chan struct{}, 1)}
}

// setProblem names what keeps part of the term from working; an empty text says
// that it works again.
func (r *termReport) setProblem(part, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == "" {
		delete(r.problems, part)
		return
	}
	r.problems[part] = text
}

// setParked notes that a target is stuck, or is not any more.
func (r *termReport) setParked(target string, stuck bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stuck {
		r.parked[target] = struct{}{}
	} else {
		delete(r.parked, target)
	}
}

// setLag notes how many records of delay topics wait, nil when that is not known.
func (r *termReport) setLag(records *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lag = records
}

// setReading notes which partitions of delay topics are read. It is not changed afterwards.
func (r *termReport) setReading(reading *ReadingStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = reading
}

// hearKafka notes whether Kafka answered a look at the delay topics that began then.
func (r *termReport) hearKafka(answered bool, asked time.Time) {
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

// kafka returns for how long Kafka has been silent, or else for how long it has
// answered. Both are 0 until it was asked.
func (r *termReport) kafka() (silent, answering time.Duration) {
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

func (r *termReport) setRunning() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = true
}

// reported is a copy of a termReport.
type reported struct {
	problems []string // sorted by the part that has the problem
	parked   []string
	lag      *int64
	reading  *ReadingStatus
	running  bool // every part of the term has been started
}

func (r *termReport) read() reported {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := reported{parked: slices.AppendSeq([]string{}, maps.Keys(r.parked)), lag: r.lag, reading: r.reading, running: r.running}
	slices.Sort(out.parked)
	for _, part := range slices.Sorted(maps.Keys(r.problems)) {
		out.problems = append(out.problems, part+": "+r.problems[part])
	}
	return out
}
