package brokertest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// changeHeader has the number of the change that a message is by.
const changeHeader = "h-change"

// A change is one that was asked for. Its answer is there when the player has waited for all of them.
type change struct {
	ledger.Change
	request client.ChangeRequest
	exactly bool // the message that waits when it is asked, and no other
}

// change asks the leader to change what waits under ids, at once, and goes on: what else the script wants happens
// before the answers have come; with "about" one after the other, so far apart (step.apart). A % in deliver-id is the
// number of the change, modulo ids; the due times lie spread apart. With "now" they are to be delivered now, with "exactly" only the messages that wait then.
func (p *player) change(topic string, a arguments) error {
	leader := p.find("leader")
	if leader == nil {
		return errNoEffect
	}
	count, err := strconv.Atoi(a.value("count", "1"))
	if err != nil {
		return err
	}
	due, err := p.dueOf(a)
	if err != nil {
		return err
	}
	spread := p.span(a.value("spread", "0s"))
	for i := range count {
		c := &change{Change: ledger.Change{ID: ledger.ID{Topic: topic, Text: a.changed(i, count)}, From: time.Now()}, exactly: a.has("exactly")}
		if !a.has("now") {
			c.Number, c.Target = len(p.changes)+1, a.value(client.HeaderTo, "")
			c.request.DeliverTo = c.Target
			c.request.Headers = []client.DataHeader{{Key: changeHeader, Value: client.Text(strconv.Itoa(c.Number))}}
			if !due.IsZero() {
				moment := due.Add(spread * time.Duration(i) / time.Duration(count)).Truncate(time.Millisecond)
				c.Due, c.request.DeliverAt = moment.UnixMilli(), moment.UTC().Format(time.RFC3339Nano)
			}
		}
		p.changes = append(p.changes, c)
		p.asking.Go(func() { p.ask(leader, c) })
	}
	return nil
}

// changed returns the id that a change of so many is about.
func (a arguments) changed(i, count int) string {
	ids, err := strconv.Atoi(a.value("ids", strconv.Itoa(count)))
	if err != nil {
		ids = count
	}
	return strings.ReplaceAll(a.value(client.HeaderID, "%"), "%", strconv.Itoa(i%ids))
}

// dueOf returns when what a step changes is to be due; the zero time: when it was.
func (p *player) dueOf(a arguments) (time.Time, error) {
	if after, given := a.values[client.HeaderAfter]; given {
		return time.Now().Add(p.span(after)), nil
	}
	text, given := a.values[client.HeaderAt]
	if !given {
		return time.Time{}, nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	return time.Parse(time.RFC3339Nano, text)
}

// ask has a node carry the change out, and notes its answer.
func (p *player) ask(n *node, c *change) {
	life, desk, store := *n.life.Load(), n.broker.Orders(), n.raft().Store()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second+5*p.config.Raft.Heartbeat)
	defer cancel()
	var condition order.Condition
	if c.exactly {
		condition = order.Condition{If: raftfsm.Exactly, Seq: waitingUnder(ctx, store, c.ID)}
	}
	var answer client.Answer
	var err error
	if c.Number == 0 {
		answer, err = desk.Now(ctx, c.Topic, c.Text, condition)
	} else {
		answer, err = desk.Change(ctx, c.Topic, c.Text, condition, c.request)
	}
	c.To = time.Now()
	c.answered(answer, err)
	if life.Err() != nil {
		c.Answer = ledger.InDoubt // it is being ended, and perhaps killed: then nobody was told
	}
}

// answered notes an answer.
func (c *change) answered(answer client.Answer, err error) {
	problem, refused := errors.AsType[*client.Problem](err)
	switch {
	case err == nil:
		c.Answer, c.Seq, c.Before = ledger.Changed, answer.Seq, answer.Before
	case !refused || problem.Code == client.CodeInDoubt:
		c.Answer = ledger.InDoubt
	default:
		c.Answer, c.Seq, c.Gone = string(problem.Code), problem.Seq, problem.Outcome != nil
	}
}

// waitingUnder returns the message that waits under an id as the store has it, or one that there is not.
func waitingUnder(ctx context.Context, store *storage.Store, id ledger.ID) uint64 {
	known, err := store.Get(ctx, id.Topic, id.Text)
	if err != nil || known.Message == nil {
		return 1 << 40
	}
	return known.Message.Seq
}

// changeOf returns the number of the change that a message is by, 0: none.
func changeOf(headers []message.Header) int {
	for _, h := range headers {
		if h.Key == changeHeader {
			number, _ := strconv.Atoi(string(h.Value))
			return number
		}
	}
	return 0
}

// awaitAnswers waits until all changes are answered.
func (p *player) awaitAnswers() {
	answered := make(chan struct{})
	go func() {
		p.asking.Wait()
		close(answered)
	}()
	p.waitFor(answered)
}
