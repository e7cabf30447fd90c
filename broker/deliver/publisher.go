// Package deliver writes due messages to their target topics.
//
// The publisher (publisher.go) gives each target that has work a lane, so that no target
// waits for another. What it knows of the others, those that are not known yet, parked or on
// trial, is in the dispatcher (dispatcher.go, laneless.go), and the prober asks
// Kafka for all of them together. A lane is a state machine (lane.go has the table,
// lane_states.go the states): it reads what it is handed and sends it in order
// (lane_messages.go), and what follows a failure is decided in lane_judge.go. Dead letters
// that wait are in letters.go. What Kafka has acknowledged is put into the log (acks.go). Which
// partition a message goes to is decided by the message alone (partition.go). DESIGN.md has
// the invariants; Sink is what Kafka has to do.
package deliver

import (
	"context"
	"log/slog"
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
	Logger           *slog.Logger
}

// A Store is the part of *storage.Store that the publisher reads. The refs
// are sorted; what is dead is left out of the answer.
type Store interface {
	Read(refs []storage.Ref, out []storage.Entry) ([]storage.Entry, error)
	// Level is asked whenever something is written: it may rise at any time.
	Level() storage.Level
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
		log:     cfg.Logger.With("component", "publisher"),
		began:   time.Now().Add(-time.Second),
		orders:  mailbox.New[order](),
		ended:   mailbox.New[ended](),
		prober:  newProber(cfg.Sink.Partitions),
		missing: missingNames{count: make(map[string]int)},
	}
	p.commit = func(ctx context.Context, command raftfsm.Command) (raftfsm.Result, error) {
		return cfg.Log.Propose(ctx, command).Wait(ctx)
	}
	p.acks = newAcks(p.commit, p.now)
	p.condemned = digest.New(p.log, "dead-lettering messages")
	return p
}

// Hand gives messages to their lanes, in this order for each target. It does not
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
