package deadletter

import (
	"context"
	"fmt"

	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/client"
)

// Replay reads the dead letter at the place and has orders schedule it anew; see [order.Desk.Replay]. Its
// errors are those of Get, ErrForeign, and what orders says.
func (d *Desk) Replay(ctx context.Context, orders *order.Desk, may order.Scope, at Place, r client.ReplayRequest) (client.Answer, error) {
	p, record, err := d.read(ctx, at)
	if err != nil {
		return client.Answer{}, err
	}
	if _, isLetter := record.origin(); !isLetter {
		return client.Answer{}, fmt.Errorf("%w: %s was put there by somebody else: it does not say what it was to become", ErrForeign, at)
	}
	return orders.Replay(ctx, may, letterOf(&p, &record), r)
}
