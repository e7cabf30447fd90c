package broker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		const n = mostExposed + 1000
		b.deliver("orders", n, nil)
		b.after(time.Second)
		if got := len(b.written("orders", 0)); got != mostExposed {
			t.Errorf("%d written while no Ack gets through, want %d", got, mostExposed)
		}
		b.after(time.Minute)
		if got := len(b.acked()); got != n || b.loaded.Load() != 0 {
			t.Errorf("%d of %d acknowledged afterwards, %d bytes of payload in memory", got, n, b.loaded.Load())
		}
		b.stop()
	})
}

// The Ack that a lane waits for gets through at whatever moment between its finding
// that it is exposed and its going to sleep: whenever it looks at the clock.
func TestLane_doesNotMissTheAckThatItWaitsFor(t *testing.T) {
	for moment := int64(1); moment <= 10; moment++ {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.sink.topic("steady", 1)
			b.sink.topic("late", 1)
			release := make(chan struct{})
			var released atomic.Bool
			ack := func() {
				if released.CompareAndSwap(false, true) {
					close(release)
					time.Sleep(50 * time.Millisecond) // until it is in the log
				}
			}
			b.acks.commit = func(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
				<-release
				return b.log.commit(ctx, c)
			}
			late := b.accept("late", ownExposed+1, nil)
			time.Sleep(5 * time.Second)
			b.deliver("steady", mostExposedLate, nil)
			b.after(time.Second)
			time.AfterFunc(10*time.Second, ack)
			var looks atomic.Int64
			b.cfg.Now = func() time.Time {
				if len(b.written("late", 0)) == ownExposed && looks.Add(1) == moment {
					ack()
				}
				return time.Now()
			}
			b.hand(late)
			b.after(20 * time.Second)
			if got := len(b.written("late", 0)); got != len(late) {
				t.Errorf("%d of %d written", got, len(late))
			}
			b.stop()
		})
	}
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
				b.hand(late)
			}
			b.after(time.Millisecond)
		}
		if got := len(b.written("late", 0)); got != len(late) {
			t.Errorf("%d of %d late messages written beside a busy target in half a second", got, len(late))
		}
		b.stop()
	})
}
