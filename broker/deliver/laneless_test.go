package deliver

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/internal/logtest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/storage"
)

// returned gathers what the verdicts give back, in order of delivery.
func returned(verdicts []schedule.Verdict) []uint64 {
	var refs []storage.Ref
	for _, v := range verdicts {
		refs = append(refs, v.Returned...)
	}
	slices.SortFunc(refs, storage.Ref.Compare)
	seqs := make([]uint64, len(refs))
	for i, ref := range refs {
		seqs[i] = ref.Seq
	}
	return seqs
}

func isHealed(v schedule.Verdict) bool { return !v.Parked }

func TestLane_parksAfterTwoSecondsAndReturnsEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 2).err = ErrTargetUnavailable
		seqs := b.deliver("orders", 500, nil)
		b.after(parkAfter - 100*time.Millisecond)
		if got := b.verdicts(); len(got) != 0 {
			t.Fatalf("verdicts %v after less than two seconds", got)
		}
		b.after(2 * time.Second)
		var verdicts []schedule.Verdict
		verdicts = append(verdicts, b.verdicts()...)
		b.after(time.Minute)
		verdicts = append(verdicts, b.verdicts()...)
		if diff := cmp.Diff(seqs, returned(verdicts)); diff != "" {
			t.Errorf("returned (-want +got):\n%s", diff)
		}
		if b.count.parked != 1 || b.loaded.Load() != 0 {
			t.Errorf("%d targets parked with %d bytes of payload, want 1 without any", b.count.parked, b.loaded.Load())
		}
		b.stop()
		if b.count.parked != 0 {
			t.Errorf("%d targets parked after the term", b.count.parked)
		}
	})
}

func TestLane_resumesInOrderWhenTheTargetWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		orders.err = ErrTargetUnavailable
		due := b.accept("orders", 100, nil)
		b.Hand(due)
		b.after(3 * time.Second)
		b.verdicts()
		b.after(time.Second)
		b.sink.change(func() { orders.err = nil })
		b.after(mostProbe)
		if got := b.verdicts(); len(got) != 1 || !isHealed(got[0]) {
			t.Fatalf("verdicts %v, want one that the target works", got)
		}
		b.Hand(due)
		b.after(time.Second)
		if diff := cmp.Diff(seqsOf(due), b.written("orders", 0)); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		if n := len(orders.written[0]); n != len(due) {
			t.Errorf("%d records written for %d messages", n, len(due))
		}
		b.stop()
	})
}

func TestLane_isNotFedAgainBeforeTheSchedulerKnowsThatItWasParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		orders.err = ErrTargetUnavailable
		first := b.deliver("orders", 10, nil)
		b.after(3 * time.Second)
		b.sink.change(func() { orders.err = nil })
		late := b.deliver("orders", 10, nil) // the scheduler has not looked at its verdicts
		b.after(time.Minute)
		got := b.cfg.Verdicts.Take(nil)
		if slices.ContainsFunc(got, isHealed) {
			t.Errorf("verdicts %v: fed again without an answer", got)
		}
		if diff := cmp.Diff(append(first, late...), returned(got)); diff != "" {
			t.Errorf("returned (-want +got):\n%s", diff)
		}
		b.Confirm("orders") // the answer to the first verdict, not to the second
		b.after(time.Minute)
		if got := b.cfg.Verdicts.Take(nil); len(got) != 0 {
			t.Errorf("verdicts %v after half an answer", got)
		}
		b.Confirm("orders")
		b.after(time.Minute)
		if got := b.verdicts(); len(got) != 1 || !isHealed(got[0]) {
			t.Errorf("verdicts %v, want one that the target works", got)
		}
		if len(orders.written[0]) != 0 {
			t.Errorf("%d records written while parked", len(orders.written[0]))
		}
		b.stop()
	})
}

func TestLane_startsParkedWhenConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("works", 1)
		b.sink.topic("down", 1).err = ErrTargetUnavailable
		b.Confirm("works")
		b.Confirm("down")
		b.after(time.Millisecond)
		if diff := cmp.Diff([]schedule.Verdict{{Target: "works"}}, b.verdicts()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		if b.count.parked != 1 {
			t.Errorf("%d targets parked, want 1", b.count.parked)
		}
		b.stop()
	})
}

// The scheduler may have parked a target anew by the time that it hears that the target is on trial.
func TestOnTrial_isWatchedAgainWhenConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("works", 1)
		for round := range 3 {
			b.Confirm("works")
			b.after(mostProbe)
			if diff := cmp.Diff([]schedule.Verdict{{Target: "works"}}, b.verdicts()); diff != "" {
				t.Errorf("round %d: verdicts (-want +got):\n%s", round, diff)
			}
		}
		b.stop()
	})
}

func TestLane_doesNotFlapWhenOnlyProbesSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		sends := 0
		orders.refuse = func(Delivery) error { sends++; return ErrTargetUnavailable }
		due := b.accept("orders", 50, nil)
		b.Hand(due)
		b.after(3 * time.Second)
		parkings := 0
		sends = 0
		for range 600 { // a minute
			for _, v := range b.verdicts() {
				if v.Parked {
					parkings++
				} else {
					b.Hand(due)
				}
			}
			b.after(100 * time.Millisecond)
		}
		if parkings < 10 || parkings > 20 {
			t.Errorf("parked %d times in a minute, want 10 to 20", parkings)
		}
		if sends > parkings {
			t.Errorf("%d records sent on %d trials, want one each", sends, parkings)
		}
		b.sink.change(func() { orders.refuse = nil })
		for range 100 {
			for _, v := range b.verdicts() {
				if !v.Parked {
					b.Hand(due)
				}
			}
			b.after(100 * time.Millisecond)
		}
		if diff := cmp.Diff(seqsOf(due), b.written("orders", 0)); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

// A trial of a target that does not answer takes stallAfter, and needs no pause of the same length at first.
// Each may leave a copy, so when none is answered for longer than an outage lasts there are fewer, until one is.
func TestLane_isTriedLessOftenTheLongerNothingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 1)
		trials := func(due []schedule.DueMessage, length time.Duration) int {
			before := orders.isolated
			for range length / (100 * time.Millisecond) {
				for _, v := range b.verdicts() {
					if isHealed(v) {
						b.Hand(due)
					}
				}
				b.after(100 * time.Millisecond)
			}
			return orders.isolated - before
		}
		for range 2 {
			orders.silent = true
			due := b.accept("orders", 50, nil)
			b.Hand(due)
			if n := trials(due, 5*time.Minute); n < 50 || n > 60 {
				t.Errorf("given up %d times in the first five minutes, want one each %v and a little more", n, stallAfter)
			}
			trials(due, 25*time.Minute)
			if n := trials(due, 10*time.Minute); n < 8 || n > 10 {
				t.Errorf("given up %d times in ten minutes, after thirty", n)
			}
			b.sink.change(func() { orders.silent = false })
			written := len(b.written("orders", 0))
			trials(due, mostSilentPause+stallAfter)
			if n := len(b.written("orders", 0)) - written; n != len(due) {
				t.Errorf("%d messages written in the minute after Kafka answers again, want %d", n, len(due))
			}
		}
		b.stop()
	})
}

// The scheduler may take a while to come to a target that goes on trial: it is tried with one message all the same.
func TestLane_isTriedWithOneMessageThatIsFedLate(t *testing.T) {
	for _, late := range []time.Duration{idleAfter / 2, 2 * idleAfter, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.sink.topic("orders", 1).silent = true
			due := b.accept("orders", 50, nil)
			b.Hand(due)
			for healed := false; !healed; {
				b.after(100 * time.Millisecond)
				healed = slices.ContainsFunc(b.verdicts(), isHealed)
			}
			sent := 0
			b.sink.sent = func(Delivery) { sent++ }
			b.after(late)
			b.Hand(due)
			b.after(stallAfter)
			if sent != 1 {
				t.Errorf("%d messages were sent %v after the target went on trial, want 1", sent, late)
			}
			b.stop()
		})
	}
}

// While Kafka says nothing of a target it is asked each second.
func TestDispatcher_hearsSoonThatKafkaAnswersAgain(t *testing.T) {
	for wait := range 5 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			orders := b.sink.topic("orders", 1)
			orders.err = ErrTargetUnavailable
			b.deliver("orders", 10, nil)
			for range 60 + wait {
				b.after(time.Second)
				b.verdicts()
			}
			b.sink.change(func() { orders.err = nil })
			b.after(mostSilence + probeGap)
			if got := b.verdicts(); len(got) != 1 || !isHealed(got[0]) {
				t.Errorf("verdicts %v, want one that the target works", got)
			}
			b.stop()
		})
	}
}

// Names are free text: what is missing costs an entry each, no goroutine, and few requests.
func TestDispatcher_missingTargetsCostNoLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		b := newBench(t)
		b.sink.topic("orders", 1)
		b.deliver("orders", 1, nil)
		b.after(time.Millisecond)
		var all []schedule.DueMessage
		for i := range n {
			all = append(all, b.accept(fmt.Sprintf("customer-%08d.replies", i), 1, nil)...)
		}
		goroutines := runtime.NumGoroutine()
		b.Hand(all)
		b.after(200 * time.Millisecond)
		seqs := b.deliver("orders", 10, nil)
		b.after(10 * time.Millisecond)
		if got := b.written("orders", 0); len(got) != 1+len(seqs) {
			t.Errorf("%d of %d messages delivered beside missing targets", len(got), 1+len(seqs))
		}
		b.after(parkAfter + mostBackoff)
		if got := len(returned(b.verdicts())); got != n {
			t.Errorf("%d of %d messages given back", got, n)
		}
		b.after(testTimeout / 2)
		if more := runtime.NumGoroutine() - goroutines; more > 10 {
			t.Errorf("%d goroutines more", more)
		}
		if n := len(b.verdicts()); n > 0 {
			t.Errorf("%d targets are to be fed again that are still missing, before that has lasted for long enough", n)
		}
		asked := b.sink.asked
		b.after(time.Minute)
		if most := 60*int(time.Second/probeGap) + n/mostAsked; b.sink.asked-asked > most {
			t.Errorf("%d requests in a minute, want %d at most", b.sink.asked-asked, most)
		}
		t.Logf("%d missing targets: %d requests for their partitions in a minute", n, b.sink.asked-asked)
		b.stop()
	})
}

// A million names that are missing are a line a second.
func TestDispatcher_logsTheFirstThatIsParkedAndNotEachAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var lines logtest.Lines
		b.Publisher.log = lines.Logger()
		for _, name := range []string{"first", "second"} {
			b.deliver(name, 1, nil)
			b.deliver(name+"-as-well", 1, nil)
			b.after(parkAfter + mostBackoff)
			if told := lines.With("target fails: parking it"); len(told) != 1 || !strings.Contains(told[0], name) {
				t.Errorf("%s: the lines are %q, want one", name, told)
			}
			lines.Reset()
		}
		b.stop()
	})
}

// Names of targets are free text: a hundred thousand that are missing may be parked, and most have had no lane.
func TestDispatcher_keepsLittleOfANameThatIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 50_000, 164 // bytes each, of which the map takes 33
		b := newBench(t)
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("customer-%08d.replies", i)
		}
		d := newDispatcher(b.Publisher, func(*lane) {})
		before := memory()
		for i, name := range names {
			d.order(name, []order{{DueMessage: schedule.DueMessage{Ref: storage.Ref{Due: 1, Seq: uint64(i)}, Target: name}}})
		}
		time.Sleep(parkAfter)
		for _, name := range names {
			d.laneless[name].asked = false
			d.hear(d.laneless[name], PartitionCount{Err: ErrTargetMissing})
		}
		d.p.prober.urgent.Take(nil)
		d.p.cfg.Verdicts.Take(nil)
		each := (memory() - before) / n
		t.Logf("%d bytes each", each)
		if parked := d.p.cfg.Count.(*counted).parked; each > most || len(d.laneless) != n || int(parked) != n {
			t.Errorf("%d bytes for each of %d entries, %d parked; want %d bytes at most, and %d parked", each, len(d.laneless), parked, most, n)
		}
		runtime.KeepAlive(names)
		d.end()
		b.stop()
	})
}

// A target for which nothing waits leaves nothing behind.
func TestDispatcher_forgetsTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := newDispatcher(b.Publisher, func(*lane) {})
		d.order("gone", []order{{confirm: true}})
		d.laneless["gone"].asked = false
		d.hear(d.laneless["gone"], PartitionCount{Count: 1})
		time.Sleep(idleAfter)
		d.wake(d.laneless["gone"])
		if len(d.laneless)+len(d.wakes)+len(d.lanes) != 0 {
			t.Errorf("%d entries without a lane, %d to be woken, %d lanes are left", len(d.laneless), len(d.wakes), len(d.lanes))
		}
		b.stop()
	})
}

func TestMissing_deadLettersForMoreTargetsThanMayBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names, most, each = 30, 10, 3
		b := newBench(t)
		b.cfg.MostMissing = func(origin string) int {
			if origin == "free.delay" {
				return 0
			}
			return most
		}
		b.cfg.LeastMostMissing = most
		var due, free []schedule.DueMessage
		for i := range names {
			due = append(due, b.accept(fmt.Sprint("customer-", i), each, nil)...)
			free = append(free, b.accept(fmt.Sprint("free-", i), each, func(_ int, m *message.Message) { m.Origin.Topic = "free.delay" })...)
		}
		all := append(due, free...)
		b.Hand(all)
		b.feed(all, parkAfter-100*time.Millisecond)
		if n := len(b.log.dead); n != 0 {
			t.Errorf("%d messages dead-lettered before Kafka was asked for long enough", n)
		}
		b.feed(all, time.Minute)
		if n := b.count.deadLettered[message.CodeTooManyMissing]; n != (names-most)*each || len(b.log.dead) != n {
			t.Errorf("%d messages dead-lettered, want %d", n, (names-most)*each)
		}
		if n := len(b.stillAlive(free)); n != len(free) {
			t.Errorf("%d messages of %d wait where there is no bound", n, len(free))
		}
		m, err := message.FromEntry(&b.log.dead[0])
		if err != nil {
			t.Fatal(err)
		}
		if reason := string(m.Headers[1].Value); !strings.Contains(reason, "max_missing_targets") || !strings.Contains(reason, "in.delay") {
			t.Errorf("reason %q", reason)
		}
		waiting := b.stillAlive(due)
		b.sink.topic(waiting[0].Target, 1)
		b.feed(all, 2*mostProbe)
		if n := len(b.written(waiting[0].Target, 0)); n != each {
			t.Errorf("%d of %d messages delivered to a topic that was created", n, each)
		}
		b.stop()
	})
}

// Names are free text: a hundred thousand may be missing, and each is one of these.
func TestLaneless_isSmall(t *testing.T) {
	if size := reflect.TypeFor[laneless]().Size() + reflect.TypeFor[parked]().Size(); size > 144 {
		t.Errorf("a parked target takes %d bytes, want 144 at most", size)
	}
}

// A target that an earlier term has parked is tried more and more rarely as well, when Kafka lets it be
// looked at and not written to.
func TestParked_byAnEarlierTermIsTriedMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 2).refuse = func(Delivery) error { return ErrTargetForbidden }
		due := b.accept("orders", 1, nil)
		b.Confirm("orders")
		trials := 0
		for end := time.After(time.Minute); ; {
			select {
			case <-b.cfg.Verdicts.Ready(): // the scheduler takes no time to answer
				if slices.ContainsFunc(b.verdicts(), isHealed) {
					trials++
					b.Hand(due)
				}
				continue
			case <-end:
			}
			break
		}
		// 0.1, 0.2, 0.4, 0.8, 1.6 and 3.2 s, and then every 5 s.
		if trials < 10 || trials > 20 {
			t.Errorf("%d trials in a minute", trials)
		}
		b.stop()
	})
}
