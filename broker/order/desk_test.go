package order

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// A fullLog has no room.
type fullLog struct{ *node.Node }

func (fullLog) Room() error { return fmt.Errorf("%w: 3 MiB free", raftfsm.ErrNoRoom) }

// A fixture is a desk over a group of one, at level three with open ids.
type fixture struct {
	*Desk
	t      *testing.T
	node   *node.Node
	counts *nodetest.Counter
	config config.Config
	lags   error // what Begun returns
}

// atDesk runs the test in a bubble.
func atDesk(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := nodetest.Open(t, t.Context())
		defer n.Close()
		f := &fixture{t: t, node: n, counts: &nodetest.Counter{}, config: config.Default()}
		f.config.Targets.Deny = append(f.config.Targets.Deny, "secret*")
		f.config.Routes[0].MaxDelay = 365 * 24 * time.Hour
		f.propose(raftfsm.RaiseLevel{Level: storage.LevelFour})
		f.propose(raftfsm.Found{ClusterID: [16]byte{7}})
		f.propose(raftfsm.OpenIDs{UpTo: n.Store().NextSeq() - 1})
		f.Desk = f.over(n)
		test(t, f)
	})
}

func (f *fixture) over(log Log) *Desk {
	return New(Options{Config: f.config, Store: f.node.Store(), Log: log, Count: f.counts, Begun: func() error { return f.lags }, Now: time.Now, Due: time.Now})
}

func (f *fixture) propose(c raftfsm.Command) raftfsm.Result {
	f.t.Helper()
	result, err := f.node.Propose(f.t.Context(), c).Wait(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return result
}

// pass has the time of the bubble pass.
func (f *fixture) pass(d time.Duration) { time.Sleep(d) }

// schedule schedules one message, which must do.
func (f *fixture) schedule(r client.ScheduleRequest) client.Answer {
	f.t.Helper()
	item := f.Schedule(f.t.Context(), nil, []client.ScheduleRequest{r})[0]
	if item.Problem != nil {
		f.t.Fatal(item.Problem)
	}
	return *item.Answer
}

// waiting returns the message that waits under the id of orders.delay.
func (f *fixture) waiting(id string) (*storage.Listed, message.Message) {
	f.t.Helper()
	known, err := f.node.Store().Get(f.t.Context(), "orders.delay", id)
	if err != nil || known.Message == nil {
		f.t.Fatalf("%s does not wait: %v", id, err)
	}
	l := known.Message
	entry := l.Entry()
	m, err := message.FromEntry(&entry)
	if err != nil {
		f.t.Fatal(err)
	}
	return l, m
}

func request(id, after string) client.ScheduleRequest {
	return client.ScheduleRequest{Topic: "orders.delay", ID: id, DeliverAfter: after, Value: client.Text("a parcel")}
}

// text returns headers in a line.
func text(headers []message.Header) string {
	var all []string
	for _, h := range headers {
		all = append(all, fmt.Sprintf("%s=%s", h.Key, h.Value))
	}
	return strings.Join(all, " ")
}

func problem(err error) *client.Problem {
	p, _ := errors.AsType[*client.Problem](err)
	return p
}

func TestSchedule_isAsIfARecordHadCome(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		now := time.Now().UnixMilli()
		answer := f.schedule(client.ScheduleRequest{
			Topic: "orders.delay", ID: "order-7", DeliverAfter: "1h", DeliverTo: "parcels", Partition: new(int32(3)), ExpiresAfter: "PT10S",
			Key: client.Bytes([]byte{0, 42}), Value: client.Data{JSON: []byte(`{"a":  1}`)},
			Headers: []client.DataHeader{{Key: "lang", Value: client.Text("de")}, {Key: "none"}},
		})
		if diff := cmp.Diff(client.Answer{Code: client.AnswerScheduled, Topic: "orders.delay", ID: "order-7", Seq: 1}, answer); diff != "" {
			t.Error(diff)
		}
		l, m := f.waiting("order-7")
		if l.Due != now+3_600_000 || l.Target != "parcels" || l.Expires != l.Due+10_000 || m.Partition != 3 || string(m.Key) != "\x00*" || string(m.Value) != `{"a":  1}` || m.PlannedFor != l.Due {
			t.Errorf("%+v %+v", l, m)
		}
		if got := text(m.Headers); got != "deliver-after=1h deliver-to=parcels deliver-partition=3 deliver-id=order-7 deliver-expires-after=PT10S lang=de none=" || m.Headers[6].Value != nil {
			t.Error(got)
		}
		if m.Origin != (message.Origin{Topic: "orders.delay", Partition: -1, Offset: 1}) || m.Origin.String() != "api/1" {
			t.Errorf("%+v", m.Origin)
		}
		again := f.schedule(request("order-7", "2h"))
		if again.Code != client.AnswerReplaced || again.Before != 1 || again.Seq != 2 {
			t.Errorf("%+v", again)
		}
		own := f.schedule(request("", "2h"))
		if !strings.HasPrefix(own.ID, message.OwnPrefix) || len(own.ID) != len(message.OwnPrefix)+26 {
			t.Errorf("id %q", own.ID)
		}
		if _, m := f.waiting(own.ID); m.Key != nil || string(m.Value) != "a parcel" {
			t.Errorf("%+v", m)
		}
		if f.counts.Taken != 3 || f.counts.By["scheduled"] != 2 || f.counts.By["replaced"] != 1 {
			t.Errorf("counted %+v", f.counts)
		}
	})
}

// What a producer's record would be a dead letter for is a bad request, with nothing done.
func TestSchedule_refusesWhatIntakeWould(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.schedule(request("taken", "1h"))
		with := func(change func(r *client.ScheduleRequest)) client.ScheduleRequest {
			r := request("x", "1h")
			change(&r)
			return r
		}
		for name, test := range map[string]struct {
			request client.ScheduleRequest
			code    client.Code
			field   string
			says    string
		}{
			"no topic":        {with(func(r *client.ScheduleRequest) { r.Topic = "" }), client.CodeBadRequest, "topic", "is empty"},
			"no delay topic":  {with(func(r *client.ScheduleRequest) { r.Topic = "orders" }), client.CodeBadRequest, "topic", "routes[].from"},
			"no time":         {with(func(r *client.ScheduleRequest) { r.DeliverAfter = "" }), client.CodeBadRequest, "deliver_at", "is missing"},
			"seconds":         {with(func(r *client.ScheduleRequest) { r.DeliverAt = "1900000000" }), client.CodeBadRequest, "deliver_at", "looks like seconds: use epoch milliseconds"},
			"no delay":        {with(func(r *client.ScheduleRequest) { r.DeliverAfter = "7d" }), client.CodeBadRequest, "deliver_after", "days are written P7D"},
			"too late":        {with(func(r *client.ScheduleRequest) { r.DeliverAfter = "P366D" }), client.CodeBadRequest, "deliver_after", "routes[].max_delay"},
			"expires at once": {with(func(r *client.ScheduleRequest) { r.ExpiresAt = "1971-01-01T00:00:00Z" }), client.CodeBadRequest, "expires_at", "is not after the due time"},
			"denied":          {with(func(r *client.ScheduleRequest) { r.DeliverTo = "secrets" }), client.CodeTargetNotAllowed, "deliver_to", `targets.deny "secret*" matches it`},
			"no topic name":   {with(func(r *client.ScheduleRequest) { r.DeliverTo = "a b" }), client.CodeBadRequest, "deliver_to", "is not a topic name"},
			"a delay topic":   {with(func(r *client.ScheduleRequest) { r.DeliverTo = "bills.delay" }), client.CodeBadRequest, "deliver_to", "is a delay topic"},
			"partition":       {with(func(r *client.ScheduleRequest) { r.Partition = new(int32(-1)) }), client.CodeBadRequest, "partition", "is not a partition"},
			"long id":         {with(func(r *client.ScheduleRequest) { r.ID = strings.Repeat("x", 300) }), client.CodeBadRequest, "id", "has 300 bytes"},
			"id of a record":  {with(func(r *client.ScheduleRequest) { r.ID = "a/1/2" }), client.CodeBadRequest, "id", "topic/number/number"},
			"condition":       {with(func(r *client.ScheduleRequest) { r.If = "maybe" }), client.CodeBadRequest, "if", "is not a condition"},
			"instruction":     {with(func(r *client.ScheduleRequest) { r.Headers = []client.DataHeader{{Key: "Deliver-at"}} }), client.CodeBadRequest, "headers[0].key", "is an instruction"},
			"two values":      {with(func(r *client.ScheduleRequest) { r.Value.Null = true }), client.CodeBadRequest, "value", "give one of text, base64 and json"},
			"header": {with(func(r *client.ScheduleRequest) {
				r.Headers = []client.DataHeader{{Key: "h", Value: client.Data{Base64: new("!")}}}
			}), client.CodeBadRequest, "headers[0].value", "is not base64"},
			"too large":        {with(func(r *client.ScheduleRequest) { r.Value = client.Text(strings.Repeat("x", 17<<20)) }), client.CodeTooLarge, "", "send 16777216 at most"},
			"condition broken": {with(func(r *client.ScheduleRequest) { r.ID, r.If = "taken", client.ConditionAbsent }), client.CodeConflict, "", "message 1 waits"},
			"nothing there":    {with(func(r *client.ScheduleRequest) { r.If = client.ConditionPresent }), client.CodeConflict, "", "no message waits"},
		} {
			item := f.Schedule(t.Context(), nil, []client.ScheduleRequest{test.request})[0]
			if p := item.Problem; item.Answer != nil || p == nil || p.Code != test.code || p.Field != test.field || !strings.Contains(p.Detail, test.says) {
				t.Errorf("%s: %+v", name, item.Problem)
			}
		}
		if pending := f.node.Store().State().Pending; pending != 1 {
			t.Errorf("%d pending", pending)
		}
	})
}

func TestSchedule_takesWhatTheScopeAllows(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		may := func(r *client.ScheduleRequest, target string) *client.Problem {
			if r.Topic == "orders.delay" && target == "orders" {
				return nil
			}
			return &client.Problem{Code: client.CodeForbidden}
		}
		other := request("b", "1h")
		other.DeliverTo = "parcels"
		items := f.Schedule(t.Context(), may, []client.ScheduleRequest{request("a", "1h"), other, request("c", "never")})
		if items[0].Answer == nil || items[1].Problem == nil || items[1].Problem.Code != client.CodeForbidden || items[2].Problem == nil || items[2].Problem.Code != client.CodeBadRequest {
			t.Errorf("%+v", items)
		}
		if pending := f.node.Store().State().Pending; pending != 1 {
			t.Errorf("%d pending", pending)
		}
	})
}

func TestSchedule_waitsForOpenIDsAndRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodetest.Open(t, t.Context())
		defer n.Close()
		f := &fixture{t: t, node: n, counts: &nodetest.Counter{}, config: config.Default()}
		d := f.over(n)
		check := func(d *Desk, code client.Code, says string) {
			t.Helper()
			if p := d.Schedule(t.Context(), nil, []client.ScheduleRequest{request("x", "1h")})[0].Problem; p == nil || p.Code != code || !strings.Contains(p.Detail, says) {
				t.Errorf("%+v", p)
			}
		}
		f.lags = fmt.Errorf("%w: it reads its log", raftfsm.ErrBusy)
		check(d, client.CodeUnavailable, "it reads its log")
		f.lags = nil
		check(d, client.CodeLevelTooLow, "carillon cluster raise")
		f.propose(raftfsm.RaiseLevel{Level: storage.LevelThree})
		check(d, client.CodeLevelTooLow, "this takes 4")
		f.propose(raftfsm.RaiseLevel{Level: storage.LevelFour})
		check(d, client.CodeIDsClosed, "ask again in some minutes")
		f.propose(raftfsm.OpenIDs{UpTo: n.Store().NextSeq() - 1})
		check(f.over(fullLog{n}), client.CodeUnavailable, "3 MiB free")
		if _, err := f.over(fullLog{n}).Cancel(t.Context(), "orders.delay", "x", Condition{}); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a cancel needs no room: %v", err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if p := d.Schedule(t.Context(), nil, []client.ScheduleRequest{request("x", "1h")})[0].Problem; !errors.Is(p, client.ErrUnavailable) {
			t.Errorf("closed: %+v", p)
		}
	})
}

// How many gather depends on how long a commit takes: 500 entries are none, and half as many on a disk that takes no time.
func TestSchedule_gathersCallers(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		before := f.node.Status().AppliedIndex
		var callers sync.WaitGroup
		for i := range 500 {
			callers.Go(func() { f.schedule(request(fmt.Sprint("id-", i), "1h")) })
		}
		callers.Wait()
		if entries := f.node.Status().AppliedIndex - before; entries > 250 || f.node.Store().State().Pending != 500 {
			t.Errorf("%d entries of the log for 500 calls, %d pending", entries, f.node.Store().State().Pending)
		}
	})
}

// A batch that is larger than a command goes with several, and its items keep their order.
func TestSchedule_takesLargeBatches(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		var batch []client.ScheduleRequest
		for i := range 300 {
			r := request(fmt.Sprint("id-", i), "1h")
			r.Value = client.Text(strings.Repeat("x", 10_000))
			batch = append(batch, r)
		}
		for i, item := range f.Schedule(t.Context(), nil, batch) {
			if item.Answer == nil || item.Answer.ID != batch[i].ID {
				t.Fatalf("%d: %+v", i, item)
			}
			if l, _ := f.waiting(batch[i].ID); l.Seq != item.Answer.Seq {
				t.Fatalf("%d has seq %d, was told %d", i, l.Seq, item.Answer.Seq)
			}
		}
	})
}

// A slowLog takes its first command a second later than the others.
type slowLog struct {
	*node.Node
	begun *atomic.Bool
	lost  bool // or says that what came of it is not known
}

func (l slowLog) Propose(ctx context.Context, c raftfsm.Command) *raftfsm.Proposal {
	if l.begun.Swap(true) {
		return l.Node.Propose(ctx, c)
	}
	time.Sleep(time.Second)
	if !l.lost {
		return l.Node.Propose(ctx, c)
	}
	p, answer := raftfsm.NewProposal(nil)
	answer(raftfsm.Result{}, raftfsm.ErrInDoubt)
	return p
}

// A batch too large for one command is parted, and what is about one id is done in its order all the same.
func TestSchedule_keepsTheOrderOfAnIDInLargeBatches(t *testing.T) {
	batch := func() (requests []client.ScheduleRequest) {
		for i, id := range []string{"a", "b", "c", "a", "d", "a"} {
			r := request(id, fmt.Sprintf("%dh", i+1))
			r.Value = client.Text(strings.Repeat("x", 300_000))
			requests = append(requests, r)
		}
		requests[3].If = client.ConditionPresent
		return requests
	}
	atDesk(t, func(t *testing.T, f *fixture) {
		items := f.over(slowLog{f.node, new(atomic.Bool), false}).Schedule(t.Context(), nil, batch())
		for i, want := range []string{"scheduled", "scheduled", "scheduled", "replaced", "scheduled", "replaced"} {
			if items[i].Answer == nil || items[i].Answer.Code != want {
				t.Fatalf("%d: %+v %v, want %s", i, items[i].Answer, items[i].Problem, want)
			}
		}
		if items[3].Answer.Before != items[0].Answer.Seq || items[5].Answer.Before != items[3].Answer.Seq {
			t.Errorf("replaced: %+v, %+v", items[3].Answer, items[5].Answer)
		}
		if l, _ := f.waiting("a"); l.Seq != items[5].Answer.Seq {
			t.Errorf("%d waits, want %d", l.Seq, items[5].Answer.Seq)
		}
	})
	atDesk(t, func(t *testing.T, f *fixture) {
		items := f.over(slowLog{f.node, new(atomic.Bool), true}).Schedule(t.Context(), nil, batch())
		inDoubt := 0
		for i, item := range items {
			switch p := item.Problem; {
			case i < 3 && p != nil && errors.Is(p, client.ErrInDoubt):
				inDoubt++
			case i < 3 && p != nil, i >= 3 && (p == nil || !errors.Is(p, client.ErrUnavailable)):
				t.Errorf("%d: %+v %v", i, item.Answer, p)
			}
		}
		if inDoubt != 1 {
			t.Errorf("%d are in doubt", inDoubt)
		}
	})
}

func TestCancel_answers(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		f.schedule(request("a", "1h"))
		f.schedule(request("late", "1ms"))
		check := func(id string, c Condition, want error, says string) {
			t.Helper()
			answer, err := f.Cancel(t.Context(), "orders.delay", id, c)
			if !errors.Is(err, want) || !strings.Contains(fmt.Sprintf("%+v %v", answer, err), says) {
				t.Errorf("%s: %+v, %v", id, answer, err)
			}
		}
		check("a", Condition{raftfsm.Exactly, 9}, client.ErrConflict, "message 1 waits")
		check("a", Condition{raftfsm.Exactly, 1}, nil, "Code:cancelled")
		check("a", Condition{}, nil, "Code:already-cancelled")
		check("b", Condition{}, client.ErrNotFound, `no message of orders.delay has or had the id "b"`)
		f.propose(raftfsm.ClaimCommand{Claim: storage.Claim{Through: time.Now().UnixMilli() + 10}})
		check("late", Condition{}, client.ErrTooLate, "is on its way")
	})
}

func TestCancel_saysNothingOfALaterMessage(t *testing.T) {
	atDesk(t, func(t *testing.T, f *fixture) {
		first := f.schedule(request("a", "1h"))
		later := f.schedule(request("a", "2h"))
		for range 2 {
			if _, err := f.Cancel(t.Context(), "orders.delay", "a", Condition{raftfsm.Exactly, later.Seq}); err != nil {
				t.Fatal(err)
			}
		}
		answer, err := f.Cancel(t.Context(), "orders.delay", "a", Condition{raftfsm.Exactly, first.Seq})
		if p := problem(err); !errors.Is(err, client.ErrConflict) || p.Seq != 0 || !strings.Contains(p.Detail, "no message waits") {
			t.Errorf("%+v, %v", answer, err)
		}
	})
}
