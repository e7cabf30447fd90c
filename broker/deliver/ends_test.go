package deliver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// everyThird gives each third message an id.
func everyThird(i int, m *message.Message) {
	if i%3 == 0 {
		m.ID = fmt.Sprint("id-", i)
	}
}

// raise raises the feature level of the log.
func (b *bench) raise(level storage.Level) {
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	b.log.level = level
}

func TestEnds_tellWhereAMessageWithAnIDWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelThree)
		b.sink.topic("orders", 3)
		due := b.accept("orders", 300, everyThird)
		b.after(20 * time.Millisecond)
		b.Hand(due)
		b.after(time.Second)
		if len(b.log.told) != 100 {
			t.Errorf("%d outcomes are told, want those of the 100 with an id", len(b.log.told))
		}
		for _, e := range b.log.told {
			written := b.sink.topics["orders"].written[e.Partition][e.Offset]
			if string(written.Value) != fmt.Sprint(e.Seq) {
				t.Errorf("message %d is said to be at %d/%d, where %s is", e.Seq, e.Partition, e.Offset, written.Value)
			}
			want := outcomes.Outcome{Name: name.Of("in.delay", fmt.Sprint("id-", e.Seq-1)), Kind: outcomes.Delivered, Seq: e.Seq,
				Due: due[0].Due, At: due[0].Due + 22, Target: "orders", Partition: e.Partition, Offset: e.Offset}
			if diff := cmp.Diff(want, e); diff != "" {
				t.Errorf("message %d: %s", e.Seq, diff)
			}
		}
		b.stop()
	})
}

// A node of an older program, which may come to lead, would not know what the command says.
func TestEnds_areNotToldBeforeTheLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelTwo)
		b.sink.topic("orders", 1)
		b.sink.topic("tight", 1).refuse = func(Delivery) error { return ErrRecordTooLarge }
		b.deliver("orders", 30, everyThird)
		b.deliver("tight", 30, everyThird)
		b.after(time.Second)
		if len(b.log.alive) > 0 || len(b.log.told) > 0 { // fakeLog.hear looks as well
			t.Errorf("%d are alive, %d outcomes told", len(b.log.alive), len(b.log.told))
		}
		b.raise(storage.LevelThree)
		b.deliver("orders", 30, everyThird)
		b.after(time.Second)
		if len(b.log.told) != 10 {
			t.Errorf("%d outcomes are told after the raise, want 10", len(b.log.told))
		}
		b.stop()
	})
}

func TestEnds_tellWhatIsDeadLettered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelThree)
		b.sink.topic("tight", 1).refuse = func(d Delivery) error {
			if len(d.Value)%2 == 0 { // 10 to 99
				return ErrRecordTooLarge
			}
			return nil
		}
		due := b.accept("tight", 99, everyThird)
		b.Hand(due)
		b.after(10 * time.Second)
		letters := 0
		for _, e := range b.log.told {
			if e.Kind == outcomes.Delivered {
				continue
			}
			letters++
			want := outcomes.Outcome{Name: name.Of("in.delay", fmt.Sprint("id-", e.Seq-1)), Kind: outcomes.DeadLettered, Seq: e.Seq,
				Due: due[0].Due, At: e.At, Target: "dead", Partition: -1, Offset: -1}
			if diff := cmp.Diff(want, e); diff != "" || e.At < e.Due || e.At > e.Due+10_000 {
				t.Errorf("message %d at %d: %s", e.Seq, e.At, diff)
			}
		}
		if letters != 30 || len(b.log.told) != 33 || len(b.log.dead) != 90 {
			t.Errorf("%d dead letters, %d of them told, and %d outcomes in all; want 90, 30, 33", len(b.log.dead), letters, len(b.log.told))
		}

		// A dead letter has no id: what becomes of it says nothing of the message.
		b.sink.topic("dead", 1)
		b.deliver("dead", 1, func(_ int, m *message.Message) {
			m.ID = "id"
			*m = m.AsDeadLetter(message.Problem{Code: message.CodeTargetMissing}, 0)
		})
		b.after(time.Second)
		if len(b.log.told) != 33 {
			t.Errorf("told of a dead letter: %+v", b.log.told[33:])
		}
		b.stop()
	})
}

// What an Ack that did not get through has told is told by the last one of the term.
func TestEnds_areToldAtTheEndOfATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelThree)
		b.sink.topic("orders", 1)
		failed := false
		b.acks.commit = func(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
			if !failed {
				failed = true
				return raftfsm.Result{}, errors.New("lost leadership")
			}
			return b.log.commit(ctx, c)
		}
		b.deliver("orders", 300, everyThird)
		b.after(time.Second)
		if err := <-b.ended; err == nil {
			t.Error("the term goes on though an Ack failed")
		}
		if len(b.log.acked) != 300 || len(b.log.told) != 100 {
			t.Errorf("%d acknowledged, %d outcomes told, want 300 and 100", len(b.log.acked), len(b.log.told))
		}
		b.end()
	})
}

// expiring has message i expire that many milliseconds after now, 0: never.
func expiring(after func(i int) int64) func(int, *message.Message) {
	return func(i int, m *message.Message) {
		m.ID = fmt.Sprint("id-", i)
		if ms := after(i); ms != 0 {
			m.Expires = time.Now().UnixMilli() + ms
		}
	}
}

// kinds counts what is told, by kind.
func (b *bench) kinds() map[outcomes.Kind]int {
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	n := make(map[outcomes.Kind]int)
	for _, e := range b.log.told {
		n[e.Kind]++
	}
	return n
}

// The instant itself is too late.
func TestExpiry_isLookedAtBeforeTheFirstTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelThree)
		b.sink.topic("orders", 1)
		due := b.accept("orders", 300, expiring(func(i int) int64 { return int64(500 + i%3 - 1) }))
		b.after(500 * time.Millisecond)
		b.Hand(due)
		b.after(time.Second)
		want := map[outcomes.Kind]int{outcomes.Expired: 200, outcomes.Delivered: 100}
		if diff := cmp.Diff(want, b.kinds()); diff != "" || b.count.expired != 200 {
			t.Errorf("%d counted, %s", b.count.expired, diff)
		}
		if len(b.log.alive) > 0 || b.loaded.Load() != 0 || b.count.delivered != 100 {
			t.Errorf("%d are alive, %d bytes in memory, %d delivered", len(b.log.alive), b.loaded.Load(), b.count.delivered)
		}
		for _, e := range b.log.told {
			expires := due[0].Due + 499 + int64(e.Seq-1)%3 // whenever it was dropped
			if e.Kind == outcomes.Expired && e != (outcomes.Outcome{Name: name.Of("in.delay", fmt.Sprint("id-", e.Seq-1)), Kind: outcomes.Expired, Seq: e.Seq, Due: due[0].Due, At: expires}) {
				t.Errorf("told: %+v", e)
			}
		}
		b.stop()
	})
}

// Who asks is answered by the time of the log, which another leader may have set.
func TestExpiry_goesByTheLogWhereThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelThree)
		b.sink.topic("orders", 1)
		b.log.mu.Lock()
		b.log.time = time.Now().UnixMilli() + 100
		b.log.mu.Unlock()
		b.deliver("orders", 2, expiring(func(i int) int64 { return int64(100 + i) }))
		b.after(50 * time.Millisecond)
		want := map[outcomes.Kind]int{outcomes.Expired: 1, outcomes.Delivered: 1}
		if diff := cmp.Diff(want, b.kinds()); diff != "" {
			t.Error(diff)
		}
		b.stop()
	})
}

func TestExpiry_isLookedAtBeforeEachFurtherTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelThree)
		orders := b.sink.topic("orders", 1)
		orders.refuse = func(Delivery) error { return ErrTargetUnavailable }
		b.deliver("orders", 100, expiring(func(i int) int64 { return int64(i%2) * 400 }))
		b.after(300 * time.Millisecond)
		if b.count.retried == 0 || len(b.log.told) > 0 {
			t.Fatalf("%d retried, and %v told too early", b.count.retried, b.log.told)
		}
		b.after(200 * time.Millisecond)
		b.sink.change(func() { orders.refuse = nil })
		b.after(2 * time.Second)
		want := map[outcomes.Kind]int{outcomes.Expired: 50, outcomes.Delivered: 50}
		if diff := cmp.Diff(want, b.kinds()); diff != "" {
			t.Error(diff)
		}
		b.stop()
	})
}

// A target is probed with its first message. One that has expired would prove nothing.
func TestExpiry_ofTheFirstOnesLeavesTheProbeToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelThree)
		orders := b.sink.topic("orders", 1)
		orders.refuse = func(Delivery) error { return ErrTargetUnavailable }
		due := b.accept("orders", 1000, expiring(func(i int) int64 {
			if i < 900 {
				return 20_000
			}
			return 0
		}))
		b.Hand(due)
		b.feed(due, 30*time.Second)
		if b.count.parked != 1 {
			t.Fatal("a target that fails is not parked")
		}
		if n := b.kinds()[outcomes.Expired]; n != 900 {
			t.Errorf("%d expired by the trials, want the 900 before the first that may be sent", n)
		}
		b.sink.change(func() { orders.refuse = nil })
		b.feed(due, mostProbe+time.Second)
		if n := b.kinds()[outcomes.Delivered]; n != 100 || len(b.log.alive) != 0 {
			t.Errorf("%d delivered of 100, %d alive", n, len(b.log.alive))
		}
		b.stop()
	})
}

// Who asks about a message that has expired hears so, and goes on hearing it: it is no dead letter.
func TestExpiry_comesBeforeTheDeadLetterTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.raise(storage.LevelThree)
		due := b.accept("missing", 900, expiring(func(i int) int64 { return int64(i%3) * int64(testTimeout/time.Millisecond-60_000) }))
		b.Hand(due)
		b.feed(due, testTimeout+mostProbe+2*time.Second)
		want := map[outcomes.Kind]int{outcomes.Expired: 300, outcomes.DeadLettered: 600}
		if diff := cmp.Diff(want, b.kinds()); diff != "" || len(b.log.alive) != 0 {
			t.Errorf("%d alive, %s", len(b.log.alive), diff)
		}
		if n := b.count.deadLettered[message.CodeTargetMissing]; n != 600 {
			t.Errorf("%d counted as dead letters, want 600", n)
		}
		b.stop()
	})
}
