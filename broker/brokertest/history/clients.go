package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

// Clients schedule, change, cancel, hurry, get and list messages of a few ids through [client.Admin], and
// keep what they were told. They are random by the seed alone.
type Clients struct {
	topic string
	seed  uint64
	begin time.Time

	mu     sync.Mutex
	calls  []Call
	undone map[string]bool // values of which nothing was done, as the answer said
	wrong  []error         // answers that nobody should get
}

// Ids is how many ids all calls are about: few, so that they meet.
const Ids = 4

// NewClients returns clients of a delay topic, whose calls begin now.
func NewClients(topic string, seed uint64) *Clients {
	return &Clients{topic: topic, seed: seed, begin: time.Now(), undone: make(map[string]bool)}
}

// Run makes one call after the other until ctx ends, and blocks until the last one has ended. Several may run
// at once, each with its number.
func (c *Clients) Run(ctx context.Context, number int, admin *client.Admin) {
	one := &aClient{Clients: c, number: number, admin: admin, chance: rand.New(rand.NewPCG(c.seed, uint64(number)))}
	defer one.hasty.Wait()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(one.chance.IntN(400)) * time.Millisecond):
		}
		id := fmt.Sprint("id-", one.chance.IntN(Ids))
		switch one.chance.IntN(12) {
		case 0, 1:
			one.get(id)
		case 2:
			one.list()
		case 3, 4:
			one.change(i, id)
		case 5:
			one.now(id)
		case 6, 7:
			one.cancel(number, one.named(id))
		default:
			one.schedule(i, id)
		}
	}
}

// aClient makes one call after the other, but for cancels about the time when its messages are due.
type aClient struct {
	*Clients
	number int
	admin  *client.Admin
	chance *rand.Rand
	hasty  sync.WaitGroup
}

// named names what waits under the id, or one message in particular.
func (c *aClient) named(id string) client.Name {
	n := client.Name{Topic: c.topic, ID: id}
	if c.chance.IntN(2) == 0 {
		n.Seq = c.anySeq(id)
	}
	return n
}

// anySeq returns one that was told of the id, mostly the last.
func (c *aClient) anySeq(id string) (seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call.ID == id && call.Seq > 0 && (seq == 0 || c.chance.IntN(4) > 0) {
			seq = call.Seq
		}
	}
	return max(seq, 1)
}

func (c *aClient) value(i int) string { return fmt.Sprintf("%d of %d", i, c.number) }

func (c *aClient) at() time.Time {
	return time.Now().Add(time.Duration(c.chance.IntN(3000)) * time.Millisecond)
}

// schedule schedules a message, and may cancel it about when it is due. With an idempotency key it asks again
// with the same until it has the answer: that is one call.
func (c *aClient) schedule(i int, id string) {
	call := Call{ID: id, Client: c.number, Verb: Schedule, Value: c.value(i)}
	at := c.at()
	r := client.ScheduleRequest{Topic: c.topic, ID: id, DeliverAt: at.UTC().Format(time.RFC3339Nano), Value: client.Text(call.Value)}
	if c.chance.IntN(4) == 0 {
		call.If, call.Exact = raftfsm.Condition(1+c.chance.IntN(3)), c.anySeq(id)
		r.If = [...]string{raftfsm.Absent: client.ConditionAbsent, raftfsm.Present: client.ConditionPresent, raftfsm.Exactly: strconv.FormatUint(call.Exact, 10)}[call.If]
	}
	tries := 1
	if c.chance.IntN(2) == 0 {
		r.IdempotencyKey, tries = "the key of "+call.Value, 10
	}
	c.write(call, func(ctx context.Context) (a client.Answer, err error) {
		var doubt error
		for range tries {
			a, err = c.admin.Schedule(ctx, r)
			switch {
			case errors.Is(err, client.ErrInDoubt):
				doubt = err
			case doubt == nil || !errors.Is(err, client.ErrUnavailable):
				return a, err
			}
		}
		return a, doubt
	})
	if c.chance.IntN(2) == 0 {
		about := at.Add(time.Duration(c.chance.IntN(60)-40) * time.Millisecond)
		other := c.number + 100*(i+1) // its call overlaps with those of this client
		c.hasty.Go(func() {
			time.Sleep(time.Until(about))
			c.cancel(other, client.Name{Topic: c.topic, ID: id})
		})
	}
}

func (c *aClient) change(i int, id string) {
	n := c.named(id)
	call := conditional(Call{ID: id, Client: c.number, Verb: Change, Value: c.value(i)}, n)
	r := client.ChangeRequest{DeliverAt: c.at().UTC().Format(time.RFC3339Nano), Value: client.Text(call.Value)}
	c.write(call, func(ctx context.Context) (client.Answer, error) { return c.admin.Change(ctx, n, r) })
}

// now is a change that keeps the value.
func (c *aClient) now(id string) {
	n := c.named(id)
	call := conditional(Call{ID: id, Client: c.number, Verb: Change}, n)
	c.write(call, func(ctx context.Context) (client.Answer, error) { return c.admin.Now(ctx, n, "") })
}

func (c *aClient) cancel(number int, n client.Name) {
	call := conditional(Call{ID: n.ID, Client: number, Verb: Cancel}, n)
	c.write(call, func(ctx context.Context) (client.Answer, error) { return c.admin.Cancel(ctx, n, "") })
}

// conditional is the call on the condition that the name has.
func conditional(call Call, n client.Name) Call {
	if n.Seq > 0 {
		call.If, call.Exact = raftfsm.Exactly, n.Seq
	}
	return call
}

// codes of what took effect.
var codes = map[string]raftfsm.Code{
	client.AnswerScheduled: raftfsm.Scheduled, client.AnswerReplaced: raftfsm.Superseded,
	client.AnswerCancelled: raftfsm.WasCancelled, client.AnswerAlreadyCancelled: raftfsm.AlreadyCancelled,
}

// refusals are codes of what did not.
var refusals = map[error]raftfsm.Code{
	client.ErrConflict: raftfsm.Conflict, client.ErrTooLate: raftfsm.TooLate, client.ErrNotFound: raftfsm.NotFound,
}

// write asks for what changes something. One that certainly did nothing leaves no trace.
func (c *aClient) write(call Call, ask func(context.Context) (client.Answer, error)) {
	ctx, sent := traced()
	call.From, call.To = c.elapsed(), math.MaxInt64
	answer, err := ask(ctx)
	to := c.elapsed()
	c.mu.Lock()
	defer c.mu.Unlock()
	problem := &client.Problem{}
	switch {
	case err == nil:
		call.To, call.Code, call.Seq, call.Before = to, codes[answer.Code], answer.Seq, answer.Before
		if answer.Again && call.Verb == Schedule {
			call.Code = 0 // what it replaced is not told any more
		}
	case errors.Is(err, client.ErrInDoubt):
	case errors.Is(err, client.ErrUnavailable):
		c.undone[call.Value] = true
		return
	case errors.As(err, &problem):
		for refusal, code := range refusals {
			if errors.Is(err, refusal) {
				call.To, call.Code, call.Seq = to, code, problem.Seq
				if problem.Outcome != nil {
					call.Seq, call.Told = max(call.Seq, problem.Outcome.Seq), ended(problem.Outcome.Kind)
				}
			}
		}
	}
	if err != nil && call.Code == 0 && !errors.Is(err, client.ErrInDoubt) {
		c.wrong = append(c.wrong, fmt.Errorf("%s: %w", call, err))
	}
	call.Repeated = sent.Load() > 1
	c.calls = append(c.calls, call)
}

// traced returns a context that counts how often a request is sent.
func traced() (context.Context, *atomic.Int32) {
	sent := new(atomic.Int32)
	return httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}), sent
}

func (c *Clients) elapsed() int64 { return int64(time.Since(c.begin)) }

func (c *aClient) get(id string) {
	call := Call{ID: id, Client: c.number, Verb: Get, From: c.elapsed()}
	life, err := c.admin.Get(context.Background(), c.topic, id)
	if call.To = c.elapsed(); err != nil && !errors.Is(err, client.ErrNotFound) {
		return
	}
	call.Told, call.Seq = Known(life)
	c.keep(call)
}

// Known returns what the newest message is of an id of which this is known, and its seq.
func Known(l client.Life) (told What, seq uint64) {
	for _, o := range l.Outcomes {
		if o.Seq > seq {
			seq, told = o.Seq, ended(o.Kind)
		}
	}
	if m := l.Message; m != nil && m.Seq > seq {
		seq, told = m.Seq, Waiting
		switch m.State {
		case client.StateClaimed:
			told = Claimed
		case client.StateExpired:
			told = Expired
		}
	}
	return told, seq
}

// ended returns what a message is that has ended so.
func ended(kind string) What {
	switch kind {
	case client.OutcomeCancelled:
		return Cancelled
	case client.OutcomeExpired:
		return Expired
	}
	return Delivered
}

// list reads what waits under any id. Histories are judged id by id, so it is a call for each. One that broke
// on the way is not of one moment.
func (c *aClient) list() {
	ctx, sent := traced()
	read := Call{Client: c.number, Verb: List, From: c.elapsed()}
	listed := make(map[string]uint64)
	for m, err := range c.admin.Messages(ctx, client.Filter{Topic: c.topic}) {
		if err != nil {
			return
		}
		if m.State != client.StateClaimed {
			listed[m.ID] = m.Seq
		}
	}
	read.To = c.elapsed()
	if sent.Load() > 1 {
		return
	}
	for i := range Ids {
		read.ID = fmt.Sprint("id-", i)
		read.Seq = listed[read.ID]
		c.keep(read)
	}
}

func (c *Clients) keep(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}
