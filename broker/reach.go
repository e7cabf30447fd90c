package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/fitness"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
)

const (
	// reachPatience is how long the leader must have lacked something before it asks the other members whether
	// they would lead better.
	reachPatience = fitness.Patience
	// mostReachPatience is where that wait stops doubling. It doubles each time this
	// node gives leadership away, so that links that come and go do not move it for ever.
	mostReachPatience = 5 * time.Minute
	// reachedFor is how long this leader must have been fit for the next wait to
	// be the shortest again.
	reachedFor = 10 * time.Minute
	// askReachAgain is the time between two looks at Kafka that a member takes for us.
	// One look proves little.
	askReachAgain = time.Second
	// reachTimeout bounds such a look. It is longer than the source's own patience, whose
	// words say what was asked.
	reachTimeout = topicsPatience + 2*time.Second
	// ownGrace is how much longer than the others this node has for a look at a Kafka that seems silent. It may have to wait
	// for lookAgain.
	ownGrace = lookAgain + 500*time.Millisecond
	// lookAgain is the least time from the beginning of a look to that of the next one: anybody may ask for
	// them. A member that asks twice waits as long by itself.
	lookAgain = askReachAgain
	// recheckEvery is the time between looks of a node that gave leadership away.
	recheckEvery = 30 * time.Second
)

// A reach moves leadership to a member that leads better when Kafka does not answer this one, or some of
// its brokers do not, or its disk has no room for messages. It belongs to the Broker and outlives terms.
//
//	fit --10 s of a lack without a gap--> ask the voters --one is fit twice--> hand over
//	 ^                                     |
//	 `------ or stay, and ask again <------' none: Kafka is away for all, all disks are full
//
// A member says yes only after it has done what failed here: it opened a source and
// listed the delay topics, and its disk has room. So a member that would fail the same way is never chosen. Where it is
// some Kafka brokers that do not answer, which lead targets, a member must reach all that this node reaches, and one of those: two
// that reach half of them each do not take turns.
type reach struct {
	broker *Broker
	room   func() error // returns why this node may accept no message now, or nil
	// patience is touched by the running term only.
	patience time.Duration

	mu      sync.Mutex
	note    string // why leadership was given away, until this node is fit again
	partial bool   // it was for some Kafka brokers

	noted chan struct{}      // holds a token when a note was set
	asked chan chan<- looked // takes those who want this node to look at Kafka
}

func newReach(b *Broker, room func() error) *reach {
	return &reach{broker: b, room: room, patience: reachPatience, noted: make(chan struct{}, 1), asked: make(chan chan<- looked)}
}

// watch runs beside a term until ctx ends. Each look at the delay topics wakes it. The sink is the term's.
func (r *reach) watch(ctx context.Context, report *report.Report, sink Sink) error {
	here := fitness.New(report, r.room, sink.Unreached)
	patience := r.patience
	if r.problem() != "" {
		patience = 0 // nobody has seen the end of what it gave leadership away for
	}
	var asked time.Time
	var pause time.Duration // between two times to ask because of some Kafka brokers: it may be so for ever
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-report.KafkaHeard():
		case <-here.RoomMayReturn():
		case <-here.SilenceLasts(patience): // a look at a Kafka that drops what it is sent takes seconds
		}
		lack, fit := here.Look()
		lack = lack.Lasting(patience)
		wait := patience
		if lack.IsPartial() {
			wait = max(pause, patience)
		}
		switch {
		case fit > 0:
			r.clearNote()
			report.SetProblem("leadership", "")
			if fit >= reachedFor {
				r.patience = reachPatience
			}
			patience, pause, asked = r.patience, 0, time.Time{}
		case lack.Any() && time.Since(asked) >= wait:
			asked = time.Now()
			if lack.IsPartial() {
				pause = min(2*max(wait, reachPatience), mostReachPatience)
			}
			problem := ""
			if err := r.move(ctx, here, sink, patience); err != nil {
				problem = fmt.Sprintf("stays here though %v: %v", lack, err)
			}
			if ctx.Err() == nil {
				report.SetProblem("leadership", problem)
			}
			patience = r.patience
		}
	}
}

// move hands leadership to a voter that leads better, or returns why it stays. It also stays,
// without an error, when this node is fit by the time that others have answered: after an outage Kafka
// answers all of them, and a new term would only repeat what is on its way.
//
// What its term knows of Kafka may be old: of a large one the delay topics are looked at every ten seconds, and what did not
// answer when it was connected to last may by now, as after a restart. So this node looks as well, no earlier than the others.
func (r *reach) move(ctx context.Context, here *fitness.Fitness, sink Sink, patience time.Duration) error {
	b := r.broker
	looking, stop := context.WithCancel(ctx)
	defer stop()
	own := r.lookMeanwhile(looking)
	answers, err := r.ask(ctx)
	if err != nil {
		return err
	}
	found, _ := here.Look()
	lack := found.Lasting(patience)
	if lack.Silent > 0 && !staysSilent(own) {
		lack.Silent = 0
	}
	stop()
	var ours survey
	if lack.Silent == 0 && lack.Any() {
		ours.reached, ours.unreached, err = sink.Survey(ctx)
		switch {
		case err != nil && lack.IsPartial():
			return err
		case err == nil && len(ours.unreached) == 0:
			here.Whole()
			lack.Partial = 0
		}
	}
	if !lack.Any() {
		return nil // as watch finds at the next look
	}
	able, refusals := better(answers, lack, ours)
	if len(able) == 0 {
		return refusals
	}
	// Also for a try that fails: while it lasts nothing is proposed.
	r.patience = min(2*r.patience, mostReachPatience)
	// Success ends the term, and ctx with it: it must not be taken for a failure.
	to, err := b.node.TransferLeadershipTo(context.WithoutCancel(ctx), able)
	if err != nil {
		return fmt.Errorf("hand it to one of %s: %w", strings.Join(able, ", "), err)
	}
	why := lack.Reason(b.config.Node.ID, to)
	r.setNote(why, lack.IsPartial())
	b.log.Warn("leadership handed over", "to", to, "reason", why)
	return nil
}

// lookMeanwhile has this node look as the others do, when they look for the second time.
func (r *reach) lookMeanwhile(ctx context.Context) <-chan looked {
	own := make(chan looked, 1)
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(askReachAgain):
		}
		own <- r.await(ctx)
	}()
	return own
}

// staysSilent reports whether Kafka, which seems silent and has answered the others by now, does not answer this node within
// ownGrace more.
func staysSilent(own <-chan looked) bool {
	select {
	case found := <-own:
		return found.err != nil
	case <-time.After(ownGrace):
		return true
	}
}

// A survey tells which of the Kafka brokers that Kafka lists answer this node, by their ids.
type survey struct{ reached, unreached []int32 }

// A response is what another voter says of itself.
type response struct {
	member  string
	reached Reached
	err     error // why Kafka does not answer it, or it does not answer
}

// better returns the ids of those that lead better than a node with that lack, to which Kafka's brokers answer as surveyed,
// and what is wrong with the others. One that has no room leads better than one that Kafka does not answer: it delivers. So
// does one that reaches more of Kafka's brokers.
func better(answers []response, here fitness.Lack, ours survey) (able []string, refusals error) {
	var cramped, wrong []string
	for _, a := range answers {
		theirs := a.reached.Brokers // nil: a program that does not tell
		misses := func(id int32) bool { return !slices.Contains(theirs, id) }
		switch {
		case a.err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v", a.member, a.err))
		case !a.reached.Room:
			cramped = append(cramped, a.member)
			wrong = append(wrong, a.member+": it has no room for messages, or its program does not tell")
		case here.Silent == 0 && theirs != nil && slices.ContainsFunc(ours.reached, misses):
			wrong = append(wrong, a.member+": it does not reach all Kafka brokers that this node reaches")
		case here.IsPartial() && !slices.ContainsFunc(ours.unreached, func(id int32) bool { return !misses(id) }):
			wrong = append(wrong, a.member+": it reaches no Kafka broker that this node does not reach, or its program does not tell")
		default:
			able = append(able, a.member)
		}
	}
	if len(able) == 0 && here.Silent >= reachPatience {
		able = cramped
	}
	return able, errors.New(strings.Join(wrong, "; "))
}

// ask asks the other voters. It fails when there are none.
func (r *reach) ask(ctx context.Context) ([]response, error) {
	b := r.broker
	others := slices.DeleteFunc(b.node.Status().Members, func(m node.MemberStatus) bool {
		return m.ID == b.config.Node.ID || !m.Voter
	})
	if len(others) == 0 {
		return nil, errors.New("there is no other voter")
	}
	answers := make([]response, len(others))
	var wg sync.WaitGroup
	for i, m := range others {
		wg.Go(func() {
			reached, err := r.askTwice(ctx, m.Member)
			answers[i] = response{m.ID, reached, err}
		})
	}
	wg.Wait()
	return answers, nil
}

// askTwice returns what a member says both times.
func (r *reach) askTwice(ctx context.Context, m member.Member) (Reached, error) {
	first, err := r.broker.askReach(ctx, m)
	if err != nil {
		return Reached{}, err
	}
	select {
	case <-ctx.Done():
		return Reached{}, ctx.Err()
	case <-time.After(askReachAgain):
	}
	second, err := r.broker.askReach(ctx, m)
	second.Room = second.Room && first.Room
	second.Brokers = slices.DeleteFunc(second.Brokers, func(id int32) bool { return !slices.Contains(first.Brokers, id) })
	return second, err
}

// setNote says in the status why this node gave leadership away.
func (r *reach) setNote(text string, partial bool) {
	r.mu.Lock()
	r.note, r.partial = text, partial
	r.mu.Unlock()
	select {
	case r.noted <- struct{}{}:
	default: // recheck knows
	}
}

// isPartial reports whether the note is for some Kafka brokers.
func (r *reach) isPartial() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.partial
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

// recheck looks at Kafka and for room now and then while there is a note, so that the status does
// not blame them for longer than it has to. It runs until ctx ends.
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
				_, _ = r.broker.ReachKafka(ctx) // clears the note if this node is fit; else the note stands
			}
		}
	}
}

// Reached is what a node says of itself that Kafka answers.
type Reached struct {
	Reached bool    `json:"reached"` // always: one that Kafka does not answer says why
	Room    bool    `json:"room"`    // it could accept messages now; an older program does not tell
	Brokers []int32 `json:"brokers"` // the ids of the Kafka brokers that answer it; an older program does not tell
}

// ReachKafka looks whether Kafka answers this node, and has an error if not: it lists the delay topics as a
// leader would, and asks each Kafka broker for a sign, over connections of its own. All who ask while a look is taken share the
// next one, so that nobody waits for more than two, however many ask. One whose clock is wrong has an error, too: it would
// hand leadership back. It blocks for a
// few round trips, seven seconds a look at most, while Run runs. Any goroutine may call it.
func (b *Broker) ReachKafka(ctx context.Context) (Reached, error) {
	found := b.reach.await(ctx)
	if found.err != nil {
		return Reached{}, found.err
	}
	if b.skew.isSkewed() {
		return Reached{}, errClockWrong
	}
	return Reached{Reached: true, Room: b.reach.room() == nil, Brokers: found.reached}, nil
}

// A looked is what a look at Kafka found.
type looked struct {
	reached []int32 // the ids of the Kafka brokers that answer
	err     error
}

// await waits for a look at Kafka.
func (r *reach) await(ctx context.Context) looked {
	ctx, cancel := context.WithTimeout(ctx, 2*reachTimeout+lookAgain)
	defer cancel()
	found := make(chan looked, 1)
	if ctx.Err() != nil { // who has gone asks for nothing: select would toss a coin
		return looked{err: fmt.Errorf("wait for another look at Kafka: %w", ctx.Err())}
	}
	select {
	case r.asked <- found:
	case <-ctx.Done():
		return looked{err: fmt.Errorf("wait for another look at Kafka: %w", ctx.Err())}
	}
	select {
	case l := <-found:
		return l
	case <-ctx.Done():
		return looked{err: fmt.Errorf("look at Kafka: %w", ctx.Err())}
	}
}

// looks looks at Kafka for all who have asked, until ctx ends.
func (r *reach) looks(ctx context.Context) {
	surveys := surveys{ask: r.broker.survey}
	for {
		var asked []chan<- looked
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
		l := r.look(ctx, &surveys)
		for _, found := range asked {
			found <- l
		}
		select {
		case <-ctx.Done():
			return
		case <-pause:
		}
	}
}

// look lists the delay topics and asks each Kafka broker, at the same time.
func (r *reach) look(ctx context.Context, surveys *surveys) looked {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	surveyed := make(chan error, 1)
	go func() { surveyed <- surveys.renew(ctx) }()
	if err := r.broker.listDelayTopics(ctx); err != nil {
		cancel()
		<-surveyed
		return looked{err: err}
	}
	err := <-surveyed
	if r.room() == nil && (!r.isPartial() || err == nil && len(surveys.last.unreached) == 0) {
		r.clearNote()
	}
	return looked{reached: surveys.last.reached}
}

// surveyAgain is how old a survey may be for the next look: each is a login at every Kafka broker, and anybody may ask for looks.
const surveyAgain = 5 * time.Second

// surveys asks each Kafka broker for what looks tell. One goroutine at a time uses it.
type surveys struct {
	ask  func(context.Context) (reached, unreached []int32, err error)
	last survey
	at   time.Time // when the last one began that did not fail
}

// renew asks if the last survey is too old, and forgets it then.
func (s *surveys) renew(ctx context.Context) (err error) {
	if began := time.Now(); began.Sub(s.at) >= surveyAgain {
		s.last, s.at = survey{}, time.Time{}
		if s.last.reached, s.last.unreached, err = s.ask(ctx); err == nil {
			s.at = began
		}
	}
	return err
}

// listDelayTopics lists them as a leader does, once.
func (b *Broker) listDelayTopics(ctx context.Context) error {
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	source, err := b.newSource()
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer source.Close()
	err = ingest.LookOnce(ctx, source)
	if err != nil && ctx.Err() != nil && asked.Err() == nil {
		return fmt.Errorf("look at the delay topics: no answer within %v: check kafka.brokers and that Kafka runs: %w", reachTimeout, err)
	}
	return err
}
