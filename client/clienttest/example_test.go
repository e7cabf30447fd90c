package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/clienttest"
)

// Reminders is a part of a program: it reminds customers of what they have left in their carts.
type Reminders struct{ carillon *client.Admin }

func (r Reminders) Remind(ctx context.Context, cart string) error {
	_, err := r.carillon.Schedule(ctx, client.ScheduleRequest{Topic: "reminders.delay", ID: cart, DeliverAfter: "24h", Value: client.Text("still interested?")})
	return err
}

func (r Reminders) Bought(ctx context.Context, cart string) (inTime bool, err error) {
	_, err = r.carillon.Cancel(ctx, client.Name{Topic: "reminders.delay", ID: cart}, "bought")
	if errors.Is(err, client.ErrTooLate) {
		return false, nil
	}
	return err == nil, err
}

func Example() {
	t := &testing.T{} // of the test that this stands in
	ctx := context.Background()

	carillon := clienttest.New(t)
	reminders := Reminders{carillon.Admin()}
	for _, cart := range []string{"cart-1", "cart-2"} {
		if err := reminders.Remind(ctx, cart); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(reminders.Bought(ctx, "cart-1"))
	carillon.Advance(24 * time.Hour)
	for _, record := range carillon.Delivered() {
		fmt.Printf("%s: %s\n", record.Topic, record.Value)
	}
	fmt.Println(reminders.Bought(ctx, "cart-2"))
	// Output:
	// true <nil>
	// reminders: still interested?
	// false <nil>
}
