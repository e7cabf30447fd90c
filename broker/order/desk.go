package order

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// A Store is the schedule of this node.
type Store interface {
	Level() storage.Level
	IDsOpen() bool
	ClusterID() [16]byte
	Get(ctx context.Context, topic, id string) (storage.Known, error)
	List(ctx context.Context, q storage.ListQuery) (storage.Page, error)
	// Answered returns what is kept of the answer to the request with this key.
	Answered(key name.Hash) (outcomes.Outcome, bool)
}

// A Log takes commands into the replicated log; *node.Node implements it.
type Log interface {
	Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal
	// Barrier returns once an entry of this leader's own term, proposed after the call, is committed and applied here.
	Barrier(ctx context.Context) error
	// Room returns why nothing is to be accepted for now, or nil.
	Room() error
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
	Config config.Config
	Store  Store
	Log    Log
	Count  Count
	Begun  func() error // returns why the store may lack what is committed, and the time be wrong, or nil
	Now    func() time.Time
	Due    func() time.Time // by which messages are due
}

// A Desk carries out what callers ask for. Its methods may be called from any goroutine. They block until
// what they ask is in the log of a majority, and applied here; ctx bounds that.
//
// An error is a *client.Problem without a Status. With CodeInDoubt it may have taken effect, or may yet;
// with any other nothing was done.
type Desk struct {
	config config.Config
	store  Store
	log    Log
	counts Count
	begun  func() error
	clock  func() time.Time
	due    func() time.Time
	line   line

	searches *semaphore.Weighted
}

// New returns a Desk. It starts nothing before it is asked.
func New(o Options) *Desk {
	d := &Desk{config: o.Config, store: o.Store, log: o.Log, counts: o.Count, begun: o.Begun, clock: o.Now, due: o.Due, searches: semaphore.NewWeighted(1)}
	d.line.commit = d.commit
	return d
}

// A Scope returns why who asks may not schedule a message, which would go to the target, or nil. A nil
// Scope lets anybody.
type Scope func(r *client.ScheduleRequest, target string) *client.Problem

// A Condition is what must hold of the message that waits under an id. The zero value: nothing.
type Condition struct {
	If  raftfsm.Condition
	Seq uint64 // with Exactly
}

// Schedule schedules messages, each for itself: the items are in the order of the requests. If the
// context ends, or the leader does, some may be in the log and others not; each item tells.
func (d *Desk) Schedule(ctx context.Context, may Scope, requests []client.ScheduleRequest) []client.BatchItem {
	items := make([]client.BatchItem, len(requests))
	if problem := d.mayAccept(storage.LevelFour); problem != nil {
		for i := range items {
			items[i].Problem = problem
		}
		return items
	}
	var call call
	now := d.now()
	for i := range requests {
		op, problem := d.scheduled(&requests[i], may, now)
		if problem != nil {
			items[i].Problem = problem
			continue
		}
		call.add(op, &items[i])
	}
	d.tellRepetitions(ctx, may, requests, items)
	d.carryOut(ctx, call)
	return items
}

// Cancel ends the message that waits under the id, which is never delivered then.
func (d *Desk) Cancel(ctx context.Context, topic, id string, c Condition) (client.Answer, error) {
	if problem := d.levelOf(storage.LevelThree); problem != nil {
		return client.Answer{}, problem
	}
	if err := config.CheckTopicName(topic); err != nil {
		return client.Answer{}, badTopic(topic, err)
	}
	if origin, ok := nameless(topic, id); ok {
		return d.cancelOfRecord(ctx, origin, c)
	}
	answer, err := d.one(ctx, raftfsm.Operation{Verb: raftfsm.Cancel, If: c.If, Seq: c.Seq, Entry: storage.Entry{Topic: topic, ID: id}})
	if err == nil && answer.Code == client.AnswerAlreadyCancelled && c.If == raftfsm.Exactly && answer.Seq != c.Seq {
		// A later message of the id was cancelled. Of the one that is meant the log tells nothing: it may have been delivered.
		_, problem := tell(topic, id, raftfsm.Answer{Code: raftfsm.Conflict})
		return client.Answer{}, problem
	}
	return answer, err
}

// mayAccept returns why no message is taken in for now, or nil.
func (d *Desk) mayAccept(needs storage.Level) *client.Problem {
	if problem := d.levelOf(needs); problem != nil {
		return problem
	}
	if err := d.log.Room(); errors.Is(err, raftfsm.ErrNotLeader) {
		return problemOf(err)
	} else if err != nil {
		return &client.Problem{Code: client.CodeUnavailable, Detail: fmt.Sprintf("the leader takes no message in for now: %v", err)}
	}
	return nil
}

// A call is operations with the places of what comes of them.
type call struct {
	operations []raftfsm.Operation
	items      []*client.BatchItem
}

func (c *call) add(op raftfsm.Operation, item *client.BatchItem) {
	c.operations, c.items = append(c.operations, op), append(c.items, item)
}

// carryOut has the call in the log, in as many commands as it takes. These are under way together, so that a
// large batch does not wait for each; but one that names an id or a key which an earlier one names waits for
// that one, so that all that is about one id is done in the order of the call:
//
//	a b c | d e f | g a | h
//	|---------->           a b c and d e f together
//	              |------> g a, since a comes again, and h
//
// If an earlier one is not answered, the later ones are not begun: they might come before it.
func (d *Desk) carryOut(ctx context.Context, c call) {
	parts := partsOf(c)
	if len(parts) == 1 {
		d.together(ctx, parts)
		return
	}
	begun := 0 // parts that are answered, or were
	seen := make(map[naming]bool)
	for i := range parts {
		if slices.ContainsFunc(parts[i].operations, func(op raftfsm.Operation) bool { return seen[idOf(&op)] || op.Once != nil && seen[keyOf(&op)] }) {
			if !d.together(ctx, parts[begun:i]) {
				notBegun(parts[i:])
				return
			}
			begun = i
			clear(seen)
		}
		for _, op := range parts[i].operations {
			seen[idOf(&op)] = true
			if op.Once != nil {
				seen[keyOf(&op)] = true
			}
		}
	}
	d.together(ctx, parts[begun:])
}

// A naming is what two operations may not have in common that are under way together.
type naming struct {
	topic, id string    // or
	key       name.Hash // of an idempotency key
}

func idOf(op *raftfsm.Operation) naming  { return naming{topic: op.Entry.Topic, id: op.Entry.ID} }
func keyOf(op *raftfsm.Operation) naming { return naming{key: op.Once.Key} }

// partsOf parts a call into commands.
func partsOf(c call) (parts []call) {
	size := 0
	for i, op := range c.operations {
		bytes := raftfsm.OperationSize(&c.operations[i], "")
		if len(parts) == 0 || size+bytes > raftfsm.ProposalBytes {
			parts, size = append(parts, call{}), 0
		}
		size += bytes
		parts[len(parts)-1].add(op, c.items[i])
	}
	return parts
}

// together carries out parts at the same time, and reports whether all of them were answered.
func (d *Desk) together(ctx context.Context, parts []call) bool {
	answered := make(chan bool, len(parts))
	for _, part := range parts {
		go func() { answered <- d.carryOutPart(ctx, part) }()
	}
	all := true
	for range parts {
		all = <-answered && all
	}
	return all
}

// notBegun tells so.
func notBegun(parts []call) {
	for _, part := range parts {
		for _, item := range part.items {
			item.Problem = &client.Problem{Code: client.CodeUnavailable, Detail: "nothing was done: a part of the batch before this one was not answered, and has an id or a key that comes again: ask again"}
		}
	}
}

// carryOutPart reports whether the log has answered.
func (d *Desk) carryOutPart(ctx context.Context, c call) bool {
	answers, err := d.line.do(ctx, c.operations)
	for i, item := range c.items {
		if err != nil {
			item.Problem = problemOf(err)
			continue
		}
		e := &c.operations[i].Entry
		d.count(answers[i])
		item.Answer, item.Problem = tell(e.Topic, e.ID, answers[i])
	}
	return err == nil
}

// one carries out a single operation.
func (d *Desk) one(ctx context.Context, op raftfsm.Operation) (client.Answer, error) {
	var item client.BatchItem
	d.carryOutPart(ctx, call{[]raftfsm.Operation{op}, []*client.BatchItem{&item}})
	if item.Problem != nil {
		return client.Answer{}, item.Problem
	}
	return *item.Answer, nil
}

// commit takes operations into the log, at the time when they are proposed.
func (d *Desk) commit(ctx context.Context, operations []raftfsm.Operation) (raftfsm.Result, error) {
	return d.log.Propose(ctx, raftfsm.Operate{Time: d.now(), Operations: operations}).Wait(ctx)
}

func (d *Desk) count(a raftfsm.Answer) {
	d.counts.Answered(a.Code.String(), 1)
	if a.Code == raftfsm.Scheduled || a.Code == raftfsm.Superseded {
		d.counts.Accepted(1)
	}
}

func (d *Desk) now() int64 { return d.clock().UnixMilli() }

// atOnce returns when what is to be due at once is due, in epoch milliseconds.
func (d *Desk) atOnce() int64 { return d.due().UnixMilli() }

// CheckTopic returns why no message comes by the topic, or nil: it has a route.
func (d *Desk) CheckTopic(topic string) *client.Problem {
	_, problem := d.routeOf(topic)
	return problem
}

// MaxDelay is the longest time from now on that the configuration lets any message be due after.
func (d *Desk) MaxDelay() time.Duration { return d.config.MaxDelay() }

func (d *Desk) judge() *ingest.Judge { return ingest.NewJudge(d.config, d.store.ClusterID()) }

// problemOf says what an error of the log means to who asked.
func problemOf(err error) *client.Problem {
	p := &client.Problem{Code: client.CodeInDoubt, Detail: "sent, and what came of it is not known: it may have taken effect, or may yet; ask for the id: " + err.Error()}
	switch {
	case errors.Is(err, raftfsm.ErrNotLeader):
		p.Code, p.Detail = client.CodeNotLeader, "this node does not lead, nothing was done: ask again"
	case errors.Is(err, raftfsm.ErrBusy), errors.Is(err, raftfsm.ErrClosed):
		p.Code, p.Detail = client.CodeUnavailable, "nothing was done: ask again: "+err.Error()
	case errors.Is(err, raftfsm.ErrLevel):
		p.Code, p.Detail = client.CodeLevelTooLow, "nothing was done: "+err.Error()
	case errors.Is(err, raftfsm.ErrTooLarge):
		p.Code, p.Detail = client.CodeTooLarge, "nothing was done: "+err.Error()
	case errors.Is(err, raftfsm.ErrCommand):
		p.Code, p.Detail = client.CodeInternal, "nothing was done: "+err.Error()
	}
	return p
}
