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
