package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
)

const (
	// reachPatience is how long Kafka must have been silent to the leader before the
	// leader asks the other members whether Kafka answers them.
	reachPatience = 10 * time.Second
	// mostReachPatience is where that wait stops doubling. It doubles each time this
	// node gives leadership away, so that links that come and go do not move it for ever.
	mostReachPatience = 5 * time.Minute
	// reachedFor is how long Kafka must have answered this leader for the next wait to
	// be the shortest again.
	reachedFor = 10 * time.Minute
	// askReachAgain is the time between two looks at Kafka that a member takes for us.
	// One look proves little.
	askReachAgain = time.Second
	// reachTimeout bounds such a look. It is longer than the source's own patience, whose
	// words say what was asked.
	reachTimeout = topicsPatience + 2*time.Second
	// lookAgain is the least time from the beginning of a look to that of the next one: anybody may ask for
	// them. A member that asks twice waits as long by itself.
	lookAgain = askReachAgain
	// recheckEvery is the time between looks of a node that gave leadership away.
	recheckEvery = 30 * time.Second
)

// A reach moves leadership to a member that Kafka answers when it does not answer
// this one. It belongs to the Broker and outlives terms.
//
//	Kafka answers --10 s of silence--> ask the voters --one has it twice--> hand over
//	      ^                                 |
//	      `------ or stay, and ask again <--' none: Kafka is away for all
//
// A member says yes only after it has done what failed here: it opened a source and
// listed the delay topics. So a member that would fail the same way is never chosen.
type reach struct {
	broker *Broker
	// patience is touched by the running term only.
	patience time.Duration

	mu   sync.Mutex
	note string // why leadership was given away, until Kafka answers this node again

	noted chan struct{}     // holds a token when a note was set
	asked chan chan<- error // takes those who want this node to look at Kafka
}

func newReach(b *Broker) *reach {
	return &reach{broker: b, patience: reachPatience, noted: make(chan struct{}, 1), asked: make(chan chan<- error)}
}

// watch runs beside a term until ctx ends. Each look at the delay topics wakes it.
func (r *reach) watch(ctx context.Context, report *report.Report) error {
	next := r.patience // silence after which the members are asked
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-report.KafkaHeard():
		}
		silent, answering := report.Kafka()
		switch {
		case answering > 0:
			r.clearNote()
			report.SetProblem("leadership", "")
			if next = r.patience; answering >= reachedFor {
				r.patience = reachPatience
			}
		case silent >= next:
			next = silent + r.patience
			if err := r.move(ctx, report, silent); err != nil && ctx.Err() == nil {
				report.SetProblem("leadership", fmt.Sprintf("stays here though Kafka has not answered for %v: %v", silent.Round(time.Second), err))
			}
		}
	}
}

// move hands leadership to a voter that Kafka answers, or returns why it stays. It also stays,
// without an error, when Kafka has answered this node while others were asked: after an outage it
// answers all of them, and a new term would only repeat what is on its way.
func (r *reach) move(ctx context.Context, report *report.Report, silent time.Duration) error {
	able, err := r.ask(ctx)
	if len(able) == 0 {
		return err
	}
	if _, answering := report.Kafka(); answering > 0 {
		return nil // which wakes watch
	}
	b := r.broker
	// Success ends the term, and ctx with it: it must not be taken for a failure.
	to, err := b.node.TransferLeadershipTo(context.WithoutCancel(ctx), able)
	if err != nil {
		return fmt.Errorf("hand it to one of %s: %w", strings.Join(able, ", "), err)
	}
	r.patience = min(2*r.patience, mostReachPatience)
	why := fmt.Sprintf("Kafka did not answer %s for %v, and it answers %s, which leads now", b.config.Node.ID, silent.Round(time.Second), to)
	r.setNote(why)
	b.log.Warn("leadership handed over", "to", to, "reason", why)
	return nil
}

// ask returns the ids of the voters that Kafka answers, and why it does not answer others.
func (r *reach) ask(ctx context.Context) ([]string, error) {
	b := r.broker
	others := slices.DeleteFunc(b.node.Status().Members, func(m node.MemberStatus) bool {
		return m.ID == b.config.Node.ID || !m.Voter
	})
	if len(others) == 0 {
		return nil, errors.New("there is no other voter")
	}
	failures := make([]error, len(others))
	var wg sync.WaitGroup
	for i, m := range others {
		wg.Go(func() { failures[i] = r.askTwice(ctx, m.Member) })
	}
	wg.Wait()
	var able []string
	var refusals []string
	for i, m := range others {
		if failures[i] == nil {
			able = append(able, m.ID)
		} else {
			refusals = append(refusals, fmt.Sprintf("%s: %v", m.ID, failures[i]))
		}
	}
	return able, errors.New(strings.Join(refusals, "; "))
}

func (r *reach) askTwice(ctx context.Context, m member.Member) error {
	if err := r.broker.askReach(ctx, m); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(askReachAgain):
	}
	return r.broker.askReach(ctx, m)
}

// setNote says in the status why this node gave leadership away.
func (r *reach) setNote(text string) {
	r.mu.Lock()
	r.note = text
	r.mu.Unlock()
	select {
	case r.noted <- struct{}{}:
	default: // recheck knows
	}
}

func (r *reach) clearNote() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note = ""
}

func (r *reach) problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.note
}

// recheck looks at Kafka now and then while there is a note, so that the status does
// not blame Kafka for longer than it has to. It runs until ctx ends.
func (r *reach) recheck(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.noted:
		}
		for r.problem() != "" {
			select {
			case <-ctx.Done():
				return
			case <-time.After(recheckEvery):
				_ = r.broker.ReachKafka(ctx) // clears the note if Kafka answers; else the note stands
			}
		}
	}
}

// ReachKafka looks whether Kafka answers this node: it lists the delay topics as a
// leader would, over connections of its own. All who ask while a look is taken share the
// next one, so that nobody waits for more than two, however many ask. It blocks for a
// few round trips, seven seconds a look at most, while Run runs. Any goroutine may call it.
func (b *Broker) ReachKafka(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*reachTimeout+lookAgain)
	defer cancel()
	found := make(chan error, 1)
	if ctx.Err() != nil { // who has gone asks for nothing: select would toss a coin
		return fmt.Errorf("wait for another look at Kafka: %w", ctx.Err())
	}
	select {
	case b.reach.asked <- found:
	case <-ctx.Done():
		return fmt.Errorf("wait for another look at Kafka: %w", ctx.Err())
	}
	select {
	case err := <-found:
		return err
	case <-ctx.Done():
		return fmt.Errorf("look at Kafka: %w", ctx.Err())
	}
}

// looks looks at Kafka for all who have asked, until ctx ends.
func (r *reach) looks(ctx context.Context) {
	for {
		var asked []chan<- error
		select {
		case <-ctx.Done():
			return
		case first := <-r.asked:
			asked = append(asked, first)
		}
		for more := true; more; { // who has asked during the look before
			select {
			case next := <-r.asked:
				asked = append(asked, next)
			default:
				more = false
			}
		}
		pause := time.After(lookAgain)
		err := r.broker.look(ctx)
		for _, found := range asked {
			found <- err
		}
		select {
		case <-ctx.Done():
			return
		case <-pause:
		}
	}
}

func (b *Broker) look(ctx context.Context) error {
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	source, err := b.newSource()
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer source.Close()
	if err := ingest.LookOnce(ctx, source); err != nil {
		if ctx.Err() != nil && asked.Err() == nil {
			return fmt.Errorf("look at the delay topics: no answer within %v: check kafka.brokers and that Kafka runs: %w", reachTimeout, err)
		}
		return err
	}
	b.reach.clearNote()
	return nil
}
