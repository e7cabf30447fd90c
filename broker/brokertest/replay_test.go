package brokertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/twmb/franz-go/pkg/kgo"
)

// poison produces records that cannot be scheduled, and waits until they are dead letters.
func (x *idTest) poison(values ...string) {
	x.t.Helper()
	user, _ := x.user()
	defer user.Close()
	for _, value := range values {
		x.must(user.ProduceSync(x.t.Context(), &kgo.Record{Topic: "orders.delay", Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "deliver-after", Value: []byte("soon")}}}).FirstErr())
	}
	x.await(time.Minute, "dead letters", func() bool { return len(x.delivered("carillon.dead-letter")) == len(values) })
	x.pause(time.Second) // a leader that is killed before the log knows has them written once more
}

// lettersOf lists as the node tells them.
func (x *idTest) lettersOf(n *node) []client.DeadLetter {
	x.t.Helper()
	page, err := n.broker.DeadLetters().List(x.t.Context(), deadletter.ListRequest{Limit: 1000})
	x.must(err)
	return page.DeadLetters
}

// replay asks whoever leads until it is certain what came of it, and returns the code.
func (x *idTest) replay(at deadletter.Place) client.Code {
	for {
		for _, n := range x.nodes {
			if !n.running() || !n.broker.Leading() {
				continue
			}
			ctx, cancel := context.WithTimeout(x.t.Context(), 3*time.Second)
			answer, err := n.broker.DeadLetters().Replay(ctx, n.broker.Orders(), nil, at, client.ReplayRequest{DeliverAfter: "1m"})
			cancel()
			p, refused := errors.AsType[*client.Problem](err)
			switch {
			case err == nil:
				return client.Code(answer.Code)
			case refused && p.Code == client.CodeReplayed:
				return p.Code
			}
		}
		<-time.After(100 * time.Millisecond)
	}
}

// Dead letters are replayed by two callers at once, who ask again until they know, and the leader is killed
// at any moment of it: of each one message comes.
func TestReplay_isCarriedOutOnceWhoeverLeads(t *testing.T) {
	for _, kill := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(fmt.Sprintf("killed after %v", kill), func(t *testing.T) {
			testIDs(t, storage.LevelFour, func(x *idTest) {
				want := []string{"a", "b", "c", "d"}
				x.poison(want...)
				all := x.lettersOf(x.nodes[0])
				if len(all) != len(want) {
					t.Fatalf("%d dead letters, want %d", len(all), len(want))
				}
				codes := make(chan client.Code)
				for range 2 {
					for _, l := range all {
						go func() { codes <- x.replay(deadletter.Place{Topic: l.Topic, Partition: l.Partition, Offset: l.Offset}) }()
					}
				}
				x.pause(kill)
				x.leader().kill()
				scheduled := 0
				for range 2 * len(all) {
					if <-codes == client.AnswerScheduled {
						scheduled++
					}
				}
				if scheduled > len(all) {
					t.Errorf("%d replays of %d dead letters took effect", scheduled, len(all))
				}
				x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
				x.pause(2 * time.Minute)
				x.expectDelivered("orders", want...)
				for _, n := range x.nodes {
					for _, l := range x.lettersOf(n) {
						if !l.Replayed || l.Code != "malformed" || l.Target != "orders" || l.DelayTopic != "orders.delay" {
							t.Errorf("%s tells %+v", n.member.ID, l)
						}
					}
				}
				if got := x.replay(deadletter.Place{Topic: all[0].Topic, Partition: all[0].Partition, Offset: all[0].Offset}); got != client.CodeReplayed {
					t.Errorf("a third one: %s", got)
				}
			})
		})
	}
}
