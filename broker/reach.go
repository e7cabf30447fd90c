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
	// reachPatience is how long Kafka must have been silent to the leader, or its disk without room,
	// before the leader asks the other members whether they would lead better.
	reachPatience = 10 * time.Second
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
	// lookAgain is the least time from the beginning of a look to that of the next one: anybody may ask for
	// them. A member that asks twice waits as long by itself.
	lookAgain = askReachAgain
	// lookForRoom is the time between two looks for room while there is none.
	lookForRoom = 100 * time.Millisecond
	// recheckEvery is the time between looks of a node that gave leadership away.
	recheckEvery = 30 * time.Second
)

// A reach moves leadership to a member that leads better when Kafka does not answer this one, or
// its disk has no room for messages. It belongs to the Broker and outlives terms.
//
//	fit --10 s of a lack without a gap--> ask the voters --one is fit twice--> hand over
//	 ^                                     |
//	 `------ or stay, and ask again <------' none: Kafka is away for all, all disks are full
//
// A member says yes only after it has done what failed here: it opened a source and
// listed the delay topics, and its disk has room. So a member that would fail the same way is never chosen.
type reach struct {
	broker *Broker
	room   func() error // returns why this node may accept no message now, or nil
	// patience is touched by the running term only.
	patience time.Duration

	mu   sync.Mutex
	note string // why leadership was given away, until this node is fit again

	noted chan struct{}     // holds a token when a note was set
	asked chan chan<- error // takes those who want this node to look at Kafka
}

func newReach(b *Broker, room func() error) *reach {
	return &reach{broker: b, room: room, patience: reachPatience, noted: make(chan struct{}, 1), asked: make(chan chan<- error)}
}

// watch runs beside a term until ctx ends. Each look at the delay topics wakes it.
func (r *reach) watch(ctx context.Context, report *report.Report) error {
	here := fitness{report: report, room: r.room}
	patience := r.patience
	if r.problem() != "" {
		patience = 0 // nobody has seen the end of what it gave leadership away for
	}
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-report.KafkaHeard():
		case <-here.roomMayReturn():
		case <-here.silenceLasts(patience): // a look at a Kafka that drops what it is sent takes seconds
		}
		lack, fit := here.look()
		lasts := lack.lasts()
		switch {
		case fit > 0:
			r.clearNote()
			report.SetProblem("leadership", "")
			if fit >= reachedFor {
				r.patience = reachPatience
			}
			patience, asked = r.patience, time.Time{}
		case lasts > 0 && lasts >= patience && time.Since(asked) >= patience:
			asked = time.Now()
			if err := r.move(ctx, &here); err != nil && ctx.Err() == nil {
				report.SetProblem("leadership", fmt.Sprintf("stays here though %v: %v", lack, err))
			}
			patience = r.patience
		}
	}
}

// A fitness follows over the looks of a term whether this node leads well. One goroutine uses it.
type fitness struct {
	report  *report.Report
	room    func() error
	cramped time.Time // since when there is no room; zero: there is
	fit     time.Time // since when Kafka has answered and there was room; zero: not so
}

// A lack is what keeps a node from leading well, and for how long it has without a gap.
type lack struct {
	silent  time.Duration // of Kafka; 0: it answers, or was not asked yet
	cramped time.Duration // 0: there is room
	noRoom  error         // why there is none
}

// look returns what this node lacks, and if that is nothing, for how long it has been fit: 0 until
// Kafka has answered.
func (f *fitness) look() (found lack, fit time.Duration) {
	now := time.Now()
	silent, answering := f.report.Kafka()
	found.silent = silent
	if found.noRoom = f.room(); found.noRoom == nil {
		f.cramped = time.Time{}
	} else {
		if f.cramped.IsZero() {
			f.cramped = now
		}
		found.cramped = max(now.Sub(f.cramped), 1)
	}
	if answering == 0 || found.noRoom != nil {
		f.fit = time.Time{}
		return found, 0
	}
	if f.fit.IsZero() {
		f.fit = now.Add(-answering)
	}
	return found, max(now.Sub(f.fit), 1)
}

// roomMayReturn returns what wakes at the next look for room, nil when none is due before the next
// look at Kafka. A disk that is behind with its flushes lacks room for moments, again and again: so
// it is looked for often until it has been missed for so long that this is not the cause.
func (f *fitness) roomMayReturn() <-chan time.Time {
	if f.cramped.IsZero() || time.Since(f.cramped) >= reachPatience {
		return nil
	}
	return time.After(lookForRoom)
}

// silenceLasts returns what wakes when Kafka has been silent for so long, nil when it answers or has been for longer.
func (f *fitness) silenceLasts(patience time.Duration) <-chan time.Time {
	silent, _ := f.report.Kafka()
	if silent == 0 || silent >= patience {
		return nil
	}
	return time.After(patience - silent)
}

func (l lack) lasts() time.Duration { return max(l.silent, l.cramped) }

func (l lack) String() string {
	var lacks []string
	if l.silent > 0 {
		lacks = append(lacks, fmt.Sprintf("Kafka has not answered for %v", l.silent.Round(time.Second)))
	}
	if l.noRoom != nil {
		lacks = append(lacks, fmt.Sprintf("its disk has had no room for messages for %v", l.cramped.Round(time.Second)))
	}
	return strings.Join(lacks, ", and ")
}

// move hands leadership to a voter that leads better, or returns why it stays. It also stays,
// without an error, when this node is fit by the time that others have answered: after an outage Kafka
// answers all of them, and a new term would only repeat what is on its way.
func (r *reach) move(ctx context.Context, here *fitness) error {
	answers, err := r.ask(ctx)
	if err != nil {
		return err
	}
	lack, _ := here.look()
	if lack.lasts() == 0 {
		return nil // as watch finds at the next look
	}
	able, refusals := better(answers, lack)
	if len(able) == 0 {
		return refusals
	}
	// Also for a try that fails: while it lasts nothing is proposed.
	r.patience = min(2*r.patience, mostReachPatience)
	b := r.broker
	// Success ends the term, and ctx with it: it must not be taken for a failure.
	to, err := b.node.TransferLeadershipTo(context.WithoutCancel(ctx), able)
	if err != nil {
		return fmt.Errorf("hand it to one of %s: %w", strings.Join(able, ", "), err)
	}
	why := fmt.Sprintf("Kafka did not answer %s for %v, and it answers %s, which leads now", b.config.Node.ID, lack.silent.Round(time.Second), to)
	if lack.noRoom != nil && lack.silent < lack.cramped {
		why = fmt.Sprintf("%s had no room for messages for %v, and %s has, which leads now: %v", b.config.Node.ID, lack.cramped.Round(time.Second), to, lack.noRoom)
	}
	r.setNote(why)
	b.log.Warn("leadership handed over", "to", to, "reason", why)
	return nil
}

// A response is what another voter says of itself.
type response struct {
	member  string
	reached Reached
	err     error // why Kafka does not answer it, or it does not answer
}

// better returns the ids of those that lead better than a node with that lack, and what is wrong with the
// others. One that has no room leads better than one that Kafka does not answer: it delivers.
func better(answers []response, here lack) (able []string, refusals error) {
	var cramped, wrong []string
	for _, a := range answers {
		switch {
		case a.err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v", a.member, a.err))
		case !a.reached.Room:
			cramped = append(cramped, a.member)
			wrong = append(wrong, a.member+": it has no room for messages, or its program does not tell")
		default:
			able = append(able, a.member)
		}
	}
	if len(able) == 0 && here.silent >= reachPatience {
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
	return second, err
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
	Reached bool `json:"reached"` // always: one that Kafka does not answer says why
	Room    bool `json:"room"`    // it could accept messages now; an older program does not tell
}

// ReachKafka looks whether Kafka answers this node, and has an error if not: it lists the delay topics as a
// leader would, over connections of its own. All who ask while a look is taken share the
// next one, so that nobody waits for more than two, however many ask. One whose clock is wrong has an error, too: it would
// hand leadership back. It blocks for a
// few round trips, seven seconds a look at most, while Run runs. Any goroutine may call it.
func (b *Broker) ReachKafka(ctx context.Context) (Reached, error) {
	if err := b.reach.await(ctx); err != nil {
		return Reached{}, err
	}
	if b.skew.isSkewed() {
		return Reached{}, errClockWrong
	}
	return Reached{Reached: true, Room: b.reach.room() == nil}, nil
}

// await waits for a look at Kafka.
func (r *reach) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*reachTimeout+lookAgain)
	defer cancel()
	found := make(chan error, 1)
	if ctx.Err() != nil { // who has gone asks for nothing: select would toss a coin
		return fmt.Errorf("wait for another look at Kafka: %w", ctx.Err())
	}
	select {
	case r.asked <- found:
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
	if b.reach.room() == nil {
		b.reach.clearNote()
	}
	return nil
}
