package deliver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker/mailbox"
)

const (
	// mostAsked is how many topics one request asks for.
	mostAsked = 1000
	// The least time between two requests: after one, what a lane waits for may follow
	// soon, and what only a parked target waits for some more, so that thousands of them
	// are twenty requests a second at most.
	urgentGap = 5 * time.Millisecond
	probeGap  = 50 * time.Millisecond
	// mostQuestions bounds the requests that Kafka has not answered. One may have gone to
	// a broker that hangs; the others go on.
	mostQuestions = 4
	// answerPatience ends the wait for an answer.
	answerPatience = 3 * time.Second
)

// A prober asks Kafka for the partitions of targets, for all lanes and all parked
// targets, many in one request. It is the only part of the publisher that waits for
// such an answer, and nothing waits for the prober: a Kafka client may take ten seconds
// to hear that its context has ended, while it connects. Such a call is left alone, and
// its answer dropped.
//
//	ask, probe --> names --request--> Kafka --> answers, one for each name
type prober struct {
	partitions func(context.Context, []string) []PartitionCount
	urgent     *mailbox.Mailbox[string]
	probes     *mailbox.Mailbox[string]
	answers    *mailbox.Mailbox[answer]
}

// An answer is what Kafka, or its silence, said of a target.
type answer struct {
	Target string
	PartitionCount
}

func newProber(partitions func(context.Context, []string) []PartitionCount) *prober {
	return &prober{partitions: partitions, urgent: mailbox.New[string](), probes: mailbox.New[string](), answers: mailbox.New[answer]()}
}

// ask asks for a target that has messages to send. It does not block; there will be
// an answer, after answerPatience at the latest once the request has gone out.
func (q *prober) ask(target string) { q.urgent.Put(target) }

// probe asks for a parked target.
func (q *prober) probe(target string) { q.probes.Put(target) }

// run asks until ctx ends.
func (q *prober) run(ctx context.Context) error {
	slots := make(chan struct{}, mostQuestions)
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	var urgent, probes []string
	var last time.Time
	for {
		urgent = append(urgent, q.urgent.Take(nil)...)
		probes = append(probes, q.probes.Take(nil)...)
		wait := time.Hour // nothing is to be asked
		switch {
		case len(urgent) > 0:
			wait = time.Until(last.Add(urgentGap))
		case len(probes) > 0:
			wait = time.Until(last.Add(probeGap))
		}
		if wait > 0 {
			pause.Reset(wait)
			select {
			case <-ctx.Done():
				return nil
			case <-q.urgent.Ready():
				continue
			case <-q.probes.Ready():
				continue
			case <-pause.C:
				continue
			}
		}
		var names []string
		names, urgent = firstAndLast(urgent, mostAsked)
		r := min(len(probes), mostAsked-len(names))
		names, probes = append(names, probes[:r]...), probes[r:]
		select {
		case <-ctx.Done():
			return nil
		case slots <- struct{}{}:
		}
		go q.question(ctx, names, slots)
		last = time.Now()
	}
}

// firstAndLast takes n names out of those that wait, all if there are fewer: half of them from the
// front, so that each has its turn, and half from the end. Names that come after a burst of
// others, which most likely are missing, then wait for one request and not for a hundred.
func firstAndLast(waiting []string, n int) (taken, rest []string) {
	if len(waiting) <= n {
		return waiting, nil
	}
	first, last := (n+1)/2, len(waiting)-n/2
	return slices.Concat(waiting[:first], waiting[last:]), waiting[first:last]
}

// question puts one request and passes on what Kafka says, or that it says nothing.
func (q *prober) question(ctx context.Context, names []string, slots <-chan struct{}) {
	defer func() { <-slots }()
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	heard := make(chan []PartitionCount, 1)
	go func() { heard <- q.partitions(ctx, names) }()
	answers := make([]answer, len(names))
	select {
	case counts := <-heard:
		for i, count := range counts {
			answers[i] = answer{names[i], count}
		}
	case <-ctx.Done():
		for i, name := range names {
			err := fmt.Errorf("partitions of topic %q: no answer: %w", name, ErrTargetUnavailable)
			answers[i] = answer{name, PartitionCount{Err: err}}
		}
	}
	q.answers.Put(answers...)
}
