package query

import (
	"context"
	"math"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// A Walk goes over what a filter means, in order of delivery, as this node has it: for who leads, and has
// the log decide about each.
type Walk struct {
	store   Lister
	matcher matcher
	upper   uint64
}

// A Lister is what a walk reads: the schedule of this node.
type Lister interface {
	List(ctx context.Context, q storage.ListQuery) (storage.Page, error)
}

// NewWalk returns a walk over messages of a seq up to upper. The error is a *client.Problem.
func NewWalk(store Lister, f client.Filter, upper uint64) (*Walk, error) {
	m, err := newMatcher(f)
	if err == nil && m.wantsAside {
		err = client.BadField("state", client.StateAside, "is of dead letters, which operations pass over: leave it out, and mend the topic that refuses them")
	}
	if err != nil {
		return nil, err
	}
	return &Walk{store: store, matcher: m, upper: upper}, nil
}

// NewSearch returns a walk that comes to what the record made alone, which is pending at most once: a message
// that has no id of its own, or the dead letter that such a one has become. It must be readable.
func NewSearch(store Lister, origin message.Origin) *Walk {
	return &Walk{store: store, matcher: recordMatcher(origin), upper: math.MaxUint64}
}

// First is where the walk begins.
func (w *Walk) First() storage.Ref { return w.matcher.first() }

// A Met is a message that a walk comes to.
type Met struct {
	storage.Listed
	Message message.Message
	Err     error // it cannot be read: then Message has what its entry tells
}

// A Stretch is what a walk comes to at once.
type Stretch struct {
	Met     []Met
	Index   uint64      // of the log, at which all of it is
	Pending uint64      // messages that were pending then, whatever the filter
	Earlier uint64      // as the Moment's: where it rises between two stretches, the walk may miss one without an id
	Next    storage.Ref // where the next one begins
	Done    bool        // there is nothing at or after Next
}

// Stretch returns the messages from a place on that the filter means, of those looked at, which are so many at
// most. It does a bounded amount of work, so it may be empty with more to come. It blocks as storage's List.
func (w *Walk) Stretch(ctx context.Context, from storage.Ref, looked int) (Stretch, error) {
	page, err := w.store.List(ctx, storage.ListQuery{From: from, Last: w.matcher.last(), Limit: looked, Bodies: true,
		Keep: func(at *storage.Moment, e *storage.Entry) bool { return e.Seq <= w.upper && w.matcher.may(at, e) }})
	if err != nil {
		return Stretch{}, err
	}
	s := Stretch{Index: page.Moment.Index, Pending: page.Moment.Pending, Earlier: page.Moment.Earlier, Next: page.Next, Done: page.Done}
	for _, item := range page.Items {
		met, entry := Met{Listed: item}, item.Entry()
		met.Message, met.Err = message.FromEntry(&entry)
		if met.Err != nil {
			met.Message.Origin.Topic, met.Message.ID = item.Topic, item.ID
		}
		if met.Err == nil && w.matcher.is(&met.Message) || met.Err != nil && w.matcher.isUnreadable(item.Topic) {
			s.Met = append(s.Met, met)
		}
	}
	return s, nil
}

// ByBody reports whether many messages may have to be read of which few are meant: then they are not counted
// by a Histogram either.
func (w *Walk) ByBody() bool { return w.matcher.byBody() }
