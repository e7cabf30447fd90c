package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/clienttest"
)

// newYear is when the time of the examples begins.
func newYear() time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) }

// carillon stands in for the cluster that a program asks: client.NewAdmin returns an Admin of that.
func carillon() *clienttest.Server { return clienttest.NewAt(&testing.T{}, newYear()) }

func ExampleNewAdmin() {
	admin, err := client.NewAdmin([]string{"carillon-1:7401", "carillon-2:7401", "carillon-3:7401"}, client.AdminOptions{
		Token: client.TokenFile("/run/secrets/carillon-token"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer admin.Close()
	// Output:
}

func ExampleAdmin() {
	ctx, cluster := context.Background(), carillon()
	admin := cluster.Admin()

	answer, err := admin.Schedule(ctx, client.ScheduleRequest{
		Topic: "reminders.delay", ID: "cart-7", DeliverAfter: "24h", Value: client.Text("still interested?"),
	})
	fmt.Println(answer.Code, answer.Seq, err)

	answer, err = admin.Change(ctx, client.Name{Topic: "reminders.delay", ID: "cart-7"}, client.ChangeRequest{DeliverAfter: "48h"})
	fmt.Println(answer.Code, answer.Seq, err)

	answer, err = admin.Cancel(ctx, client.Name{Topic: "reminders.delay", ID: "cart-7"}, "bought")
	fmt.Println(answer.Code, answer.Seq, err)

	_, err = admin.Cancel(ctx, client.Name{Topic: "reminders.delay", ID: "cart-8"}, "bought")
	fmt.Println(errors.Is(err, client.ErrNotFound))
	// Output:
	// scheduled 1 <nil>
	// replaced 2 <nil>
	// cancelled 2 <nil>
	// true
}

// With an idempotency key a request is sent again until it is answered, and takes effect once. Without one,
// what may have been carried out is an error to be dealt with.
func ExampleAdmin_Schedule() {
	ctx, cluster := context.Background(), carillon()
	admin := cluster.Admin()

	payment := client.ScheduleRequest{Topic: "payments.delay", DeliverAt: "2030-01-31T08:00:00Z", IdempotencyKey: "invoice-4711", Value: client.Text("pay")}
	for range 2 {
		answer, err := admin.Schedule(ctx, payment)
		switch {
		case errors.Is(err, client.ErrInDoubt):
			fmt.Println("ask for the message, or send the same again")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(answer.Code, answer.Seq, answer.Again)
		}
	}
	// Output:
	// scheduled 1 false
	// scheduled 1 true
}

// What is too late says what became of the message.
func ExampleAdmin_Cancel() {
	ctx, cluster := context.Background(), carillon()
	admin := cluster.Admin()
	if _, err := admin.Schedule(ctx, client.ScheduleRequest{Topic: "reminders.delay", ID: "cart-7", DeliverAfter: "1h"}); err != nil {
		fmt.Println(err)
	}
	cluster.Advance(time.Hour)

	_, err := admin.Cancel(ctx, client.Name{Topic: "reminders.delay", ID: "cart-7"}, "bought")
	if late := (*client.Problem)(nil); errors.Is(err, client.ErrTooLate) && errors.As(err, &late) && late.Outcome != nil {
		fmt.Println(late.Code, late.Outcome.Kind, time.UnixMilli(late.Outcome.At).UTC())
	}
	// Output: too-late delivered 2030-01-01 01:00:00 +0000 UTC
}

// Only the message that was looked at is changed, not one that has taken its place meanwhile.
func ExampleName() {
	ctx, cluster := context.Background(), carillon()
	admin := cluster.Admin()
	request := client.ScheduleRequest{Topic: "reminders.delay", ID: "cart-7", DeliverAfter: "1h"}
	seen, err := admin.Schedule(ctx, request)
	if err != nil {
		fmt.Println(err)
	}
	if _, err := admin.Schedule(ctx, request); err != nil { // by somebody else
		fmt.Println(err)
	}

	_, err = admin.Now(ctx, client.Name{Topic: "reminders.delay", ID: "cart-7", Seq: seen.Seq}, "")
	fmt.Println(errors.Is(err, client.ErrConflict))
	// Output: true
}

func ExampleAdmin_Messages() {
	ctx, cluster := context.Background(), carillon()
	admin := cluster.Admin()
	for _, cart := range []string{"cart-9", "cart-7", "cart-8"} {
		if _, err := admin.Schedule(ctx, client.ScheduleRequest{Topic: "reminders.delay", ID: cart, DeliverAfter: cart[5:] + "h"}); err != nil {
			fmt.Println(err)
		}
	}

	until := newYear().Add(9 * time.Hour).UnixMilli()
	for message, err := range admin.Messages(ctx, client.Filter{Topic: "reminders.delay", To: until}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(message.ID, time.UnixMilli(message.Due).UTC().Format(time.TimeOnly), message.State)
	}
	count, err := admin.Count(ctx, client.Filter{Topic: "reminders.delay"})
	fmt.Println(count.Count, count.Exact, err)
	// Output:
	// cart-7 07:00:00 waiting
	// cart-8 08:00:00 waiting
	// 3 true <nil>
}

func ExampleAdmin_StartOperation() {
	ctx, cluster := context.Background(), carillon()
	admin := cluster.Admin()
	for i := range 3 {
		if _, err := admin.Schedule(ctx, client.ScheduleRequest{Topic: "reminders.delay", ID: fmt.Sprint("summer-", i), DeliverAfter: "1h"}); err != nil {
			fmt.Println(err)
		}
	}

	request := client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "reminders.delay", Prefix: "summer-"}, Reason: "the sale is over"}
	request.DryRun = true
	trial, err := admin.StartOperation(ctx, request)
	fmt.Println(trial.Matched, err)

	request.DryRun = false
	begun, err := admin.StartOperation(ctx, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	ended, err := admin.WaitOperation(ctx, begun.ID, nil)
	fmt.Println(ended.State, ended.Done, ended.TooLate, err)
	// Output:
	// 3 <nil>
	// finished 3 0 <nil>
}

func ExampleAdmin_DeadLetters() {
	ctx, cluster := context.Background(), carillon()
	admin := cluster.Admin()
	cluster.Produce(&client.Record{Topic: "reminders.delay", Value: []byte("hello"), Headers: []client.Header{{Key: "deliver-at", Value: []byte("1893456000")}}})

	for letter, err := range admin.DeadLetters(ctx, client.Filter{Code: "malformed"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(letter.Origin, letter.Detail)
		_, err := admin.Replay(ctx, client.Position{Topic: letter.Topic, Partition: letter.Partition, Offset: letter.Offset}, client.ReplayRequest{DeliverAt: "1893456000000"})
		fmt.Println(err)
	}
	// Output:
	// reminders.delay/0/0 deliver-at "1893456000" looks like seconds: use epoch milliseconds, 13 digits for today
	// <nil>
}
