package deadletter

import (
	"context"
	"fmt"
	"strconv"

	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/client"
)

// Replay reads the dead letter at the place and has orders schedule it anew; see [order.Desk.Replay]. The scope
// is asked first whether the dead letter itself is the caller's, as a request for the topic and target that it
// has, and then about what becomes of it: who may write to the new target need not be one who may have what
// was for the old one. Its errors are those of Get, a *client.Problem about a record of somebody else,
// and what orders and the scope say.
func (d *Desk) Replay(ctx context.Context, orders *order.Desk, may order.Scope, at Place, r client.ReplayRequest) (client.Answer, error) {
	p, record, err := d.read(ctx, at)
	if err != nil {
		return client.Answer{}, err
	}
	if _, isLetter := record.origin(); !isLetter {
		return client.Answer{}, client.BadField("offset", strconv.FormatInt(at.Offset, 10), fmt.Sprintf("names no dead letter: %s was put there by somebody else, and does not say what it was to become", at))
	}
	if told := tell(&p, &record, d.targetOf); may != nil {
		if problem := may(&client.ScheduleRequest{Topic: told.DelayTopic, DeliverTo: told.Target}, told.Target); problem != nil {
			return client.Answer{}, problem
		}
	}
	return orders.Replay(ctx, may, letterOf(&p, &record), r)
}
