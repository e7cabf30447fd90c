package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// bury produces records that cannot be scheduled, all at once.
func (x *idTest) bury(values []string, headers ...kgo.RecordHeader) {
	x.t.Helper()
	user, _ := x.user()
	defer user.Close()
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: "orders.delay", Value: []byte(value), Headers: append(headers, kgo.RecordHeader{Key: "deliver-after", Value: []byte("soon")})})
	}
	before := len(x.delivered("carillon.dead-letter"))
	x.must(user.ProduceSync(x.t.Context(), records...).FirstErr())
	x.await(time.Minute, "dead letters", func() bool { return len(x.delivered("carillon.dead-letter")) == before+len(values) })
	x.pause(time.Second) // a leader that is killed before the log knows has them written once more
}

func numbered(name string, count int) (values []string) {
	for i := range count {
		values = append(values, fmt.Sprint(name, " ", i))
	}
	return values
}

// A replay of hundreds of dead letters, under which one leader after the other is killed: each is scheduled
// once, at the time that was fixed at the start, and what became one later lies where it is.
func TestBulkReplay_isCarriedOutOnceWhoeverLeads(t *testing.T) {
	testIDs(t, storage.LevelFour, func(x *idTest) {
		want := numbered("dead", 300)
		x.bury(want)
		first := x.lettersOf(x.nodes[0])[0]
		if code := x.replay(deadletter.Place{Topic: first.Topic, Partition: first.Partition, Offset: first.Offset}); code != client.AnswerScheduled {
			t.Fatal(code)
		}
		// What cannot be replayed: a message waits under its id; its target is none; and it is somebody else's.
		x.send(options(client.After(time.Hour), client.ID("taken")), "waits")
		x.bury([]string{"taken"}, kgo.RecordHeader{Key: "deliver-id", Value: []byte("taken")})
		x.bury([]string{"to a delay topic"}, kgo.RecordHeader{Key: "deliver-to", Value: []byte("orders.delay")})
		user, _ := x.user()
		x.must(user.ProduceSync(x.t.Context(), &kgo.Record{Topic: "carillon.dead-letter", Value: []byte("mine")}).FirstErr())
		user.Close()

		request := client.OperationRequest{Verb: client.OperationReplay, All: true, Reason: "a test", Rate: 15, Change: &client.BulkChange{DeliverAfter: "10m"}}
		dry := request
		dry.DryRun = true
		operations := x.leader().broker.Operations()
		if o, err := operations.Start(x.t.Context(), dry, "ann", ""); err != nil || o.Matched != 301 || o.Within != 0 || o.ID != "" {
			t.Errorf("a dry run: %+v, %v", o, err)
		}
		o, err := operations.Start(x.t.Context(), request, "ann", "key")
		x.must(err)
		due := time.UnixMilli(o.Started).Add(10 * time.Minute).UnixMilli()
		for round := range 3 {
			x.pause(3 * time.Second)
			old := x.leader()
			old.kill()
			x.pause(time.Second)
			x.bury(numbered(fmt.Sprint("later ", round), 5))
			x.leader()
			old.start()
		}
		if o.Again || o.Rate != 15 || o.Matched != 301 || o.Change.DeliverAt == "" || o.Change.DeliverAfter != "" {
			t.Errorf("started %+v", o)
		}
		o = x.bulkEnded()
		if o.State != client.OperationFinished || o.Done != 299 || o.TooLate != 1 || o.NotFound != 0 || o.Failed != 3 || o.Problem == "" {
			t.Errorf("ended %+v", o)
		}
		if took := time.Duration(o.Ended-o.Started) * time.Millisecond; took < 299*time.Second/15 {
			t.Errorf("299 at 15 a second took %v", took)
		}
		x.pause(15 * time.Minute)
		x.expectDelivered("orders", want...)
		for _, d := range x.consume() {
			if d.Topic == "orders" && d.Due != due && d.Value != valueOf(x, first) {
				t.Errorf("%q was due at %d, want %d", d.Value, d.Due, due)
			}
		}
		replayed := 0
		for _, n := range x.nodes {
			for _, l := range x.lettersOf(n) {
				if l.Replayed {
					replayed++
				}
			}
		}
		if replayed != 3*300 {
			t.Errorf("%d are marked by three nodes, want 300 by each", replayed)
		}
		// Once more, of what is left: nothing but what came later, and that at once.
		operations = x.leader().broker.Operations()
		again, err := operations.Start(x.t.Context(), client.OperationRequest{Verb: client.OperationReplay, Filter: client.Filter{From: o.Started}, Reason: "the rest"}, "ann", "")
		x.must(err)
		x.pause(time.Minute)
		if again, err = operations.Get(x.t.Context(), again.ID); err != nil || again.Matched != 15 || again.Done != 15 || again.TooLate+again.NotFound+again.Failed != 0 {
			t.Errorf("the rest: %+v, %v", again, err)
		}
	})
}

func valueOf(x *idTest, l client.DeadLetter) string {
	told, err := x.leader().broker.DeadLetters().Get(x.t.Context(), deadletter.Place{Topic: l.Topic, Partition: l.Partition, Offset: l.Offset})
	x.must(err)
	return string(told.Payload.Value)
}
