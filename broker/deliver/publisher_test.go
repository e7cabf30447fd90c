package deliver

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
)

func TestPublisher_deliversInOrderAndAcknowledgesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1)
		seqs := b.deliver("orders", 3000, nil)
		b.after(time.Second)
		if diff := cmp.Diff(seqs, b.written("orders", 0)); diff != "" {
			t.Errorf("order of delivery (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(seqs, b.acked()); diff != "" {
			t.Errorf("acknowledged (-want +got):\n%s", diff)
		}
		if b.count.delivered != 3000 || b.count.retried != 0 {
			t.Errorf("delivered %d, retried %d, want 3000 and 0", b.count.delivered, b.count.retried)
		}
		if err := b.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if loaded := b.loaded.Load(); loaded != 0 {
			t.Errorf("%d bytes of payload are still accounted for", loaded)
		}
	})
}

// A time that had passed before the message came is the producer's lateness. It is by the clock of
// the leader that took the message, which may have been ahead of this one's.
func TestPublisher_countsLatenessFromAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1)
		due := b.accept("orders", 3, func(i int, m *message.Message) { m.Overdue = int64(i) * 30 })
		b.after(50 * time.Millisecond)
		b.Hand(due) // the sink takes 2 ms
		b.after(time.Second)
		if diff := cmp.Diff([]int64{52, 22, 0}, b.count.late); diff != "" {
			t.Errorf("milliseconds late (-want +got):\n%s", diff)
		}
	})
}

func TestPublisher_marksDeliveriesAndKeepsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		b.deliver("orders", 1, func(_ int, m *message.Message) {
			m.ID, m.PlannedFor = "mine", 1234
			m.Origin = message.Origin{Topic: "orders.delay", Partition: 3, Offset: 7}
			m.Key, m.Value = []byte{}, nil
			m.Headers = []message.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "delivered-id", Value: []byte("earlier")}}
		})
		b.after(time.Second)
		want := []Delivery{{
			Topic: "orders", Key: []byte{}, Value: nil,
			Headers: []message.Header{
				{Key: "a", Value: nil}, {Key: "a", Value: []byte{}},
				{Key: "delivered-id", Value: []byte("mine")},
				{Key: "delivered-for", Value: []byte("1234")},
				{Key: "delivered-from", Value: []byte("orders.delay/3/7")},
				{Key: "delivered-seq", Value: []byte("ab000000000000000000000000000000/1")},
			},
		}}
		if diff := cmp.Diff(want, orders.written[0]); diff != "" {
			t.Errorf("delivery (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

func TestPublisher_leavesOutWhatDiedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1)
		due := b.accept("orders", 3, nil)
		delete(b.log.alive, due[1].Seq)
		b.Hand(due)
		b.after(time.Second)
		if diff := cmp.Diff([]uint64{1, 3}, b.written("orders", 0)); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

func TestPublisher_takesWhatWasAcceptedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1)
		early := b.accept("orders", 3, nil)
		b.after(time.Second)
		late := b.accept("orders", 3, nil)
		handed := slices.Concat(late, early)
		b.Hand(handed)
		b.after(time.Second)
		if diff := cmp.Diff(seqsOf(handed), b.written("orders", 0)); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

func TestPublisher_stuckTargetsDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("busy", 1)
		b.sink.topic("silent", 1).silent = true
		b.sink.topic("down", 1).err = ErrTargetUnavailable
		for _, target := range []string{"silent", "down", "missing"} {
			b.deliver(target, 1000, nil)
		}
		for range 100 {
			b.deliver("busy", 1, nil)
			b.after(100 * time.Millisecond)
			if n := len(b.written("busy", 0)); n != b.count.delivered {
				t.Fatalf("%d messages written, %d counted", n, b.count.delivered)
			}
		}
		if n := len(b.written("busy", 0)); n != 100 {
			t.Errorf("%d of 100 messages delivered", n)
		}
		b.stop()
	})
}

func TestPublisher_waitsForWhatIsOnItsWayWhenTheTermEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1).latency = 300 * time.Millisecond
		b.sink.topic("silent", 1).silent = true
		seqs := b.deliver("orders", 10, nil)
		b.deliver("silent", 10, nil)
		b.after(100 * time.Millisecond)
		begun := time.Now()
		if err := b.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the end took %v", took)
		}
		if diff := cmp.Diff(seqs, b.acked()); diff != "" {
			t.Errorf("acknowledged (-want +got):\n%s", diff)
		}
		if b.sink.topics["silent"].isolated == 0 {
			t.Error("what the silent target has not answered was not given up")
		}
	})
}

func TestPublisher_endsTheTermWhenTheLogIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1)
		b.log.err = raftfsm.ErrInDoubt
		b.deliver("orders", 1, nil)
		if err := <-b.ended; !errors.Is(err, raftfsm.ErrInDoubt) {
			t.Errorf("run returned %v, want ErrInDoubt", err)
		}
		b.end()
	})
}

func TestPublisher_endsTheTermWhenStorageCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1)
		b.log.broken = errors.New("disk")
		b.deliver("orders", 1, nil)
		if err := <-b.ended; !errors.Is(err, b.log.broken) {
			t.Errorf("run returned %v, want %v", err, b.log.broken)
		}
		b.end()
	})
}

func TestPublisher_startsALaneAgainThatHadNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		latency := b.sink.topic("orders", 1).latency
		var seqs []uint64
		for range 300 {
			seqs = append(seqs, b.deliver("orders", 2, nil)...)
			time.Sleep(latency + idleAfter) // to the very moment at which the lane ends
		}
		b.after(2 * idleAfter)
		if diff := cmp.Diff(seqs, b.written("orders", 0)); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

func TestPublisher_holdsFewPayloadsOfAStuckTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("silent", 1).silent = true
		b.deliver("silent", 200, func(_ int, m *message.Message) { m.Value = make([]byte, 256<<10) })
		b.after(time.Second)
		if loaded := b.loaded.Load(); loaded > mostLoad+2*chunkBytes {
			t.Errorf("%d bytes of payload in memory", loaded)
		}
		b.stop()
	})
}

// What large messages take in memory is bounded though small ones came before, and though all lanes read at the same moment:
// room that each finds to be free is not all of theirs.
func TestPublisher_boundsWhatAllReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets, size = 40, 128 << 10
		b := newBench(t)
		for i := range targets {
			name := fmt.Sprint("slow-", i)
			b.sink.topic(name, 1).latency = 3 * time.Second
			b.deliver(name, 2*mostChunk, nil)
		}
		b.after(10 * time.Second)
		for i := range targets {
			b.deliver(fmt.Sprint("slow-", i), mostChunk, func(_ int, m *message.Message) { m.Value = make([]byte, size) })
		}
		b.after(100 * time.Millisecond)
		if loaded, most := b.loaded.Load(), mostAllLoad+targets*mostShare; loaded > int64(most) {
			t.Errorf("%d MB of payload are in memory, want %d at most", loaded>>20, most>>20)
		}
		b.after(10 * time.Minute)
		if loaded := b.loaded.Load(); loaded != 0 {
			t.Errorf("%d bytes are counted as in memory when nothing is", loaded)
		}
		b.stop()
	})
}

// What hundreds of slow targets have on their way is bounded together, small messages by what
// each costs besides its payload.
func TestPublisher_boundsWhatAllSlowTargetsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		b := newBench(t)
		for i := range n {
			name := fmt.Sprint("slow-", i)
			b.sink.topic(name, 1).silent = true
			b.deliver(name, 300, nil)
		}
		b.after(500 * time.Millisecond)
		if loaded, most := b.loaded.Load(), mostAllLoad+n*(mostAllLoad/n+2*mostChunk*recordLoad); loaded > int64(most) {
			t.Errorf("%d bytes in memory, want %d at most", loaded, most)
		}
		for i := range n {
			if len(b.sink.topics[fmt.Sprint("slow-", i)].flying) == 0 {
				t.Fatalf("nothing of target %d is on its way", i)
			}
		}
		b.stop()
	})
}
