package deliver

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
)

// While a failure is dealt with nothing comes in that could be sent before what failed, and the end
// of a term is waited for where an answer is on its way that nobody else hears.
func TestStates_hearOnlyWhatTheyActOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := newLane(b.Publisher, "orders")
		l.waiting = append(l.waiting, b.accept("orders", 1, nil)[0].Ref)
		heard := func(s state) (names []string) {
			h := s.hears(l)
			for _, c := range []struct {
				name string
				is   bool
			}{
				{"orders", h.orders != nil},
				{"answers", h.answers != nil},
				{"outcomes", h.outcomes != nil},
				{"acks", h.freed != nil},
				{"the log", h.committed != nil},
				{"the clock", !h.until.IsZero()},
				{"the end of the term", !h.outlastTerm},
			} {
				if c.is {
					names = append(names, c.name)
				}
			}
			return names
		}
		now, done := time.Now(), make(chan struct{})
		l.flights.launch(&outgoing{sent: now})
		for _, test := range []struct {
			state state
			want  []string
		}{
			{&sending{freed: done}, []string{"orders", "answers", "outcomes", "acks", "the clock", "the end of the term"}},
			{newSettling(nil, nil), []string{"outcomes", "the clock", "the end of the term"}},
			{&settling{abandoned: 1}, []string{"outcomes", "the end of the term"}}, // given up already
			{&backingOff{until: now}, []string{"the clock", "the end of the term"}},
			{&condemning{done: done}, []string{"the log"}},
			{&draining{until: now}, []string{"outcomes", "the clock"}},
		} {
			if diff := cmp.Diff(test.want, heard(test.state)); diff != "" {
				t.Errorf("%T hears (-want +got):\n%s", test.state, diff)
			}
		}
		b.stop()
	})
}

// The term ends while the log is asked to replace messages by dead letters: before it has answered,
// nobody knows whether they are alive.
func TestCondemning_outlastsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1).refuse = func(Delivery) error { return ErrRecordRefused }
		asked := make(chan struct{})
		answered := false
		b.commit = func(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
			close(asked)
			<-ctx.Done()
			time.Sleep(time.Second)
			answered = true
			return raftfsm.Result{}, ctx.Err()
		}
		b.deliver("orders", 1, nil)
		<-asked
		if err := b.stop(); err != nil || !answered {
			t.Errorf("the term ended with %v; the log had answered: %v", err, answered)
		}
	})
}

// valueIs returns whether the record carries one of the seqs.
func valueIs(d Delivery, seqs ...uint64) bool {
	return slices.ContainsFunc(seqs, func(seq uint64) bool { return string(d.Value) == fmt.Sprint(seq) })
}

func TestLane_keepsOrderWhenSendsFailAndHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 3)
		tries := 0
		orders.refuse = func(d Delivery) error {
			if d.Partition == 1 {
				if tries++; tries < 200 {
					return ErrTargetUnavailable
				}
			}
			return nil
		}
		seqs := b.deliver("orders", 600, nil)
		b.after(time.Minute)
		var all []uint64
		for partition := range int32(3) {
			got := b.written("orders", partition)
			if !slices.IsSorted(got) {
				t.Errorf("partition %d is out of order: %v", partition, got)
			}
			all = append(all, got...)
		}
		slices.Sort(all)
		if diff := cmp.Diff(seqs, all); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		if b.count.retried == 0 {
			t.Error("no retry was counted")
		}
		if verdicts := b.verdicts(); len(verdicts) != 0 {
			t.Errorf("verdicts %v of a target that always took something", verdicts)
		}
		b.stop()
	})
}

func TestLane_backsOffWhileSendsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		var tries []time.Time
		orders.refuse = func(Delivery) error {
			tries = append(tries, time.Now())
			return ErrTargetUnavailable
		}
		b.deliver("orders", 1, nil)
		b.after(time.Second)
		var waits []time.Duration
		for i := 1; i < len(tries); i++ {
			waits = append(waits, tries[i].Sub(tries[i-1])-orders.latency)
		}
		want := []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

func TestLane_refusesOnlyWhatFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		orders.refuse = func(d Delivery) error {
			if valueIs(d, 1, 50, 51, 99) {
				return ErrRecordTooLarge
			}
			return nil
		}
		seqs := b.deliver("orders", 100, nil)
		b.after(10 * time.Second)
		innocent := slices.DeleteFunc(seqs, func(seq uint64) bool { return slices.Contains([]uint64{1, 50, 51, 99}, seq) })
		if diff := cmp.Diff(innocent, b.written("orders", 0)); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(innocent, b.acked()); diff != "" {
			t.Errorf("acknowledged (-want +got):\n%s", diff)
		}
		var condemned []string
		for _, entry := range b.log.dead {
			m, err := message.FromEntry(&entry)
			if err != nil {
				t.Fatal(err)
			}
			condemned = append(condemned, string(m.Value))
			if !orders.attempts[string(m.Value)].alone {
				t.Errorf("message %s was condemned though others were on their way", m.Value)
			}
		}
		if diff := cmp.Diff([]string{"1", "50", "51", "99"}, condemned); diff != "" {
			t.Errorf("dead-lettered (-want +got):\n%s", diff)
		}
		if n := b.count.deadLettered[message.CodeTooLarge]; n != 4 {
			t.Errorf("%d messages counted as too large, want 4", n)
		}
		b.stop()
	})
}

func TestLane_condemnsManyInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 4).refuse = func(Delivery) error { return ErrRecordRefused }
		b.deliver("orders", 300, nil)
		b.after(10 * time.Second)
		if n := b.count.deadLettered[message.CodeRefused]; n != 300 {
			t.Errorf("%d messages dead-lettered, want 300", n)
		}
		if verdicts := b.verdicts(); len(verdicts) != 0 {
			t.Errorf("verdicts %v of a target that answers", verdicts)
		}
		b.stop()
	})
}

func TestLane_keepsOrderWhenPartitionsAreAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		orders.latency = 50 * time.Millisecond
		withKey := func(i int, m *message.Message) { m.Key = []byte{byte(i % 7)} }
		b.deliver("orders", 1, withKey)
		b.after(countMaxAge - 10*time.Millisecond)
		first := b.deliver("orders", 100, withKey)
		b.after(20 * time.Millisecond)
		flyingBefore := 0
		b.sink.change(func() {
			flyingBefore = len(orders.flying)
			orders.partitions = 3
			orders.latency = time.Millisecond // nobody waits for the others' sake
			orders.refuse = func(d Delivery) error {
				if len(d.Value) > 0 && d.Partition > 0 && len(orders.written[0]) < 1+len(first) {
					t.Errorf("record %s went to partition %d before what was flying had come down", d.Value, d.Partition)
				}
				return nil
			}
		})
		if flyingBefore != len(first) {
			t.Fatalf("%d records are flying, want %d", flyingBefore, len(first))
		}
		b.deliver("orders", 1, withKey) // goes out by what is known; Kafka is asked meanwhile
		b.after(time.Millisecond)
		second := b.deliver("orders", 100, withKey)
		b.after(time.Second)
		if n := len(b.acked()); n != 2+len(first)+len(second) {
			t.Errorf("%d messages acknowledged, want %d", n, 2+len(first)+len(second))
		}
		if len(b.written("orders", 1)) == 0 {
			t.Error("the new partitions are not used")
		}
		b.stop()
	})
}

func TestLane_givesUpWhatIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		orders.silent = true
		seqs := b.deliver("orders", 20, nil)
		b.after(stallAfter - time.Second)
		if orders.isolated != 0 || len(b.verdicts()) != 0 {
			t.Error("given up too early")
		}
		b.after(2 * time.Second)
		b.sink.change(func() { orders.silent = false })
		got := b.verdicts()
		if len(got) != 1 || !got[0].Parked || len(got[0].Returned) != len(seqs) {
			t.Fatalf("verdicts %v, want one that returns everything", got)
		}
		b.after(time.Second)
		if got := b.verdicts(); len(got) != 1 || got[0].Parked {
			t.Errorf("verdicts %v, want one that the target works", got)
		}
		b.stop()
	})
}

func TestLane_isolatesWhatDoesNotSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 2)
		orders.heals = true
		orders.refuse = func(d Delivery) error {
			if orders.isolated == 0 {
				orders.silent = true // the other partition is never answered
				return ErrTargetUnavailable
			}
			return nil
		}
		seqs := b.deliver("orders", 10, nil)
		b.after(stallAfter - time.Second)
		if orders.isolated != 0 {
			t.Error("isolated too early")
		}
		b.after(2 * time.Second)
		if orders.isolated != 1 {
			t.Errorf("isolated %d times, want once", orders.isolated)
		}
		all := append(b.written("orders", 0), b.written("orders", 1)...)
		slices.Sort(all)
		if diff := cmp.Diff(seqs, all); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

// A target that answers each request in time, but takes seconds for it, is not silent: a record that waits for the answers
// to those before it is not given up, which would have it written twice; nor is it when one of another partition is refused.
func TestLane_givesUpNothingThatWaitsItsTurn(t *testing.T) {
	for _, refused := range []uint64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			orders := b.sink.topic("orders", 4)
			orders.latency, orders.inTurn = stallAfter-time.Second, true
			orders.refuse = func(d Delivery) error {
				if valueIs(d, refused) {
					return ErrRecordTooLarge
				}
				return nil
			}
			b.deliver("orders", 200, nil)
			b.after(time.Hour)
			ended := b.count.delivered + len(b.log.dead)
			if most := int(refused); orders.isolated != 0 || b.count.retried > most || ended != 200 {
				t.Errorf("%d refused: given up %d times; of 200 records %d have ended, and %d were sent again", refused, orders.isolated, ended, b.count.retried)
			}
			b.stop()
		})
	}
}

// A partition whose Kafka broker is silent is given up once what flew beside it is answered and five seconds have passed
// since: nothing follows a record that is not answered.
func TestLane_givesUpWhatIsSilentBesideWhatAnswers(t *testing.T) {
	for latency, most := range map[time.Duration]time.Duration{time.Millisecond: slowAfter + stallAfter, 4 * time.Second: 8*time.Second + stallAfter} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			orders := b.sink.topic("orders", 2)
			orders.latency, orders.inTurn = latency, true
			b.sink.change(func() { // what departed before is never answered
				orders.buffered[1] = []*attempt{{series: new(Series), done: func(Receipt, error) {}}}
			})
			b.deliver("orders", 200, nil)
			b.after(most - 500*time.Millisecond)
			early := orders.isolated
			b.after(time.Second)
			if early != 0 && latency > time.Second || orders.isolated != 1 {
				t.Errorf("answers of %v: given up %d times before %v, %d soon after", latency, early, most, orders.isolated)
			}
			b.stop()
		})
	}
}

// A target that answers the first request after it was given up, and no second one, gets no more copies than
// twice what it acknowledges and what was given up first, and one for each try.
func TestLane_sendsLittleToWhoAnswersLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 100
		b := newBench(t)
		f := &feeder{bench: b}
		orders := b.sink.topic("orders", 1)
		orders.inTurn = true
		sent, sends, isolated := b.sink.sent, 0, -1
		b.sink.sent = func(d Delivery) {
			sent(d)
			b.sink.change(func() {
				sends++
				if orders.isolated > isolated {
					isolated, orders.latency = orders.isolated, time.Millisecond
				}
			})
		}
		orders.refuse = func(Delivery) error {
			orders.latency = time.Hour
			return nil
		}
		f.waiting = b.accept("orders", messages, nil)
		for range 3000 {
			f.step()
			b.after(200 * time.Millisecond)
		}
		if n := b.count.delivered; n != messages || orders.isolated < messages/4 {
			t.Errorf("%d of %d are delivered, given up %d times", n, messages, orders.isolated)
		}
		if sends > 6*messages {
			t.Errorf("%d records were sent, %d at most", sends, 6*messages)
		}
		b.stop()
	})
}
