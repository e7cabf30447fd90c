package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// A Store is the schedule of this node.
type Store interface {
	query.Store
	Level() storage.Level
	IDsOpen() bool
	Bulks() []bulk.Operation
	RunningBulk(id uint64) (bulk.Operation, bool)
	Answered(key name.Hash) (outcomes.Outcome, bool)
}

// A Log takes commands into the replicated log; *node.Node implements it.
type Log interface {
	Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal
	// Room returns why nothing is to be accepted for now, or nil.
	Room() error
	// Barrier returns once all that was acknowledged before the call is applied here.
	Barrier(ctx context.Context) error
}

// Queries tell how many messages a filter means; *query.Desk does.
type Queries interface {
	Histogram(ctx context.Context, r query.HistogramRequest) (client.Histogram, error)
}

// Orders say what a changed message is like, and a dead letter that is scheduled anew; *order.Desk does.
type Orders interface {
	// MaxDelay is the longest time from now on that any message may be due after.
	MaxDelay() time.Duration
	// CheckTopic returns why no message comes by the topic, or nil.
	CheckTopic(topic string) *client.Problem
	// Fixed returns a change with its time, if it names any, as one of delivery, or why whatever message of the topic
	// would be refused so; "": of any topic.
	Fixed(topic string, r client.ChangeRequest, now int64) (client.ChangeRequest, *client.Problem)
	Changed(l *storage.Listed, r client.ChangeRequest, now int64) (storage.Entry, *client.Problem)
	Replayed(l *order.Letter, may order.Scope, r client.ReplayRequest) (raftfsm.Operation, *client.Problem)
}

// Letters are the dead letters as Kafka has them; *deadletter.Desk reads them. They block for Kafka.
type Letters interface {
	Extent(ctx context.Context, since int64) (deadletter.Extent, error)
	ReadOn(ctx context.Context, part *deadletter.Part, from int64) (deadletter.Window, error)
	IsReplayed(l *deadletter.Found) bool
}

// A Count counts what is carried out, as of records.
type Count interface {
	// Accepted counts messages that are in the log.
	Accepted(messages int)
	// Answered counts operations with an id, by what came of them.
	Answered(answer string, operations int)
}

// Options are the parts that a Desk is made of. All are required.
type Options struct {
	Store   Store
	Log     Log
	Queries Queries
	Orders  Orders
	Letters Letters
	Count   Count
	Begun   func() error // returns why the store may lack what is committed, and the time be wrong, or nil
	Now     func() time.Time
	Due     func() time.Time // by which messages are due
	Logger  *slog.Logger
}

// A Desk starts operations, tells of them and stops them, while the node leads. Its methods may be called
// from any goroutine. Their errors are a *client.Problem without a Status.
type Desk struct {
	Options
	log    *slog.Logger
	called chan struct{} // has a value when there may be an operation that the Runner does not know
	waits  waits
}

// New returns a Desk. It starts nothing before it is asked.
func New(o Options) *Desk {
	return &Desk{Options: o, log: o.Logger.With("component", "bulk"), called: make(chan struct{}, 1)}
}

// Start starts an operation: what is pending when it comes into the log, and no more, is meant. With DryRun it
// tells how many messages that are. A key has a request that comes twice start one; "": there is none. It
// blocks until the operation is in the log of a majority, and not for what it does.
func (d *Desk) Start(ctx context.Context, r client.OperationRequest, who, key string) (client.Operation, error) {
	once, problem := onceOf(&r, key)
	if problem != nil {
		return client.Operation{}, problem
	}
	if !r.DryRun && key != "" {
		if told, known, err := d.known(ctx, once); known || err != nil {
			return told, err
		}
	}
	if err := d.Begun(); err != nil { // not only when it is proposed: what it counts from its start is by a wrong time then
		return client.Operation{}, problemOf(err)
	}
	now := d.Now().UnixMilli()
	t, problem := d.newTask(&r, now)
	if problem != nil {
		return client.Operation{}, problem
	}
	if problem := d.mayStart(); problem != nil {
		return client.Operation{}, problem
	}
	if err := d.checkTopic(ctx, &t); err != nil {
		return client.Operation{}, problemOf(err)
	}
	if err := d.match(ctx, &t); err != nil {
		return client.Operation{}, problemOf(err)
	}
	if r.DryRun {
		told := client.Operation{State: client.OperationFinished, DryRun: true, Who: who, Started: now, Ended: now}
		t.fill(&told)
		return told, nil
	}
	c := raftfsm.StartBulk{Time: now, What: t.text(), Who: who, Once: once}
	if err := bulk.CheckTexts(c.What, c.Who, "", ""); err != nil {
		return client.Operation{}, client.BadField("filter", "", "and reason are too long together: shorten them: "+err.Error())
	}
	proposal := d.Log.Propose(ctx, c)
	result, err := proposal.Wait(ctx)
	if err != nil {
		go d.callAfter(proposal)
		return client.Operation{}, notCommitted(err)
	}
	switch a := result.Answers[0][0]; {
	case a.Code == raftfsm.KeyReused:
		return client.Operation{}, keyReused()
	case a.Code == raftfsm.Conflict:
		return client.Operation{}, &client.Problem{Code: client.CodeRateLimited, Detail: fmt.Sprintf("%d operations run, as many as may: nothing was done; wait for one to end, or stop one", bulk.MostRunning)}
	case a.Code == raftfsm.Scheduled:
		if !a.Again {
			d.log.Info("operation started", "operation", a.Seq, "verb", t.Verb, "who", who, "why", t.Reason, "what", c.What)
		}
		d.call()
		return d.startedBefore(a.Seq)
	default:
		return client.Operation{}, &client.Problem{Code: client.CodeInternal, Detail: fmt.Sprintf("the log answers %v", a.Code)}
	}
}

// onceOf returns what has the request start an operation a single time, if it has a key.
func onceOf(r *client.OperationRequest, key string) (raftfsm.Once, *client.Problem) {
	if key == "" {
		return raftfsm.Once{}, nil
	}
	if problem := order.CheckKey("Idempotency-Key", key); problem != nil {
		return raftfsm.Once{}, problem
	}
	text, err := json.Marshal(r)
	if err != nil { // texts and numbers
		panic(err)
	}
	return order.OnceOf("key of an operation", key, text), nil
}

// known returns what the log has answered to a start with that key before. It comes first: what the request
// counts from the present may have passed since, and it is no less the request that was carried out.
func (d *Desk) known(ctx context.Context, once raftfsm.Once) (o client.Operation, known bool, err error) {
	if err := d.Log.Barrier(ctx); err != nil {
		return o, false, problemOf(err)
	}
	a, known := d.Store.Answered(once.Key)
	switch {
	case !known:
		return o, false, nil
	case a.By != once.Content:
		return o, true, keyReused()
	}
	o, err = d.startedBefore(a.Seq)
	return o, true, err
}

// startedBefore returns the operation that a start has led to, now or before: keys may be known for longer.
func (d *Desk) startedBefore(id uint64) (client.Operation, error) {
	o, err := d.find(id)
	if err != nil {
		return o, &client.Problem{Code: client.CodeNotFound, Detail: fmt.Sprintf("operation %d was started with this idempotency key, and no more was done now: it ended more than a day ago, or a thousand others since, and how is not known any more", id)}
	}
	return o, nil
}

func keyReused() *client.Problem {
	return &client.Problem{Code: client.CodeKeyReused, Field: "Idempotency-Key", Detail: "the idempotency key came before, with other content: nothing was done; choose another key"}
}

// callAfter calls the Runner when a start that nobody waits for any more is in the log, or will never be.
func (d *Desk) callAfter(start *raftfsm.Proposal) {
	_, _ = start.Wait(context.Background()) // the store knows what came of it
	d.call()
}

func (d *Desk) call() {
	select {
	case d.called <- struct{}{}:
	default:
	}
}

// mayStart returns why no operation can be started here, or nil.
func (d *Desk) mayStart() *client.Problem {
	if level := d.Store.Level(); level < storage.LevelFour {
		return &client.Problem{Code: client.CodeLevelTooLow, Detail: fmt.Sprintf("the feature level is %d, this takes %d: run `carillon cluster raise` when all nodes run a program that understands it", level, storage.LevelFour)}
	}
	if !d.Store.IDsOpen() {
		return &client.Problem{Code: client.CodeIDsClosed, Detail: "the leader still reads the ids of messages from before feature level 3: ask again in some minutes"}
	}
	return nil
}

// checkTopic refuses a topic without a route, by which no message comes: it is misspelled. But what waits when a
// route is removed waits on, and can be ended. If so much waits that it is not counted one by one, nobody knows
// that there is none of the topic. Of dead letters none could be scheduled.
func (d *Desk) checkTopic(ctx context.Context, t *task) error {
	if t.Filter.Topic == "" {
		return nil
	}
	problem := d.Orders.CheckTopic(t.Filter.Topic)
	if problem == nil {
		return nil
	}
	if t.Verb != client.OperationReplay {
		h, err := d.Queries.Histogram(ctx, query.HistogramRequest{Filter: client.Filter{Topic: t.Filter.Topic}})
		if err != nil {
			return err
		}
		if !h.Exact || len(h.Buckets) > 0 || h.Untold != nil {
			return nil
		}
	}
	return problem
}

// mostCounted is how many stretches are read to count what only bodies tell.
const mostCounted = 64

// match counts what the task means.
func (d *Desk) match(ctx context.Context, t *task) error {
	if t.Verb == client.OperationReplay {
		return d.matchLetters(ctx, t)
	}
	w, err := query.NewWalk(d.Store, t.Filter, maxSeq)
	if err != nil {
		return err
	}
	if !w.ByBody() {
		h, err := d.Queries.Histogram(ctx, query.HistogramRequest{Filter: t.Filter})
		if err != nil {
			return err
		}
		if !h.Exact {
			t.Within = h.Unseen
		}
		for _, b := range h.Buckets {
			t.Matched, t.Within = b.Count, b.Within
		}
		if h.Untold != nil {
			t.Within += h.Untold.Count + h.Untold.Within
		}
		return nil
	}
	if err := d.Log.Barrier(ctx); err != nil {
		return err
	}
	at := w.First()
	for range mostCounted {
		s, err := w.Stretch(ctx, at, mostLooked)
		if err != nil {
			return err
		}
		t.Matched += uint64(len(s.Met))
		if s.Done {
			t.Within = 0
			return nil
		}
		at, t.Within = s.Next, s.Pending
	}
	return nil
}

// List returns the operations that are known, the newest first.
func (d *Desk) List(ctx context.Context) (client.Operations, error) {
	if err := d.Log.Barrier(ctx); err != nil {
		return client.Operations{}, problemOf(err)
	}
	return d.Local(), nil
}

// Local returns those that this node knows of, which may be behind.
func (d *Desk) Local() client.Operations {
	all := client.Operations{Operations: []client.Operation{}}
	for _, o := range d.Store.Bulks() {
		all.Operations = append(all.Operations, d.tell(o))
	}
	return all
}

// Get returns one operation.
func (d *Desk) Get(ctx context.Context, id string) (client.Operation, error) {
	number, problem := numberOf(id)
	if problem != nil {
		return client.Operation{}, problem
	}
	if err := d.Log.Barrier(ctx); err != nil {
		return client.Operation{}, problemOf(err)
	}
	return d.find(number)
}

// Stop ends an operation: what is done stays done, and no more is. One that has ended is told as it is.
func (d *Desk) Stop(ctx context.Context, id, who, reason string) (client.Operation, error) {
	number, problem := numberOf(id)
	if problem != nil {
		return client.Operation{}, problem
	}
	if err := d.Begun(); err != nil {
		return client.Operation{}, problemOf(err)
	}
	c := raftfsm.StopBulk{Time: d.Now().UnixMilli(), ID: number, Problem: "stopped by " + who}
	if reason != "" {
		c.Problem += ": " + reason
	}
	if err := bulk.CheckTexts("", "", "", c.Problem); err != nil {
		return client.Operation{}, client.BadField("reason", reason, fmt.Sprintf("is too long: write %d bytes at most", bulk.MostProblem-len(c.Problem)+len(reason)))
	}
	result, err := d.Log.Propose(ctx, c).Wait(ctx)
	if err != nil {
		return client.Operation{}, notCommitted(err)
	}
	if result.Changed {
		d.log.Info("operation stopped", "operation", number, "who", who, "why", reason)
	}
	return d.find(number)
}

func (d *Desk) find(id uint64) (client.Operation, error) {
	for _, o := range d.Store.Bulks() {
		if o.ID == id {
			return d.tell(o), nil
		}
	}
	return client.Operation{}, &client.Problem{Code: client.CodeNotFound, Detail: fmt.Sprintf("no operation %d is known: it never was, or ended more than a day ago", id)}
}

// tell returns what is told of an operation, and why it waits if it does here.
func (d *Desk) tell(o bulk.Operation) client.Operation {
	told := tell(o)
	if why := d.waits.of(o.ID); why != "" && o.State == bulk.Running {
		told.Problem = "it waits: " + why
	}
	return told
}

func numberOf(id string) (uint64, *client.Problem) {
	number, err := strconv.ParseUint(id, 10, 64)
	if err != nil || number == 0 {
		return 0, client.BadField("operation", id, "is no id of an operation: give the number that it was started with")
	}
	return number, nil
}

// ofFilter is a problem of a question as one of the filter of an operation.
func ofFilter(p *client.Problem) *client.Problem {
	told := *p
	told.Field = "filter." + p.Field
	if p.Field == "state" { // as a parameter is called, which may come several times
		told.Field = "filter.states"
	}
	return &told
}

// notCommitted says what the error of a proposal means to who asked.
func notCommitted(err error) *client.Problem {
	if errors.Is(err, raftfsm.ErrInDoubt) {
		return &client.Problem{Code: client.CodeInDoubt, Detail: "sent, and what came of it is not known: the list of operations tells: " + err.Error()}
	}
	return problemOf(err)
}

// problemOf says what an error means to who asked, if nothing was proposed: then there is no doubt, even
// where a barrier has one.
func problemOf(err error) *client.Problem {
	p := &client.Problem{Code: client.CodeInternal, Detail: err.Error()}
	wrong, isFilter := errors.AsType[*client.Problem](err)
	switch {
	case isFilter:
		return ofFilter(wrong)
	case errors.Is(err, raftfsm.ErrNotLeader):
		p.Code, p.Detail = client.CodeNotLeader, "this node does not lead, nothing was done: ask again"
	case errors.Is(err, raftfsm.ErrLevel):
		p.Code, p.Detail = client.CodeLevelTooLow, "nothing was done: "+err.Error()
	case errors.Is(err, deadletter.ErrKafka), errors.Is(err, raftfsm.ErrBusy), errors.Is(err, raftfsm.ErrClosed), errors.Is(err, raftfsm.ErrInDoubt),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p.Code, p.Detail = client.CodeUnavailable, "nothing was done: ask again: "+err.Error()
	}
	return p
}
