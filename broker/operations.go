package broker

import "github.com/carillonmq/carillon/broker/bulk"

// Operations returns who carries out operations on many messages, while this node leads.
func (b *Broker) Operations() *bulk.Desk { return b.operations }
