package query

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"golang.org/x/sync/semaphore"
)

// A Store is the schedule of this node.
type Store interface {
	List(ctx context.Context, q storage.ListQuery) (storage.Page, error)
	Get(ctx context.Context, topic, id string) (storage.Known, error)
	Tally(ctx context.Context, q storage.TallyQuery) (storage.Tally, error)
	ClusterID() [16]byte
}

// A Log is this node's part in Raft.
type Log interface {
	// Barrier returns once an entry of this leader's own term, proposed after the call, is committed and applied here.
	// It carries the leader's time: what has expired by then has by the state's.
	Barrier(ctx context.Context) error
	// Leader returns the id of the member that leads, "" when it is not known.
	Leader() string
}

const (
	// atOnce bounds how many answers are worked on at a time, so that deliveries find a processor free.
	atOnce = 2
	// MostListed is how many messages a page may have.
	MostListed = 1000
	// mostRead is how many messages a page may read of which few are meant.
	mostRead = 1024
	// mostPages is how many pages one search reads.
	mostPages = 16
)

// A Desk answers questions, at the leader alone. Its methods may be called from any goroutine. They block for a
// log entry, for others' answers, and for the disk; ctx bounds all of that. Their errors are a NotLeaderError, what
// raftfsm says of an entry in doubt, a *client.Problem about the request, and the disk's.
type Desk struct {
	store    Store
	log      Log
	aside    func() map[uint64]int64
	barriers barriers
	turns    *semaphore.Weighted
}

// New returns a Desk. It starts nothing before it is asked.
func New(store Store, log Log) *Desk {
	return &Desk{store: store, log: log, aside: func() map[uint64]int64 { return nil }, barriers: barriers{commit: log.Barrier}, turns: semaphore.NewWeighted(atOnce)}
}

// Telling returns a Desk that tells what is aside as well, which is no part of the log: the dead letters that the
// term here has found to be refused by their topics, by seq with when they are due, in epoch milliseconds. They share the turns.
func (d *Desk) Telling(aside func() map[uint64]int64) *Desk {
	return &Desk{store: d.store, log: d.log, aside: aside, barriers: barriers{commit: d.log.Barrier}, turns: d.turns}
}

// Local returns a Desk that answers from this node's own state, whoever leads: what it says may be behind.
// They share the turns.
func (d *Desk) Local() *Desk {
	return &Desk{store: d.store, log: d.log, aside: d.aside, barriers: barriers{commit: func(context.Context) error { return nil }}, turns: d.turns}
}

// Barrier returns once the store has all that was acknowledged before the call, and is at the leader's time. It
// blocks for a log entry; its errors are those of the Desk, but none of a request or a disk.
func (d *Desk) Barrier(ctx context.Context) error {
	if err := d.barriers.wait(ctx); err != nil {
		if errors.Is(err, raftfsm.ErrNotLeader) {
			return &NotLeaderError{Leader: d.log.Leader()}
		}
		return fmt.Errorf("wait for the log: %w", err)
	}
	return nil
}

// enter returns once the store has all that was acknowledged before the call, and it is the caller's turn; leave must follow.
// It may be deposed by then: what it has is of an index that was committed after the call began.
func (d *Desk) enter(ctx context.Context) error {
	if err := d.Barrier(ctx); err != nil {
		return err
	}
	if err := d.turns.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for others' answers: %w", context.Cause(ctx))
	}
	return nil
}

func (d *Desk) leave() { d.turns.Release(1) }

// A ListRequest asks for a page.
type ListRequest struct {
	Filter  client.Filter
	Cursor  string // "": the first page
	Limit   int    // messages, 1 to MostListed
	Payload bool   // with keys, values and headers
}

// List returns a page of what is pending. It may be short, or empty, and have others after it.
func (d *Desk) List(ctx context.Context, r ListRequest) (client.Page, error) {
	m, err := newMatcher(r.Filter)
	if err != nil {
		return client.Page{}, err
	}
	if r.Limit < 1 || r.Limit > MostListed {
		return client.Page{}, client.BadField("limit", strconv.Itoa(r.Limit), fmt.Sprintf("is not from 1 to %d: ask for as many, and for the next page after it", MostListed))
	}
	m.cluster = d.store.ClusterID()
	m.tellAside(d.aside())
	from, err := m.resume(r.Cursor)
	if err != nil {
		return client.Page{}, err
	}
	if err := d.enter(ctx); err != nil {
		return client.Page{}, err
	}
	defer d.leave()
	q := storage.ListQuery{From: from, Last: m.last(), Limit: r.Limit, Keep: m.may, Bodies: true}
	if m.byBody() {
		q.Limit = mostRead
	}
	listed, err := d.store.List(ctx, q)
	if err != nil {
		return client.Page{}, err
	}
	page := client.Page{Index: listed.Moment.Index, Pending: listed.Moment.Pending, Messages: make([]client.Message, 0, len(listed.Items))}
	for i := range listed.Items {
		if len(page.Messages) == r.Limit {
			listed.Next, listed.Done = listed.Items[i].Ref, false
			break
		}
		told, decoded, err := messageOf(&listed.Items[i], m.aside)
		if err == nil && !m.is(&decoded) || err != nil && !m.isUnreadable(told.Topic) {
			continue
		}
		if r.Payload && err == nil {
			told.Payload = payloadOf(&decoded)
		}
		page.Messages = append(page.Messages, told)
	}
	if !listed.Done {
		page.Next = m.cursor(listed.Next)
	}
	return page, nil
}

// Get returns what is known of an id that a producer chose, the message with its payload.
func (d *Desk) Get(ctx context.Context, topic, id string) (client.Life, error) {
	if err := d.enter(ctx); err != nil {
		return client.Life{}, err
	}
	defer d.leave()
	known, err := d.store.Get(ctx, topic, id)
	if err != nil {
		return client.Life{}, err
	}
	if !known.Moment.IDsOpen {
		return client.Life{}, ErrIDsClosed
	}
	life := client.Life{Index: known.Moment.Index, Outcomes: []client.Outcome{}, Since: known.Since}
	if known.Message != nil {
		told, decoded, err := messageOf(known.Message, nil)
		if err == nil {
			told.Payload = payloadOf(&decoded)
		}
		life.Message = &told
	}
	for _, o := range known.Life {
		life.Outcomes = append(life.Outcomes, OutcomeOf(o))
	}
	return life, nil
}

// ParseOrigin returns the record that an id names which nobody chose: topic/partition/offset. Intake refuses such an id
// where somebody chose it, and no other: topic/-1/5 is an id like any.
func ParseOrigin(id string) (o message.Origin, ok bool) {
	parts := strings.Split(id, "/")
	if len(parts) != 3 {
		return o, false
	}
	partition, err := strconv.ParseInt(parts[1], 10, 32)
	offset, err2 := strconv.ParseInt(parts[2], 10, 64)
	o = message.Origin{Topic: parts[0], Partition: int32(partition), Offset: offset}
	return o, err == nil && err2 == nil && partition >= 0 && offset >= 0 && o.String() == id
}

// Find searches for the message of a record whose producer gave it no id, which has no index. It reads some pages of
// what is pending, each at an index of its own, and says where to go on. What it does not find at all was not pending
// throughout, unless it was changed to an earlier time between two calls; within one that is seen, and it says to begin anew.
func (d *Desk) Find(ctx context.Context, origin message.Origin, cursor string) (client.Finding, error) {
	w := NewSearch(d.store, origin)
	w.matcher.cluster = d.store.ClusterID()
	from, err := w.matcher.resume(cursor)
	if err != nil {
		return client.Finding{}, err
	}
	if err := d.enter(ctx); err != nil {
		return client.Finding{}, err
	}
	defer d.leave()
	var found client.Finding
	var earlier uint64
	for page := range mostPages {
		s, err := w.Stretch(ctx, from, mostRead)
		if err != nil {
			return client.Finding{}, err
		}
		if page == 0 {
			earlier = s.Earlier
		}
		found.Index, from = s.Index, s.Next
		if len(s.Met) > 0 {
			told, decoded, _ := messageOf(&s.Met[0].Listed, d.aside()) // it was read already
			told.Payload = payloadOf(&decoded)
			found.Message = &told
			return found, nil
		}
		if s.Done && s.Earlier == earlier {
			return found, nil
		}
		if s.Done {
			from = w.First()
			break
		}
	}
	found.Next = w.matcher.cursor(from)
	return found, nil
}
