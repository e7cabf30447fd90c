package deliver

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

func TestLane_goesOnWhenAcksHaveHungForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1)
		hung := time.Now().Add(idleAfter + 10*time.Second)
		b.acks.commit = func(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
			time.Sleep(time.Until(hung))
			return b.log.commit(ctx, c)
		}
		const rounds, each = 100, 50
		for range rounds {
			b.deliver("orders", each, nil)
			b.after(10 * time.Millisecond)
		}
		if got, most := len(b.written("orders", 0)), int(leastUnacked/(10*time.Millisecond)+1)*each; got > most {
			t.Errorf("%d written while no Ack gets through, want %d at most", got, most)
		}
		b.after(time.Minute)
		if got := len(b.acked()); got != rounds*each || b.loaded.Load() != 0 {
			t.Errorf("%d of %d acknowledged afterwards, %d bytes of payload in memory", got, rounds*each, b.loaded.Load())
		}
		b.stop()
	})
}

// 25,000 messages a second for one target, a commit takes 8 ms. For a while nothing is handed over, as in a
// fail-over; then all of it at once.
func TestLane_catchesUpAfterAHiccup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hiccup = 1200 * time.Millisecond
		b := newBench(t)
		b.sink.topic("orders", 12)
		b.acks.commit = func(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
			time.Sleep(5 * time.Millisecond)
			return b.log.commit(ctx, c)
		}
		handed := 0
		var held []schedule.DueMessage
		for start := time.Now(); time.Since(start) < 4*time.Second; {
			held = append(held, b.accept("orders", 250, nil)...)
			if at := time.Since(start); at < time.Second || at >= time.Second+hiccup {
				b.Hand(held)
				handed += len(held)
				held = nil
			}
			b.after(10 * time.Millisecond)
		}
		if waiting := handed - b.count.delivered; waiting > 250 {
			t.Errorf("%d of %d messages wait, two seconds after the hiccup", waiting, handed)
		}
		b.stop()
	})
}

func TestLane_getsOnBesideABusyOneWhenItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("steady", 1)
		b.sink.topic("late", 1)
		b.acks.commit = func(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
			time.Sleep(20 * time.Millisecond)
			return b.log.commit(ctx, c)
		}
		late := b.accept("late", 200, nil)
		b.after(2 * time.Second)
		for i := range 600 {
			b.deliver("steady", 30, nil) // at one time some 600 are not acknowledged
			if i == 100 {
				b.Hand(late)
			}
			b.after(time.Millisecond)
		}
		if got := len(b.written("late", 0)); got != len(late) {
			t.Errorf("%d of %d late messages written beside a busy target in half a second", got, len(late))
		}
		b.stop()
	})
}

func TestDelivery_stripsInstructionsButADeadLetterKeepsThem(t *testing.T) {
	l := &lane{p: &Publisher{cfg: Options{ClusterID: [16]byte{0xc1}}}, target: "orders"}
	o := &outgoing{ref: storage.Ref{Due: 1000, Seq: 7}, message: message.Message{
		Origin: message.Origin{Topic: "orders.delay", Partition: 2, Offset: 40}, PlannedFor: 1000, Partition: -1, Key: []byte("own"), Value: []byte{},
		Headers: []message.Header{{Key: "a", Value: nil}, {Key: "deliver-after", Value: []byte("1s")}, {Key: "a", Value: []byte{}}, {Key: "deliver-key", Value: []byte("other")}},
	}}
	want := Delivery{Topic: "orders", Partition: 1, Key: []byte("other"), Value: []byte{}, Headers: []message.Header{
		{Key: "a", Value: nil}, {Key: "a", Value: []byte{}},
		{Key: "delivered-id", Value: []byte("orders.delay/2/40")}, {Key: "delivered-for", Value: []byte("1000")}, {Key: "delivered-from", Value: []byte("orders.delay/2/40")},
		{Key: "delivered-seq", Value: []byte("c1000000000000000000000000000000/7")},
	}}
	if diff := cmp.Diff(want, l.delivery(o, 1)); diff != "" {
		t.Errorf("delivery (-want +got):\n%s", diff)
	}
	o.deadLetter, l.target = true, "dead"
	want = Delivery{Topic: "dead", Partition: 1, Key: []byte("own"), Value: []byte{}, Headers: o.message.Headers}
	if diff := cmp.Diff(want, l.delivery(o, 1)); diff != "" {
		t.Errorf("dead letter (-want +got):\n%s", diff)
	}
}

func TestLane_leavesWhatItCannotReadWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1)
		due := b.accept("orders", 300, nil)
		for seq, damage := range map[uint64]func([]byte) []byte{
			1:   func(body []byte) []byte { return body[:len(body)-1] },
			150: func(body []byte) []byte { return append([]byte{200}, body[1:]...) }, // of a newer version
			151: func([]byte) []byte { return nil },
		} {
			entry := b.log.alive[seq]
			entry.Body = damage(entry.Body)
			b.log.alive[seq] = entry
		}
		b.Hand(due)
		b.after(time.Minute) // idle lanes are gone by then
		want := slices.DeleteFunc(seqsOf(due), func(seq uint64) bool { return seq == 1 || seq == 150 || seq == 151 })
		if diff := cmp.Diff(want, b.written("orders", 0)); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
		if len(b.log.alive) != 3 || len(b.log.dead) != 0 || b.count.unreadable != 3 {
			t.Errorf("%d alive, %d condemned, %d counted, want 3, none and 3", len(b.log.alive), len(b.log.dead), b.count.unreadable)
		}
		if loaded := b.loaded.Load(); loaded != 0 {
			t.Errorf("%d bytes counted as in memory", loaded)
		}
		problems := b.cfg.Report.Read().Problems
		if len(problems) != 1 || !strings.Contains(problems[0], `messages cannot be read and stay as they are, 3 of them, one for topic "orders"`) {
			t.Errorf("problems %q, want that three cannot be read", problems)
		}
		if err := b.stop(); err != nil {
			t.Errorf("the term ended: %v", err)
		}
	})
}

// As many records fly as are answered in the time that a kill may repeat anyway, so a busy target goes out as fast as
// Kafka takes it. Where an answer takes longer than that, no more fly than always.
func TestLane_letsFlyWhatIsAnsweredInAMoment(t *testing.T) {
	for latency, bounds := range map[time.Duration]struct{ least, most int }{
		40 * time.Millisecond:  {mostFlying + 1, mostLoad / recordLoad},
		400 * time.Millisecond: {mostFlying, mostFlying},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			topic := b.sink.topic("orders", 1)
			topic.latency = latency
			flying := 0
			b.sink.sent = func(Delivery) { b.sink.change(func() { flying = max(flying, len(topic.flying)+1) }) }
			const n = 20_000
			b.Hand(b.accept("orders", n, nil))
			b.after(time.Minute)
			if got := len(b.written("orders", 0)); got != n {
				t.Errorf("%v: %d of %d messages were written", latency, got, n)
			}
			if flying < bounds.least || flying > bounds.most {
				t.Errorf("%v: %d records were on their way at a time, want %d to %d", latency, flying, bounds.least, bounds.most)
			}
			b.stop()
		})
	}
}

// A stored header may be two bytes, and takes many times that in memory.
func TestOutgoing_countsItsHeaders(t *testing.T) {
	for headers, want := range map[int]int{0: recordLoad + 7, usualHeaders: recordLoad + 7, 1_000_000: recordLoad + 7 + (1_000_000-usualHeaders)*headerLoad} {
		o := outgoing{size: 7, message: message.Message{Headers: make([]message.Header, headers)}}
		if o.load() != want {
			t.Errorf("%d headers: %d bytes, want %d", headers, o.load(), want)
		}
	}
}
