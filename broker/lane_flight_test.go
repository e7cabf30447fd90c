package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
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
