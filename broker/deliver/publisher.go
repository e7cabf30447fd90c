// Package deliver writes due messages to their target topics.
//
// The publisher (publisher.go) gives each target that has work a lane, so that no target
// waits for another. Its dispatcher knows the others: those that are new, parked or on trial
// (laneless.go). The prober asks Kafka for all of them together. A lane is a state machine (lane.go has the table,
// lane_states.go the states): it reads what it is handed and sends it in order
// (lane_messages.go), and what follows a failure is decided in lane_judge.go. Dead letters
// that wait are in letters.go. What Kafka has acknowledged is put into the log (acks.go). Which
// partition a message goes to is decided by the message alone (partition.go). DESIGN.md has
// the invariants; Sink is what Kafka has to do.
package deliver

import (
	"cmp"
	"container/heap"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/digest"
	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A Publisher writes due messages to their target topics, and puts an Ack into the log for what
// Kafka has acknowledged. It owns the lanes, one for each target topic that has work, so that no
// target waits for another:
//
//	scheduler --> orders --> dispatcher --> lane of a target --> Sink
//	    ^                     |    ^            |       `--> acks --> log (Ack)
//	    `----- verdicts ------'    '-- prober --'
//
// It lives as long as a term. Queues inside are mailboxes: what bounds them is that
// the scheduler keeps at most schedule.MostHanded messages of a target here.
type Publisher struct {
	cfg     Options
	limits  Limits
	log     *slog.Logger
	began   time.Time // before anything happened: no moment is 0
	orders  *mailbox.Mailbox[order]
	ended   *mailbox.Mailbox[ended]
	prober  *prober
	missing missingNames
	acks    *acks
	commit  commitFunc
	// loaded counts the bytes of messages that all lanes hold together.
	loaded     atomic.Int64
	lanes      atomic.Int64 // that there are
	buffers    sync.Pool    // of *[]storage.Entry: what a lane reads into, which has thousands beside it
	unreadable unreadable
	condemned  *digest.Digest
}

// Options are the parts that a publisher is made of.
type Options struct {
	Sink      Sink
	Store     Store
	Log       Log
	ClusterID [16]byte
	// MissingTimeout says how long a target must have been missing or forbidden
	// before messages of a delay topic that are overdue by as long are dead-lettered.
	MissingTimeout func(origin string) time.Duration
	// LeastMissingTimeout is the shortest of these times.
	LeastMissingTimeout time.Duration
	// MostMissing says for how many missing targets messages of a delay topic may wait;
	// 0: for any number. LeastMostMissing is the least of these bounds, 0 if there is none.
	MostMissing      func(origin string) int
	LeastMostMissing int
	// DeadLetterFor returns the dead-letter topic for messages of a delay topic.
	DeadLetterFor    func(origin string) string
	DeadLetterTopics []string // all of them
	Report           *report.Report
	Verdicts         *mailbox.Mailbox[schedule.Verdict]
	Count            Count
	Now              func() time.Time
	Due              func() time.Time // by which messages are due
	Limits           Limits           // zero: DefaultLimits
	Logger           *slog.Logger
}

// A Store is the part of *storage.Store that the publisher reads. The refs
// are sorted; what is dead is left out of the answer.
type Store interface {
	ReadWithin(bytes int, refs []storage.Ref, out []storage.Entry) (entries []storage.Entry, read int, err error)
	// Level is asked whenever something is written: it may rise at any time.
	Level() storage.Level
	// Time is the greatest of the leaders' times that the log has seen, epoch milliseconds.
	Time() int64
}

// A Log puts commands into the replicated log; *node.Node implements it.
type Log interface {
	Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal
}

// A Count counts what the publisher does; broker.Metrics implements it. Its methods
// are called by many goroutines.
type Count interface {
	// Delivered counts a message, not a dead letter, that Kafka has acknowledged,
	// that many milliseconds after it was due or accepted, whichever was later.
	Delivered(lateMillis int64)
	// Retried counts records that are sent once more.
	Retried(records int)
	// Expired counts messages that were not sent, or not once more, since they expired.
	Expired(messages int)
	// Parked changes the number of targets that are parked.
	Parked(change int)
	// Unreadable counts a message whose stored body cannot be decoded: alarm.
	Unreadable()
	LetterCount
}

// A LetterCount counts dead letters.
type LetterCount interface {
	// DeadLettered counts messages that became dead letters.
	DeadLettered(code string, messages int)
	// DeadLetterStuck counts that a dead-letter topic had to be parked or refused a letter: alarm.
	DeadLetterStuck()
	// ValueDropped counts a dead letter that was written without its value: alarm.
	ValueDropped()
}

// An ended says why a lane has ended: its target is parked, or (nil) there was nothing to do.
type ended struct {
	lane   *lane
	parked *laneless
}

// An order is what the scheduler wants for a target: deliver the message, or take note that the
// scheduler knows the target to be parked (confirm, of which only Target counts).
type order struct {
	schedule.DueMessage
	confirm bool
}

// New returns a publisher that does nothing until Run.
func New(cfg Options) *Publisher {
	p := &Publisher{
		cfg:     cfg,
		limits:  cmp.Or(cfg.Limits, DefaultLimits()),
		log:     cfg.Logger.With("component", "publisher"),
		began:   time.Now().Add(-time.Second),
		orders:  mailbox.New[order](),
		ended:   mailbox.New[ended](),
		prober:  newProber(cfg.Sink.Partitions),
		missing: missingNames{counts: make(map[string]*missingCount)},
		buffers: sync.Pool{New: func() any { return new([]storage.Entry) }},
	}
	p.commit = func(ctx context.Context, command raftfsm.Command) (raftfsm.Result, error) {
		return cfg.Log.Propose(ctx, command).Wait(ctx)
	}
	p.acks = newAcks(p.commit, p.now)
	p.condemned = digest.New(p.log, slog.LevelWarn, "dead-lettering messages")
	return p
}

// Hand gives messages to the dispatcher, and by it to their lanes, in this order for each target. It does not
// block and does not keep the slice.
func (p *Publisher) Hand(due []schedule.DueMessage) {
	orders := make([]order, len(due))
	for i, d := range due {
		orders[i] = order{DueMessage: d}
	}
	p.orders.Put(orders...)
}

// Confirm tells the publisher that the scheduler knows the target to be parked: because a claim
// of an earlier term holds it, or as the answer to each verdict that it is. The publisher then
// watches the target, and a verdict says when it may be fed again. Orders keep their order, so
// what was handed over before the scheduler knew comes back before the target is fed again, and
// cannot overtake what was returned earlier.
func (p *Publisher) Confirm(target string) {
	p.orders.Put(order{DueMessage: schedule.DueMessage{Target: target}, confirm: true})
}

// Run publishes until ctx ends or something must end the term: storage that cannot
// be read, or a log that does not take a command. When ctx ends it sends nothing
// more, waits for what is on its way and acknowledges it, about a second at most,
// and returns nil.
func (p *Publisher) Run(ctx context.Context) error {
	group, lanes := errgroup.WithContext(ctx)
	start := func(l *lane) { group.Go(func() error { return l.run(lanes) }) }
	group.Go(func() error { return newDispatcher(p, start).run(lanes) })
	group.Go(func() error { return p.prober.run(lanes) })
	group.Go(func() error { return p.acks.run(lanes) })
	err := group.Wait()
	p.condemned.Close()
	p.acks.finish(context.WithoutCancel(ctx)) // whatever ended it, what is written is written
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// now is the leader's clock in epoch milliseconds.
func (p *Publisher) now() int64 { return p.cfg.Now().UnixMilli() }

// A dispatcher knows where each target of the publisher stands. One goroutine owns it:
//
//	orders --> unseen --exists--> lane --fails for 2 s--> parked <-.
//	             `---- missing, or no answer, for 2 s --->  |      | probe fails
//	           forgotten <--idle-- on trial <--probe works--'------'
//	             lane <--an order--'
//
// Only a target that Kafka has said to exist, or that is on trial, has a lane, with its goroutine and a place
// in a Kafka client. All others are an entry here, and a name that the prober asks for
// with a thousand others. A target for which nothing waits is forgotten.
type dispatcher struct {
	p        *Publisher
	start    func(*lane)
	lanes    map[string]*lane
	laneless map[string]*laneless // all targets without a lane
	wakes    wakeQueue            // of these, those that wait for a time, and not for an answer
	trials   time.Time            // when the last of the trials begins that are planned
	warned   time.Time            // when it was last logged that one is parked
	orders   []order              // reused
}

func newDispatcher(p *Publisher, start func(*lane)) *dispatcher {
	return &dispatcher{p: p, start: start, lanes: make(map[string]*lane), laneless: make(map[string]*laneless)}
}

// run passes orders on until ctx ends.
func (d *dispatcher) run(ctx context.Context) error {
	defer d.end()
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		if len(d.wakes) > 0 {
			alarm.Reset(time.Until(d.p.time(d.wakes[0].wake)))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.p.orders.Ready():
			d.takeOrders()
		case <-d.p.ended.Ready():
			d.takeEnded()
		case <-d.p.prober.answers.Ready():
			d.takeAnswers()
		case <-alarm.C:
			for now := d.p.moment(time.Now()); len(d.wakes) > 0 && d.wakes[0].wake <= now; {
				d.wake(heap.Pop(&d.wakes).(*laneless))
			}
		}
	}
}

// end counts nothing as parked any more: the term is over.
func (d *dispatcher) end() {
	for _, t := range d.laneless {
		if _, ok := t.standing.(*parked); ok {
			d.p.cfg.Count.Parked(-1)
		}
	}
}

func (d *dispatcher) takeOrders() {
	d.orders = d.p.orders.Take(d.orders)
	for rest := d.orders; len(rest) > 0; {
		n := sameTarget(rest)
		d.order(rest[0].Target, rest[:n])
		rest = rest[n:]
	}
}

// order passes on what the scheduler wants of one target. A name without a lane costs an entry and
// a question: invariant 11.
func (d *dispatcher) order(name string, orders []order) {
	if l := d.lanes[name]; l != nil {
		l.orders.Put(orders...)
		return
	}
	t := d.laneless[name]
	if t == nil {
		t = &laneless{name: name, standing: &unseen{since: time.Now()}, index: -1, letters: d.p.lettersFor(name).kept()}
		d.laneless[name] = t
		t.asked = true
		d.p.prober.ask(name)
	}
	d.take(t, orders)
}

func (d *dispatcher) take(t *laneless, orders []order) {
	for len(orders) > 0 {
		orders = t.standing.take(d, t, orders)
	}
}

// hear passes on what Kafka has answered about a target without a lane.
func (d *dispatcher) hear(t *laneless, heard PartitionCount) {
	absent := t.absence(d.p)
	absent.hear(heard.Err, time.Now())
	t.setAbsence(d.p, absent)
	t.standing.hear(d, t, heard)
}

// wake does what it is time for.
func (d *dispatcher) wake(t *laneless) { t.standing.wake(d, t) }

// probe asks for a target once more, in no hurry: of a hundred thousand names that are
// missing, some are given back in each second, and no claim has them all.
func (d *dispatcher) probe(t *laneless) {
	t.asked = true
	d.p.prober.probe(t.name)
}

// sameTarget returns how many orders at the front are for the first one's target.
func sameTarget(orders []order) int {
	n := 1
	for n < len(orders) && orders[n].Target == orders[0].Target {
		n++
	}
	return n
}

// takeEnded hears which lanes have ended, and why. What came for them meanwhile is
// taken before they are forgotten.
func (d *dispatcher) takeEnded() {
	for _, e := range d.p.ended.Take(nil) {
		l := e.lane
		late := l.orders.Take(nil)
		switch t := e.parked; {
		case t != nil:
			d.leave(l)
			d.laneless[t.name] = t
			d.p.cfg.Count.Parked(1)
			s := t.standing.(*parked)
			silent := time.Duration(0)
			if s.had.silentSince != 0 {
				silent = time.Since(d.p.time(s.had.silentSince))
			}
			d.wakeAfter(t, s.pause(time.Since(l.begun), silent))
			d.take(t, late)
		case len(late) > 0:
			l.orders.Put(late...)
			d.start(l)
		default:
			d.leave(l)
		}
	}
}

func (d *dispatcher) leave(l *lane) {
	delete(d.lanes, l.target)
	d.p.lanes.Add(-1)
}

func (d *dispatcher) takeAnswers() {
	for _, a := range d.p.prober.answers.Take(nil) {
		if l := d.lanes[a.Target]; l != nil {
			l.answers.Put(countTold{a.PartitionCount, time.Now()})
		} else if t := d.laneless[a.Target]; t != nil && t.asked {
			t.asked = false
			d.hear(t, a.PartitionCount)
		}
	}
}

// begin gives a target its lane, which begins with the orders. A standing calls it (laneless.go).
func (d *dispatcher) begin(t *laneless, heard PartitionCount, orders []order) {
	d.forget(t)
	l := newLane(d.p, t.name)
	l.begun = time.Now()
	l.health.absent = t.absence(d.p)
	if t.letters != nil {
		l.letters = *t.letters
	}
	switch s := t.standing.(type) {
	case *onTrial: // one failure parks it again, and for longer
		l.health.onTrial, l.health.probeAfter, l.health.window = true, s.probeAfter, 1
		l.health.silentSince = d.p.time(s.silentSince)
		if s.afterTrial > 0 {
			l.health.afterTrial = int(s.afterTrial)
		}
	case *unseen:
		l.waiting = s.waiting
	}
	if heard.Count > 0 {
		l.layout.heard, l.layout.askNext = heard, time.Now().Add(countMaxAge)
	}
	l.orders.Put(orders...)
	d.lanes[t.name] = l
	d.p.lanes.Add(1)
	d.start(l)
}

func (d *dispatcher) forget(t *laneless) {
	delete(d.laneless, t.name)
	if t.index >= 0 {
		heap.Remove(&d.wakes, int(t.index))
	}
}

// wakeAfter has a target without a lane looked at after a while.
func (d *dispatcher) wakeAfter(t *laneless, wait time.Duration) {
	t.wake = d.p.moment(time.Now().Add(wait))
	if t.index >= 0 {
		heap.Fix(&d.wakes, int(t.index))
	} else {
		heap.Push(&d.wakes, t)
	}
}

// A wakeQueue is a heap of targets by the time at which to look at them.
type wakeQueue []*laneless

func (q wakeQueue) Len() int           { return len(q) }
func (q wakeQueue) Less(i, j int) bool { return q[i].wake < q[j].wake }
func (q wakeQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = int32(i), int32(j)
}
func (q *wakeQueue) Push(x any) {
	t := x.(*laneless)
	t.index = int32(len(*q))
	*q = append(*q, t)
}
func (q *wakeQueue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.index = -1
	return t
}
