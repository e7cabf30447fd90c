package broker

import (
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/raftfsm/node"
)

// Queries returns who answers questions about what is pending, while this node leads.
func (b *Broker) Queries() *query.Desk { return b.queries }

// Orders returns who carries out what callers ask for without a record, while this node leads.
func (b *Broker) Orders() *order.Desk { return b.orders }

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

// A queryLog tells who leads as well.
type queryLog struct{ *node.Node }

// Leader returns the member that leads, "" when none other than this node is known, which has just been refused.
func (l queryLog) Leader() string {
	status := l.Status()
	if status.Leader == status.Node {
		return ""
	}
	return status.Leader
}
