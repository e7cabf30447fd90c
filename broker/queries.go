package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
)

// Queries returns who answers questions about what is pending, while this node leads.
func (b *Broker) Queries() *query.Desk { return b.queries }

// DeadLetters returns who tells of dead letters; any node may be asked.
func (b *Broker) DeadLetters() *deadletter.Desk { return b.deadLetters }

// Orders returns who carries out what callers ask for without a record, while this node leads.
func (b *Broker) Orders() *order.Desk { return b.orders }

// Places returns the delay topics (client.PauseTopic) or targets (client.PauseTarget) at which something is pending, or
// that are paused, and the delay topics that were read from as well. It blocks as the Desk does that is asked.
func (b *Broker) Places(ctx context.Context, desk *query.Desk, kind string) (client.Places, error) {
	places, err := desk.Places(ctx, kind == client.PauseTopic)
	if err != nil {
		return places, err
	}
	at := func(name string) *client.Place {
		i, found := slices.BinarySearchFunc(places.Places, name, func(p client.Place, name string) int { return strings.Compare(p.Name, name) })
		if !found {
			places.Places = slices.Insert(places.Places, i, client.Place{Name: name})
		}
		return &places.Places[i]
	}
	if kind == client.PauseTopic {
		for _, position := range b.node.Store().State().Positions {
			at(position.Topic)
		}
	}
	for _, p := range pausesOf(b.node.Store()) {
		if p.Kind == kind {
			at(p.Name).Pause = &client.Pause{Kind: p.Kind, Name: p.Name, Who: p.Who, Why: p.Why, Since: p.Since}
		}
	}
	return places, nil
}

// A Leader is the member that leads, as far as a node knows. The zero value: none is known.
type Leader struct {
	ID   string
	API  string // its address; "": not known
	Self bool   // it is this node
}

// Leader returns who leads. It does not block.
func (b *Broker) Leader() Leader {
	status := b.node.Status()
	l := Leader{ID: status.Leader, Self: status.Leader == status.Node}
	for _, m := range status.Members {
		if m.ID == l.ID {
			l.API = m.API
		}
	}
	return l
}

// A usersLog is the log as it takes in what users ask for. These commands carry the leader's time, to which they move the
// state's for good, and times that were counted from it. So a leader that has not compared its clock with the others' since
// it leads proposes none of them: nothing was done, and who asks a moment later is served.
//
// Whoever says what follows from the state asks Begun first as well: a node that has started a moment ago can lead before it
// has applied its log, and its state says until then that the feature level is the lowest.
type usersLog struct {
	*node.Node
	hasBegun *atomic.Bool
}

func (b *Broker) users() usersLog { return usersLog{b.node, &b.hasBegun} }

// Propose keeps nothing of the command. A refusal is ErrNotLeader or ErrBusy: it was certainly not proposed.
func (l usersLog) Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal {
	if err := l.Begun(); err != nil {
		return raftfsm.Refused(err)
	}
	return l.Node.Propose(ctx, command)
}

// Begun returns why nothing is proposed yet, or nil: then all that was committed before this node led is applied, and its
// time is right. It is asked before a request is judged, too: it may have begun when the request is proposed, but that would
// be by the state and the time from before. It is ErrNotLeader or ErrBusy.
func (l usersLog) Begun() error {
	if l.hasBegun.Load() {
		return nil
	}
	if status := l.Status(); status.Leader != status.Node {
		return raftfsm.ErrNotLeader
	}
	return fmt.Errorf("%w: this node leads since a moment ago: it reads its log and compares clocks first", raftfsm.ErrBusy)
}

// A queryLog is the log as questions wait for it.
type queryLog struct {
	*node.Node
	time func() int64 // see Broker.stateTime
}

// Barrier carries the leader's time.
func (l queryLog) Barrier(ctx context.Context) error { return l.BarrierAt(ctx, l.time()) }

// Leader returns the member that leads, "" when none other than this node is known, which has just been refused.
func (l queryLog) Leader() string {
	status := l.Status()
	if status.Leader == status.Node {
		return ""
	}
	return status.Leader
}
