package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/bulk"
	"github.com/carillonmq/carillon/broker/clock"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
)

// Options are the parts that a Broker is made of. All are required but Now,
// DiscoverEvery, CompareEvery, AskReach, AskClock, Trouble and Limits.
type Options struct {
	Config config.Config // resolved and validated
	Node   *node.Node    // open; the caller closes it after Run
	Source func() (ingest.Source, error)
	Sink   func() (Sink, error)
	// Survey asks each Kafka broker that Kafka lists, and returns the ids of those that answer this node and of those
	// that do not, or an error when none does. It blocks for some seconds at most.
	Survey  func(ctx context.Context) (reached, unreached []int32, err error)
	Letters deadletter.Kafka
	Metrics *Metrics
	// Now is the clock; nil: the machine's. Only with that is there a timer of the
	// kernel (see schedule.Alarm), which would ring at other times than a clock of the caller's.
	Now    func() time.Time
	Logger *slog.Logger
	// DiscoverEvery is how often Kafka is asked for the delay topics; 0: every second, which
	// keeps a new partition from going unseen for two, and a new topic, unless Kafka has
	// more than 500: then all are listed after 2 ms for each, 10 s at most. With more
	// than 500 partitions of delay topics it is asked as much more rarely. Virtual years
	// need it longer.
	DiscoverEvery time.Duration
	// AskReach asks another member whether Kafka answers it and it has room (ReachKafka); an error
	// says why Kafka does not. It blocks for some seconds at most. A cluster of one goes without.
	AskReach func(ctx context.Context, m member.Member) (Reached, error)
	// AskClock asks another member for its clock (Clock). It blocks until ctx ends at most.
	// A cluster of one goes without.
	AskClock func(ctx context.Context, m member.Member) (ClockReading, error)
	// Trouble returns what is wrong with the parts of the node that run beside the Broker, for its
	// Status; nil: there are none.
	Trouble func() []string
	// CompareEvery is how often that is asked of all when all is well; 0: every ten
	// seconds. Virtual years need it longer.
	CompareEvery time.Duration
	// Limits bound what a term has in memory; zero: DefaultLimits.
	Limits Limits
	// Ahead returns what the scheduler reads ahead from; nil: the node's store itself. Tests have one
	// that takes its time, as disks do.
	Ahead func(schedule.Store) schedule.Store
}

// A Sink writes target topics, and knows which Kafka brokers it reaches.
type Sink interface {
	deliver.Sink
	// Unreached returns the addresses of those that Kafka lists and that do not answer, or did not when they were
	// connected to last. It does not block.
	Unreached() []string
	// Survey is Options.Survey, by all ways to Kafka that the Sink knows.
	Survey(ctx context.Context) (reached, unreached []int32, err error)
}

// Limits are those of a term's parts. Each is what a node needs for its speed; tests have smaller
// ones, so that what is rare becomes common.
type Limits struct {
	Ingest   ingest.Limits
	Schedule schedule.Limits
	Deliver  deliver.Limits
}

// DefaultLimits returns those that a node runs with.
func DefaultLimits() Limits {
	return Limits{Ingest: ingest.DefaultLimits(), Schedule: schedule.DefaultLimits(), Deliver: deliver.DefaultLimits()}
}

// A Broker leads whenever its node does: it runs one term after the other.
type Broker struct {
	config    config.Config
	node      *node.Node
	newSource func() (ingest.Source, error)
	newSink   func() (Sink, error)
	survey    func(context.Context) (reached, unreached []int32, err error)
	metrics   *Metrics
	clock     *clock.Clock
	now       func() time.Time                   // of the clock
	newAlarm  func(*slog.Logger) *schedule.Alarm // may return nil
	logger    *slog.Logger                       // for the parts of a term
	log       *slog.Logger                       // its own
	discover  time.Duration
	// compareEvery is the time between two comparisons of clocks.
	compareEvery time.Duration
	askReach     func(context.Context, member.Member) (Reached, error)
	askClock     func(context.Context, member.Member) (ClockReading, error)
	trouble      func() []string
	limits       Limits
	ahead        func(schedule.Store) schedule.Store
	reach        *reach
	progress     progress
	keeps        time.Duration // how long leadership is kept after a term that has ended in doubt, and
	doubted      time.Time     // when the last one has; both of Run alone
	skew         *skew
	queries      *query.Desk
	orders       *order.Desk
	deadLetters  *deadletter.Desk
	operations   *bulk.Desk
	report       atomic.Pointer[report.Report] // of the running term, nil when there is none
	searched     atomic.Bool                   // storage, for strays
	hasBegun     atomic.Bool                   // since this node leads it has applied what was committed before, and compared clocks: see usersLog
}

// New returns a Broker that does nothing until Run.
func New(o Options) *Broker {
	alarms := func(*slog.Logger) *schedule.Alarm { return nil } // with a clock of its own, which may be a virtual one
	if o.Now == nil {
		o.Now, alarms = time.Now, schedule.NewAlarm
	}
	if o.Trouble == nil {
		o.Trouble = func() []string { return nil }
	}
	if o.Ahead == nil {
		o.Ahead = func(s schedule.Store) schedule.Store { return s }
	}
	source, sink := prompt(o.Source, o.Sink)
	b := &Broker{
		config:    o.Config,
		node:      o.Node,
		newSource: source,
		newSink:   sink,
		survey:    o.Survey,
		metrics:   o.Metrics,
		newAlarm:  alarms,
		logger:    o.Logger,
		log:       o.Logger.With("component", "broker"),
		discover:  cmp.Or(o.DiscoverEvery, time.Second),
		askReach:  o.AskReach,
		askClock:  o.AskClock,
		trouble:   o.Trouble,
		limits:    cmp.Or(o.Limits, DefaultLimits()),
		ahead:     o.Ahead,

		compareEvery: cmp.Or(o.CompareEvery, compareEvery),
	}
	b.clock = clock.New(clock.Config{Wall: o.Now, MaxSkew: o.Config.Clock.MaxSkew, OnStep: b.clockStepped})
	b.now = b.clock.Now
	b.reach, b.skew = newReach(b, o.Node.Room), newSkew(b)
	b.queries = query.New(o.Node.Store(), queryLog{o.Node, b.stateTime}).Telling(b.aside)
	b.deadLetters = deadletter.New(deadletter.Options{
		Kafka: o.Letters, Store: o.Node.Store(), Topics: o.Config.DeadLetterTopics(), Now: o.Now,
		TargetOf: func(topic string) string { return o.Config.RouteOfPending(topic).Target(topic) },
	})
	b.orders = order.New(order.Options{Config: o.Config, Store: o.Node.Store(), Log: b.users(), Count: o.Metrics, Begun: b.users().Begun, Now: b.now, Due: b.clock.Due})
	b.operations = bulk.New(bulk.Options{Store: o.Node.Store(), Log: b.users(), Queries: b.queries, Orders: b.orders, Letters: b.deadLetters, Count: o.Metrics, Begun: b.users().Begun, Now: b.now, Due: b.clock.Due, Logger: o.Logger})
	return b
}

// Run leads whenever this node is the leader, until ctx ends or the node fails. At
// the end it finishes what it has sent to Kafka, hands leadership over and returns
// nil; the node is still open then. Call it once.
func (b *Broker) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case err := <-b.node.Failed():
			return fmt.Errorf("node failed: %w", err)
		case <-ctx.Done():
			return nil
		}
	})
	group.Go(func() error {
		b.reach.recheck(ctx)
		return nil
	})
	group.Go(func() error {
		b.reach.looks(ctx)
		return nil
	})
	group.Go(func() error {
		b.skew.run(ctx)
		return nil
	})
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				b.handOver()
				return nil
			case leadership := <-b.node.Terms():
				b.lead(ctx, leadership)
			}
		}
	})
	return group.Wait()
}

// lead runs terms for as long as the leadership lasts. After a doubt it gives
// leadership away, if there is somebody to take it, and else tries again. It does so ever later
// while doubts follow each other: a term that can begin on no node would go round by the hundred.
func (b *Broker) lead(ctx context.Context, leadership *node.Leadership) {
	const (
		pause     = 500 * time.Millisecond
		mostPause = 10 * time.Second
		calm      = 2 * time.Minute
	)
	defer b.hasBegun.Store(false)
	for {
		report := report.New()
		b.report.Store(report)
		err := b.runTerm(ctx, leadership, report)
		b.report.Store(nil)
		if ctx.Err() != nil {
			return
		}
		over := leadership.Over()
		b.log.Log(ctx, endLevel(err, over), "term ended", "term", leadership.Term, "reason", err)
		if over {
			return
		}
		if time.Since(b.doubted) >= calm {
			b.keeps = 0
		}
		b.doubted = time.Now()
		select {
		case <-leadership.Done():
			return
		case <-ctx.Done():
			return
		case <-time.After(b.keeps):
		}
		b.keeps = min(max(2*b.keeps, pause), mostPause)
		b.handOver()
		select {
		case <-leadership.Done():
			return
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// endLevel returns how loudly the end of a term is logged. That another node leads
// now is the ordinary way; what ends it otherwise wants to be looked at.
func endLevel(reason error, over bool) slog.Level {
	if over || errors.Is(reason, errLeadershipLost) || errors.Is(reason, raftfsm.ErrNotLeader) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// handOver gives leadership to another member if this node has it. It blocks for
// a second or so at most.
func (b *Broker) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := b.node.TransferLeadership(ctx)
	switch {
	case err == nil:
		b.log.Info("leadership handed over")
	case errors.Is(err, raftfsm.ErrNotLeader), errors.Is(err, node.ErrNoTarget):
	default:
		b.log.Warn("leadership not handed over, the others will elect a leader", "error", err)
	}
}

func (b *Broker) clockStepped(step time.Duration) {
	b.metrics.ClockStepped(step)
	b.log.Warn("the clock was set", "by", step)
}

// stateTime returns the time to which questions move the state's, epoch milliseconds: that of the leader's clock, as
// far as it is believed (package clock). What has expired by it has for good, as what is delivered is. So until a
// term here has compared clocks it is 0, which moves nothing: a clock that was wrong when the process started is
// believed until then. For the same reason nothing that users ask for is proposed until then (usersLog).
func (b *Broker) stateTime() int64 {
	if !b.hasBegun.Load() {
		return 0
	}
	return b.now().UnixMilli()
}

// aside returns which dead letters the term that runs here has found to be refused by their topics: by seq, when
// they are due.
func (b *Broker) aside() map[uint64]int64 {
	if report := b.report.Load(); report != nil {
		return report.Aside()
	}
	return nil
}

// leads reports whether there is a term here, be it that it only begins.
func (b *Broker) leads() bool { return b.report.Load() != nil }

// Leading reports whether a term runs here.
func (b *Broker) Leading() bool {
	report := b.report.Load()
	return report != nil && report.Read().Running
}

// Operations returns who carries out operations on many messages, while this node leads.
func (b *Broker) Operations() *bulk.Desk { return b.operations }
