package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// fakeLog commits after a second, unless there is a refusal.
type fakeLog struct {
	entries int
	refusal error
}

func (l *fakeLog) Barrier(context.Context) error {
	time.Sleep(time.Second)
	l.entries++
	return l.refusal
}

func (l *fakeLog) Leader() string { return "n2" }

// A question that comes while an entry is on its way waits for the one after it, with all others.
func TestBarriers_areSharedByThoseWhoCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		b := barriers{commit: log.Barrier}
		begun := time.Now()
		ended := make(chan time.Duration, 20)
		ask := func() {
			if err := b.wait(t.Context()); err != nil {
				t.Error(err)
			}
			ended <- time.Since(begun)
		}
		go ask()
		time.Sleep(100 * time.Millisecond) // the first entry is on its way
		for range 10 {
			go ask()
		}
		time.Sleep(1500 * time.Millisecond) // the second one is
		go ask()
		time.Sleep(10 * time.Second)
		var got []string
		for range 12 {
			got = append(got, (<-ended).String())
		}
		if want := "1s" + strings.Repeat(" 2s", 10) + " 3s"; strings.Join(got, " ") != want || log.entries != 3 {
			t.Errorf("answers after %v with %d entries, want %s", got, log.entries, want)
		}
		log.refusal = fmt.Errorf("propose: %w", raftfsm.ErrNotLeader)
		_, err := New(nil, log).Get(t.Context(), "orders.delay", "x")
		if other, ok := errors.AsType[*NotLeaderError](err); !ok || other.Leader != "n2" || !errors.Is(err, raftfsm.ErrNotLeader) {
			t.Errorf("got %v", err)
		}
	})
}

// deskOf has count messages due a second apart: in turn with an id, and without one.
func deskOf(t *testing.T, count int) (*Desk, *storage.Store) {
	t.Helper()
	s, err := storage.Open(storage.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	level := storage.LevelTwo // the first half
	var es []storage.Entry
	for i := range count {
		if i == count/2 {
			level = storage.LevelThree
		}
		m := message.Message{Origin: message.Origin{Topic: "orders.delay", Partition: 3, Offset: int64(i)}, Partition: -1, Value: []byte("a parcel")}
		if i%2 == 0 {
			m.ID = fmt.Sprint("order-", i)
		}
		es = append(es, m.Entry(int64(1000*(i+1)), "orders", level))
	}
	s.Accept(es)
	s.RaiseLevel(storage.LevelThree)
	s.Applied(1)
	return New(s, doneLog{}), s
}

type doneLog struct{}

func (doneLog) Barrier(context.Context) error { return nil }
func (doneLog) Leader() string                { return "" }

func idsOf(t *testing.T, d *Desk, f client.Filter) string {
	t.Helper()
	var ids []string
	r := ListRequest{Filter: f, Limit: 3}
	for {
		page, err := d.List(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			ids = append(ids, m.ID)
		}
		if r.Cursor = page.Next; r.Cursor == "" {
			return strings.Join(ids, " ")
		}
	}
}

func TestList_filters(t *testing.T) {
	d, s := deskOf(t, 8)
	s.RaiseClaim(2000)
	s.Applied(2)
	for _, test := range []struct {
		filter client.Filter
		want   string
	}{
		{client.Filter{}, "order-0 orders.delay/3/1 order-2 orders.delay/3/3 order-4 orders.delay/3/5 order-6 orders.delay/3/7"},
		{client.Filter{Topic: "orders.delay", Prefix: "order-"}, "order-0 order-2 order-4 order-6"},
		{client.Filter{Prefix: "orders.delay/3/"}, "orders.delay/3/1 orders.delay/3/3 orders.delay/3/5 orders.delay/3/7"},
		{client.Filter{Topic: "payments.delay"}, ""},
		{client.Filter{Target: "payments"}, ""},
		{client.Filter{From: 2000, To: 4000}, "orders.delay/3/1 order-2"},
		{client.Filter{States: []string{"claimed"}}, "order-0 orders.delay/3/1"},
		{client.Filter{States: []string{"waiting", "parked"}, Prefix: "order-"}, "order-2 order-4 order-6"},
	} {
		if got := idsOf(t, d, test.filter); got != test.want {
			t.Errorf("%+v: %s, want %s", test.filter, got, test.want)
		}
	}
}

func TestList_refusesWhatMeansNothing(t *testing.T) {
	d, _ := deskOf(t, 8)
	page, err := d.List(t.Context(), ListRequest{Limit: 3})
	if err != nil || page.Next == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	other, store := deskOf(t, 8)
	store.Found([16]byte{7}, "at-least-once")
	store.Applied(2)
	foreign, err := other.List(t.Context(), ListRequest{Limit: 3})
	if err != nil || foreign.Next == "" {
		t.Fatalf("%+v, %v", foreign, err)
	}
	for _, test := range []struct {
		request ListRequest
		field   string
	}{
		{ListRequest{Limit: 3, Cursor: foreign.Next}, "cursor"},
		{ListRequest{Limit: 3, Cursor: page.Next, Filter: client.Filter{Topic: "orders.delay"}}, "cursor"},
		{ListRequest{Limit: 3, Cursor: "x"}, "cursor"},
		{ListRequest{Limit: 0}, "limit"},
		{ListRequest{Limit: 5000}, "limit"},
		{ListRequest{Limit: 1, Filter: client.Filter{States: []string{"held"}}}, "state"},
		{ListRequest{Limit: 1, Filter: client.Filter{From: 10, To: 5}}, "to"},
	} {
		_, err := d.List(t.Context(), test.request)
		if p, _ := err.(*client.Problem); !errors.Is(err, client.ErrBadRequest) || p.Field != test.field || p.Value == "" {
			t.Errorf("%+v: %#v, want %s", test.request, err, test.field)
		}
	}
}

// What is aside is told by the term: it is listed and counted as that, and as nothing else.
func TestDesk_tellsWhatIsAside(t *testing.T) {
	d, s := deskOf(t, 8)
	s.RaiseClaim(4000)
	s.Applied(2)
	aside := map[uint64]int64{2: 2000, 3: 3000, 99: 1000} // seqs; the last one is gone
	d = d.Telling(func() map[uint64]int64 { return aside })
	all := "order-0 orders.delay/3/1 order-2 orders.delay/3/3 order-4 orders.delay/3/5 order-6 orders.delay/3/7"
	for _, test := range []struct {
		filter client.Filter
		want   string
	}{
		{client.Filter{}, all},
		{client.Filter{States: []string{"aside"}}, "orders.delay/3/1 order-2"},
		{client.Filter{States: []string{"aside"}, From: 2001}, "order-2"},
		{client.Filter{States: []string{"aside"}, To: 3000}, "orders.delay/3/1"},
		{client.Filter{States: []string{"aside"}, Prefix: "orders.delay/3/"}, "orders.delay/3/1"},
		{client.Filter{States: []string{"aside"}, Target: "payments"}, ""},
		{client.Filter{States: []string{"claimed"}}, "order-0 orders.delay/3/3"},
		{client.Filter{States: []string{"claimed", "aside"}}, "order-0 orders.delay/3/1 order-2 orders.delay/3/3"},
	} {
		if got := idsOf(t, d, test.filter); got != test.want {
			t.Errorf("%+v: %s, want %s", test.filter, got, test.want)
		}
		if test.filter.Prefix != "" { // its slash keeps it from being counted
			continue
		}
		if count, err := d.Count(t.Context(), test.filter); err != nil || !count.Exact || count.Count != uint64(len(strings.Fields(test.want))) {
			t.Errorf("%+v: counted %+v, %v", test.filter, count, err)
		}
	}
	if found, err := d.Find(t.Context(), message.Origin{Topic: "orders.delay", Partition: 3, Offset: 1}, ""); err != nil || found.Message == nil || found.Message.State != client.StateAside {
		t.Errorf("found %+v, %v", found, err)
	}
	if _, err := NewWalk(s, client.Filter{States: []string{"waiting", "aside"}}, 9); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("an operation on what is aside: %v", err)
	}
	aside = nil
	if got := idsOf(t, d, client.Filter{States: []string{"aside"}}); got != "" {
		t.Errorf("%s are aside, and none is", got)
	}
	if got := idsOf(t, d.Local(), client.Filter{}); got != all {
		t.Errorf("listed %s, want %s", got, all)
	}
}

func TestFind_searchesForWhatNobodyNamed(t *testing.T) {
	d, _ := deskOf(t, 20)
	for offset := range int64(22) {
		found, err := d.Find(t.Context(), message.Origin{Topic: "orders.delay", Partition: 3, Offset: offset}, "")
		if err != nil || found.Next != "" || (found.Message != nil) != (offset%2 == 1 && offset < 20) {
			t.Fatalf("offset %d: %+v, %v", offset, found, err)
		}
		if found.Message != nil && (found.Message.Due != 1000*(offset+1) || string(found.Message.Payload.Value) != "a parcel") {
			t.Errorf("offset %d: %+v", offset, found.Message)
		}
	}
	for id, want := range map[string]bool{"orders.delay/3/17": true, "orders.delay/3": false, "orders.delay/3/x": false, "orders.delay/03/1": false, "orders.delay/-1/5": false, "orders.delay/0/-5": false, "a/b/1/2": false} {
		if _, ok := ParseOrigin(id); ok != want {
			t.Errorf("%s: %v", id, ok)
		}
	}
}

// A search goes on where it stopped.
func TestFind_isResumedByItsCursor(t *testing.T) {
	d, _ := deskOf(t, 40_000)
	origin, calls := message.Origin{Topic: "orders.delay", Partition: 3, Offset: 39_999}, 0
	var found client.Finding
	for found.Message == nil {
		var err error
		if found, err = d.Find(t.Context(), origin, found.Next); err != nil {
			t.Fatal(err)
		}
		if calls++; found.Message == nil && found.Next == "" {
			t.Fatal("not found")
		}
	}
	if calls < 2 || found.Message.ID != origin.String() {
		t.Errorf("%d calls, found %+v", calls, found.Message)
	}
}

func TestGet_needsOpenIDs(t *testing.T) {
	d, s := deskOf(t, 4)
	if _, err := d.Get(t.Context(), "orders.delay", "order-2"); !errors.Is(err, ErrIDsClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := s.OpenIDs(nil, 4); err != nil {
		t.Fatal(err)
	}
	s.Applied(2)
	life, err := d.Get(t.Context(), "orders.delay", "order-2")
	if err != nil || life.Message == nil || life.Message.Seq != 3 || life.Message.State != "waiting" || life.Message.From != "orders.delay/3/2" || string(life.Message.Payload.Value) != "a parcel" {
		t.Errorf("got %+v, %v", life, err)
	}
}

// A timeLog is one whose entries move the schedule's time.
type timeLog struct {
	doneLog
	store *storage.Store
	now   int64
	index uint64
}

func (l *timeLog) Barrier(context.Context) error {
	l.index++
	l.store.SetTime(l.now)
	l.store.Applied(l.index)
	return nil
}

// What has expired is told by the schedule's time alone, which the entry of a question has moved; who is told what
// this node knows moves nothing.
func TestDesk_tellsByTheSchedulesTimeWhatHasExpired(t *testing.T) {
	_, s := deskOf(t, 4)
	m := message.Message{Origin: message.Origin{Topic: "bills.delay", Offset: 1}, Partition: -1, ID: "bill", Expires: 500_000}
	if _, err := s.OpenIDs(nil, 4); err != nil {
		t.Fatal(err)
	}
	s.Accept([]storage.Entry{m.Entry(400_000, "bills", storage.LevelThree)})
	s.Pause(pause.Pause{Kind: pause.Target, Name: "bills"})
	s.Applied(2)
	log := &timeLog{store: s, now: 499_999, index: 2}
	d := New(s, log)
	expect := func(name string, d *Desk, want string) {
		t.Helper()
		life, err := d.Get(t.Context(), "bills.delay", "bill")
		if err != nil || life.Message.State != want {
			t.Errorf("%s: got %+v, %v, want %s", name, life, err, want)
		}
		for _, state := range []string{"paused", "expired"} {
			f := client.Filter{Topic: "bills.delay", States: []string{state}}
			count, err := d.Count(t.Context(), f)
			if listed := idsOf(t, d, f); err != nil || (listed == "bill") != (state == want) || (count.Count == 1) != (state == want) {
				t.Errorf("%s: %q are listed as %s, %d counted, %v", name, listed, state, count.Count, err)
			}
		}
	}
	expect("before", d, "paused")
	log.now = 500_000
	expect("here, where nobody has asked since", d.Local(), "paused")
	expect("then", d, "expired")
	log.now = 499_000 // another leader's clock
	expect("after", d, "expired")
	expect("here", d.Local(), "expired")
}

func TestHistogram_countsByTimeAndTarget(t *testing.T) {
	d, _ := deskOf(t, 8)
	show := func(r HistogramRequest) string {
		t.Helper()
		h, err := d.Histogram(t.Context(), r)
		if err != nil || !h.Exact || h.Pending != 8 || h.Index != 1 {
			t.Fatalf("%+v, %v", h, err)
		}
		text, err := json.Marshal(h.Buckets)
		if err != nil {
			t.Fatal(err)
		}
		if h.Untold != nil {
			text = fmt.Appendf(text, " untold %d", h.Untold.Count)
		}
		return string(text)
	}
	for _, test := range []struct {
		request HistogramRequest
		want    string
	}{
		{HistogramRequest{}, `[{"count":"8","within":"0"}]`},
		{HistogramRequest{Filter: client.Filter{From: 2000, To: 4000}}, `[{"count":"2","within":"0"}]`},
		{HistogramRequest{Bounds: []int64{2000, 5000}, ByTarget: true},
			`[{"to":"2000","target":"orders","count":"1","within":"0"},{"from":"2000","to":"5000","target":"orders","count":"3","within":"0"},{"from":"5000","target":"orders","count":"4","within":"0"}]`},
		{HistogramRequest{Filter: client.Filter{Topic: "orders.delay"}}, `[{"count":"4","within":"0"}] untold 4`},
		{HistogramRequest{Filter: client.Filter{Prefix: "order-4"}}, `[{"count":"1","within":"0"}] untold 4`},
		{HistogramRequest{Filter: client.Filter{Target: "payments"}}, `[]`},
	} {
		if got := show(test.request); got != test.want {
			t.Errorf("%+v: %s", test.request, got)
		}
	}
	for want, r := range map[string]HistogramRequest{
		"bounds 5 2":           {Bounds: []int64{5, 2}},
		"bounds 1001":          {Bounds: make([]int64, 1001)},
		"prefix orders.delay/": {Filter: client.Filter{Prefix: "orders.delay/"}},
	} {
		_, err := d.Histogram(t.Context(), r)
		if p, _ := err.(*client.Problem); !errors.Is(err, client.ErrBadRequest) || p.Field+" "+p.Value != want {
			t.Errorf("%#v, want %s", err, want)
		}
	}
}

// Whatever a prefix begins, what is counted is what is listed: a bulk operation is started by the one and does the other.
func TestCount_countsWhatIsListed(t *testing.T) {
	d, _ := deskOf(t, 8) // the first four tell their names by their bodies alone
	for _, f := range []client.Filter{
		{Prefix: "order"}, {Prefix: "orders"}, {Prefix: "orders.delay"}, {Prefix: "order-"}, {Prefix: "order-6"}, {Prefix: "x"},
		{Topic: "orders.delay", Prefix: "o"}, {Topic: "orders.delay", Prefix: "order", From: 5000}, {Topic: "payments.delay", Prefix: "order"},
	} {
		counted, err := d.Count(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		listed := uint64(len(strings.Fields(idsOf(t, d, f))))
		if listed < counted.Count || listed > counted.Count+counted.Within || f.From == 5000 && (counted.Count != 4 || counted.Within != 0) {
			t.Errorf("%+v: %d listed, counted %+v", f, listed, counted)
		}
	}
}
