package order

import (
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/replayed"
)

// deadLetter is the dead letter, at the offset, of a record of orders.delay with those headers, name and
// value in turns.
func deadLetter(offset int64, headers ...string) Letter {
	m := message.Message{Origin: message.Origin{Topic: "orders.delay", Partition: 2, Offset: 40}, Key: []byte("k"), Value: []byte("a parcel")}
	for i := 0; i < len(headers); i += 2 {
		m.Headers = append(m.Headers, message.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	dead := m.AsDeadLetter(message.Problem{Code: message.CodeTargetMissing, Message: "it is missing"}, 0)
	return Letter{
		Place:  raftfsm.Replay{At: replayed.Partition{TopicID: [16]byte{9}, Number: 1}, Offset: offset},
		Origin: m.Origin, Key: dead.Key, Value: dead.Value, Headers: dead.Headers,
	}
}

func withoutValue(l Letter) Letter {
	l.Value = nil
	return l
}

func TestReplay_schedulesTheRecordAsItWas(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		now := time.Now().UnixMilli()
		letter := deadLetter(7, "deliver-at", "yesterday", "deliver-to", "parcels", "deliver-partition", "3", "deliver-id", "order-7", "deliver-key", "other",
			"deliver-if", "present", "deliver-expires-at", "2001-01-01T00:00:00Z", "lang", "de", "delivered-id", "x", "__carillon.errors.value-dropped", "of an earlier one")
		answer, err := f.Replay(t.Context(), nil, letter, client.ReplayRequest{})
		if err != nil || answer.Code != client.AnswerScheduled || answer.ID != "order-7" || answer.Topic != "orders.delay" {
			t.Fatalf("%+v, %v", answer, err)
		}
		l, m := f.waiting("order-7")
		if l.Target != "parcels" || l.Due != now || m.PlannedFor != now || m.Expires != 0 || m.Partition != 3 || string(m.DeliveredKey()) != "other" || string(m.Value) != "a parcel" || string(m.Key) != "k" || m.DeadLetter {
			t.Errorf("%+v %+v", l, m)
		}
		if got := text(m.AppendDeliveredHeaders(nil, [16]byte{7}, 1)); !strings.HasPrefix(got, "lang=de delivered-id=order-7 delivered-for=") || strings.Contains(got, "errors") {
			t.Errorf("delivered with %s", got)
		}

		// Not a second time, unless that is said.
		if _, err := f.Replay(t.Context(), nil, letter, client.ReplayRequest{}); problem(err) == nil || problem(err).Code != client.CodeReplayed || problem(err).Field != "again" {
			t.Errorf("again: %v", err)
		}
		if _, err := f.Replay(t.Context(), nil, letter, client.ReplayRequest{Again: true}); problem(err) == nil || problem(err).Code != client.CodeConflict || !strings.Contains(problem(err).Detail, `waits under the id "order-7" of orders.delay, which the dead letter would replace: cancel it first`) {
			t.Errorf("again, while it waits: %v", err)
		}
		if _, err := f.Cancel(t.Context(), "orders.delay", "order-7", Condition{}); err != nil {
			t.Fatal(err)
		}
		answer, err = f.Replay(t.Context(), nil, letter, client.ReplayRequest{Again: true, DeliverAfter: "1h", DeliverTo: "bills"})
		if l, m := f.waiting("order-7"); err != nil || l.Seq != answer.Seq || l.Target != "bills" || l.Due != now+3_600_000 || m.Partition != -1 {
			t.Errorf("%+v, %v: %+v %+v", answer, err, l, m)
		}
	})
}

func TestReplay_givesAnIDToWhatHadNone(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		answer, err := f.Replay(t.Context(), nil, deadLetter(7, "deliver-after", "soon"), client.ReplayRequest{DeliverAfter: "1m"})
		if err != nil || !strings.HasPrefix(answer.ID, "api/") {
			t.Fatalf("%+v, %v", answer, err)
		}
		if l, m := f.waiting(answer.ID); l.Target != "orders" || m.Origin.Partition != -1 || m.Origin.Topic != "orders.delay" {
			t.Errorf("%+v %+v", l, m)
		}
	})
}

// What goes to the partition that it came from does so again.
func TestReplay_keepsThePartitionOfItsSource(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.config.Routes = append([]config.Route{}, f.config.Routes...)
		f.config.Routes[0].Partitioner = message.SamePartition
		d := f.over(f.node)
		answer, err := d.Replay(t.Context(), nil, deadLetter(7), client.ReplayRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, m := f.waiting(answer.ID); m.Partition != 2 {
			t.Errorf("for partition %d", m.Partition)
		}
	})
}

func TestReplay_refusesWhatCannotBeAMessage(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		gone := deadLetter(7)
		gone.Origin.Topic = "orders.later"
		never := func(*client.ScheduleRequest, string) *client.Problem {
			return &client.Problem{Code: client.CodeForbidden}
		}
		for _, test := range []struct {
			what   string
			letter Letter
			may    Scope
			r      client.ReplayRequest
			code   client.Code
			says   string
		}{
			{"one without its value", withoutValue(deadLetter(7, "__carillon.errors.value-dropped", "20000000")), nil, client.ReplayRequest{}, client.CodeBadRequest, "names a dead letter that has no value, which was too large for it: produce the record again, from orders.delay/2/40"},
			{"a cancel", deadLetter(7, "deliver-cancel", "yes"), nil, client.ReplayRequest{}, client.CodeBadRequest, "it asked to cancel one"},
			{"a repetition", deadLetter(7, "deliver-cron", "* * * * *"), nil, client.ReplayRequest{}, client.CodeBadRequest, "is not supported by this version"},
			{"an id that cannot be", deadLetter(7, "deliver-id", "api/x"), nil, client.ReplayRequest{}, client.CodeBadRequest, "api/x"},
			{"a topic that is no delay topic any more", gone, nil, client.ReplayRequest{}, client.CodeBadRequest, `topic "orders.later" is no delay topic`},
			{"a target that is not allowed", deadLetter(7), nil, client.ReplayRequest{DeliverTo: "secret-1"}, client.CodeTargetNotAllowed, "secret-1"},
			{"its own target that is not", deadLetter(7, "deliver-to", "secret-1"), nil, client.ReplayRequest{}, client.CodeTargetNotAllowed, "secret-1"},
			{"a dead-letter topic", deadLetter(7), nil, client.ReplayRequest{DeliverTo: "carillon.dead-letter"}, client.CodeBadRequest, "is for dead letters"},
			{"a time that is none", deadLetter(7), nil, client.ReplayRequest{DeliverAfter: "soon"}, client.CodeBadRequest, "deliver_after"},
			{"too late a time", deadLetter(7), nil, client.ReplayRequest{DeliverAfter: "10000h"}, client.CodeBadRequest, "max_delay"},
			{"who may not", deadLetter(7), never, client.ReplayRequest{}, client.CodeForbidden, ""},
		} {
			_, err := f.Replay(t.Context(), test.may, test.letter, test.r)
			if p := problem(err); p == nil || p.Code != test.code || !strings.Contains(p.Detail, test.says) {
				t.Errorf("%s: %v", test.what, err)
			}
		}
		if f.counts.Taken > 0 || len(f.counts.By) > 0 {
			t.Errorf("%d accepted, answered %v", f.counts.Taken, f.counts.By)
		}
		// Nothing was marked.
		if _, err := f.Replay(t.Context(), nil, deadLetter(7), client.ReplayRequest{}); err != nil {
			t.Error(err)
		}
	})
}
