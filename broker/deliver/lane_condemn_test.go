package deliver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/digest"
	"github.com/carillonmq/carillon/broker/internal/logtest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// feed answers verdicts as the scheduler does, for that long: a target that works is
// handed everything of due that is alive.
func (b *bench) feed(due []schedule.DueMessage, d time.Duration) {
	for range d / (100 * time.Millisecond) {
		for _, v := range b.verdicts() {
			if !v.Parked {
				b.Hand(b.stillAlive(due))
			}
		}
		b.after(100 * time.Millisecond)
	}
}

func (b *bench) stillAlive(due []schedule.DueMessage) []schedule.DueMessage {
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	var alive []schedule.DueMessage
	for _, d := range due {
		if _, ok := b.log.alive[d.Seq]; ok {
			alive = append(alive, d)
		}
	}
	return alive
}

func TestLane_deadLettersForAMissingTargetWhenItIsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		due := b.accept("missing", 2000, nil)
		b.Hand(due)
		b.feed(due, testTimeout/2)
		later := b.accept("missing", 100, nil)
		b.Hand(later)
		due = append(due, later...)
		b.feed(due, testTimeout/2-time.Second)
		if n := len(b.log.dead); n != 0 {
			t.Fatalf("%d messages dead-lettered before the time", n)
		}
		asked := b.sink.asked
		b.feed(due, mostProbe+2*time.Second)
		if n := b.count.deadLettered[message.CodeTargetMissing]; n != 2000 {
			t.Errorf("%d messages dead-lettered, want the 2000 that waited long enough", n)
		}
		if n := b.sink.asked - asked; n > 5 {
			t.Errorf("asked %d times whether the target is still missing, want one a second at most", n)
		}
		b.feed(due, testTimeout/2)
		if n := b.count.deadLettered[message.CodeTargetMissing]; n != 2100 {
			t.Errorf("%d messages dead-lettered, want all 2100", n)
		}
		for i, entry := range b.log.dead {
			m, err := message.FromEntry(&entry)
			if err != nil {
				t.Fatal(err)
			}
			if entry.Target != "dead" || string(m.Value) != fmt.Sprint(i+1) {
				t.Fatalf("dead letter %d is message %s for %s, want %d for dead", i, m.Value, entry.Target, i+1)
			}
		}
		b.stop()
	})
}

func TestLane_waitsForAMissingTargetAsLongAsTheRouteSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.MissingTimeout = func(origin string) time.Duration {
			if origin == "urgent.delay" {
				return time.Minute
			}
			return testTimeout
		}
		b.cfg.LeastMissingTimeout = time.Minute
		someUrgent := func(i int, m *message.Message) {
			if i < 4 {
				m.Origin.Topic = "urgent.delay"
			}
		}
		due := b.accept("missing", 10, someUrgent)
		b.Hand(due)
		b.feed(due, 2*time.Minute)
		if n := len(b.log.dead); n != 4 {
			t.Errorf("%d messages dead-lettered after two minutes, want the 4 that are urgent", n)
		}
		b.feed(due, testTimeout)
		if n := len(b.log.dead); n != 10 {
			t.Errorf("%d messages dead-lettered, want all 10", n)
		}
		due = append(b.accept("missing", 10, nil), b.accept("missing", 10, someUrgent)...)
		b.Hand(due)
		b.feed(due, testTimeout+time.Minute) // when the first may go, all may
		if n := len(b.log.dead); n != 30 {
			t.Errorf("%d messages dead-lettered, want all 30", n)
		}
		for _, entry := range b.log.dead {
			m, err := message.FromEntry(&entry)
			if err != nil {
				t.Fatal(err)
			}
			timeout := b.cfg.MissingTimeout(m.Origin.Topic).String()
			if reason := string(m.Headers[1].Value); !strings.Contains(reason, timeout) {
				t.Errorf("message from %s was dead-lettered because %q, want it to name %s", m.Origin.Topic, reason, timeout)
			}
		}
		b.stop()
	})
}

func TestLane_findsATargetThatWasJustCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		seqs := b.deliver("orders", 10, nil)
		b.after(200 * time.Millisecond)
		b.sink.topic("orders", 1)
		b.after(200 * time.Millisecond)
		if diff := cmp.Diff(seqs, b.written("orders", 0)); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

func TestLane_deliversWhenAMissingTargetAppearsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		due := b.accept("orders", 100, nil)
		b.Hand(due)
		b.feed(due, testTimeout-time.Minute)
		b.sink.topic("orders", 1)
		b.feed(due, time.Minute)
		if diff := cmp.Diff(seqsOf(due), b.written("orders", 0)); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		if len(b.log.dead) != 0 {
			t.Errorf("%d messages dead-lettered", len(b.log.dead))
		}
		b.stop()
	})
}

func TestLane_countsAnAbsenceFromItsLastBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		due := b.accept("orders", 10, nil)
		b.Hand(due)
		b.feed(due, testTimeout-time.Minute)
		b.sink.topic("orders", 1).refuse = func(Delivery) error { return ErrTargetUnavailable }
		b.feed(due, 30*time.Second)
		b.sink.change(func() { delete(b.sink.topics, "orders") })
		b.feed(due, testTimeout-time.Minute)
		if n := len(b.log.dead); n != 0 {
			t.Errorf("%d messages dead-lettered though the target was there a while ago", n)
		}
		b.feed(due, 2*time.Minute)
		if n := len(b.log.dead); n != 10 {
			t.Errorf("%d messages dead-lettered, want 10", n)
		}
		b.stop()
	})
}

func TestLane_deadLettersForATargetThatForbidsWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("secret", 1).refuse = func(Delivery) error { return ErrTargetForbidden }
		due := b.accept("secret", 300, nil)
		b.Hand(due)
		b.feed(due, testTimeout-time.Second)
		if n := len(b.log.dead); n != 0 {
			t.Fatalf("%d messages dead-lettered before the time", n)
		}
		b.feed(due, 2*mostProbe)
		if n := b.count.deadLettered[message.CodeTargetForbids]; n != 300 {
			t.Errorf("%d messages dead-lettered, want 300", n)
		}
		b.stop()
	})
}

func TestLane_deadLettersWhatNamesAPartitionThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 2)
		b.deliver("orders", 4, func(i int, m *message.Message) { m.Partition = int32(i) })
		b.after(lookedFor - time.Second)
		if diff := cmp.Diff([]uint64{1, 2}, b.acked()); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		if n := b.count.deadLettered[message.CodeTargetInvalid]; n != 0 {
			t.Errorf("%d messages dead-lettered before Kafka was asked for long enough", n)
		}
		later := b.deliver("orders", 10, func(i int, m *message.Message) { m.Partition = int32(i % 2) })
		b.after(100 * time.Millisecond)
		if n := len(b.acked()); n != 2+len(later) {
			t.Errorf("%d messages delivered beside those that wait, want %d", n, 2+len(later))
		}
		b.after(2 * lookedFor)
		if n := b.count.deadLettered[message.CodeTargetInvalid]; n != 2 {
			t.Errorf("%d messages dead-lettered, want 2", n)
		}
		b.stop()
	})
}

// A Kafka that takes longer than a second for each answer tells as much as one that takes none, also while ever more
// messages are looked at for.
func TestLane_deadLettersWhatNamesNoPartitionOfASlowKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 2)
		b.sink.answersAfter = 1500 * time.Millisecond
		const each, rounds = 4, 20
		for range rounds {
			b.deliver("orders", each, func(i int, m *message.Message) { m.Partition = int32(i) })
			b.after(time.Second)
		}
		n := b.count.deadLettered[message.CodeTargetInvalid]
		if most := rounds * each / 2; n == 0 || n > most {
			t.Errorf("%d messages dead-lettered after %d s, want some and no more than %d", n, rounds, most)
		}
		b.after(4 * lookedFor)
		if n := b.count.deadLettered[message.CodeTargetInvalid]; n != rounds*each/2 || len(b.acked()) != rounds*each/2 {
			t.Errorf("%d messages dead-lettered and %d delivered, want %d of each", n, len(b.acked()), rounds*each/2)
		}
		b.stop()
	})
}

// A broker that was frozen, or has not heard of it yet, answers with the old number.
func TestLane_deliversToAPartitionThatWasJustAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 2)
		b.deliver("orders", 1, nil)
		b.after(time.Second)
		third := func(_ int, m *message.Message) { m.Partition = 2 }
		seqs := b.deliver("orders", 10, third)
		b.after(lookedFor - 500*time.Millisecond)
		b.sink.change(func() { orders.partitions = 3 })
		seqs = append(seqs, b.deliver("orders", 10, third)...)
		b.after(lookAgain)
		seqs = append(seqs, b.deliver("orders", 10, third)...)
		b.after(time.Second)
		if diff := cmp.Diff(seqs, b.written("orders", 2)); diff != "" {
			t.Errorf("delivered to the new partition (-want +got):\n%s", diff)
		}
		if len(b.log.dead) != 0 {
			t.Errorf("%d messages dead-lettered", len(b.log.dead))
		}
		b.stop()
	})
}

func TestDeadLetter_goesOutWithWhatWasWrongAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		headers := []message.Header{{Key: "deliver-at", Value: []byte("yesterday")}, {Key: "x", Value: nil}}
		refused := message.Message{Origin: message.Origin{Topic: "in.delay", Partition: 2, Offset: 9}, Key: []byte("k"), Headers: headers}
		letter := refused.AsDeadLetter(message.Problem{Code: message.CodeMalformed, Message: "why"}, time.Now().UnixMilli())
		entry := letter.Entry(time.Now().UnixMilli(), "dead", b.log.level)
		entry.Seq = 1
		b.log.alive[1] = entry
		b.Hand([]schedule.DueMessage{{Ref: entry.Ref(), Target: "dead"}})
		b.after(time.Second)
		want := []Delivery{{
			Topic: "dead", Key: []byte("k"), Value: nil,
			Headers: []message.Header{
				{Key: "deliver-at", Value: []byte("yesterday")}, {Key: "x", Value: nil},
				{Key: "__carillon.errors.code", Value: []byte("malformed")},
				{Key: "__carillon.errors.message", Value: []byte("why")},
				{Key: "__carillon.errors.topic", Value: []byte("in.delay")},
				{Key: "__carillon.errors.partition", Value: []byte("2")},
				{Key: "__carillon.errors.offset", Value: []byte("9")},
			},
		}}
		if diff := cmp.Diff(want, dead.written[0]); diff != "" {
			t.Errorf("dead letter (-want +got):\n%s", diff)
		}
		if b.count.delivered != 0 || len(headers) != 2 {
			t.Errorf("%d delivered, want a dead letter not to count", b.count.delivered)
		}
		b.stop()
	})
}

// asDeadLetter makes a message one.
func asDeadLetter(_ int, m *message.Message) {
	letter := m.AsDeadLetter(message.Problem{Code: message.CodeMalformed, Message: "why"}, 0)
	m.Headers, m.DeadLetter = letter.Headers, true
}

func TestDeadLetter_isNeverDropped(t *testing.T) {
	for name, broken := range map[string]func(*bench){
		"refused":                     func(b *bench) { b.sink.topic("dead", 1).refuse = func(Delivery) error { return ErrRecordRefused } },
		"too large":                   func(b *bench) { b.sink.topic("dead", 1).refuse = func(Delivery) error { return ErrRecordTooLarge } },
		"missing":                     func(b *bench) {},
		"missing when the term began": func(b *bench) { b.Confirm("dead") },
		"forbidden":                   func(b *bench) { b.sink.topic("dead", 1).err = ErrTargetForbidden },
		"unavailable":                 func(b *bench) { b.sink.topic("dead", 1).err = ErrTargetUnavailable },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				broken(b)
				due := b.accept("dead", 10, asDeadLetter)
				if name != "missing when the term began" {
					b.Hand(due)
				}
				b.feed(due, 3*testTimeout)
				if len(b.log.dead) != 0 || len(b.log.alive) != len(due) {
					t.Errorf("%d dead letters dead-lettered, %d of %d alive", len(b.log.dead), len(b.log.alive), len(due))
				}
				if b.count.stuck == 0 {
					t.Error("no alarm")
				}
				if b.sink.topics["dead"] == nil && b.count.stuck > 2 {
					t.Errorf("parked %d times, though nothing could have changed", b.count.stuck)
				}
				repaired := b.sink.topic("dead", 1)
				b.sink.change(func() { repaired.err, repaired.refuse = nil, nil })
				b.feed(due, 3*mostProbe)
				if diff := cmp.Diff(seqsOf(due), b.written("dead", 0)); diff != "" {
					t.Errorf("written after the repair (-want +got):\n%s", diff)
				}
				b.stop()
			})
		})
	}
}

// The scheduler may take a while to come to a target that goes on trial: a sweep for
// others is on its way. What is known of the absence must not be forgotten meanwhile.
func TestLane_deadLettersForAMissingTargetThatIsFedLate(t *testing.T) {
	for _, late := range []time.Duration{2 * idleAfter, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			due := b.accept("missing", 10, nil)
			b.Hand(due)
			waits := true
			for waits {
				b.after(100 * time.Millisecond)
				for _, v := range b.verdicts() {
					waits = waits && v.Parked
				}
			}
			b.after(late)
			b.Hand(due)
			b.feed(due, time.Minute)
			if n := b.count.deadLettered[message.CodeTargetMissing]; n != 10 {
				t.Errorf("%d messages dead-lettered a minute after they were fed %v late, want all 10", n, late)
			}
			b.stop()
		})
	}
}

// A lane has megabytes in memory. Each command takes as many as fit, one of them at least, and the next goes on there.
func TestCondemn_splitsWhatIsTooLargeForOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := newLane(b.Publisher, "orders")
		var all []*outgoing
		for i := range uint64(60) {
			size := 100 << 10
			if i%20 == 7 {
				size = 2 * raftfsm.ProposalBytes
			}
			m := message.Message{Origin: message.Origin{Topic: "in.delay", Offset: int64(i)}, Partition: -1, Value: make([]byte, size)}
			all = append(all, &outgoing{ref: storage.Ref{Due: 1, Seq: i + 1}, message: m, size: size})
		}
		condemned, commands := 0, 0
		for rest := all; len(rest) > 0; commands++ {
			replace := l.replacement(rest, message.Problem{Code: message.CodeRefused, Message: "no"})
			n := len(replace.Kills)
			if n == 0 || len(replace.Entries) != n || replace.Kills[0] != rest[0].ref.Seq || replace.Kills[n-1] != rest[n-1].ref.Seq {
				t.Fatalf("%d messages die and %d dead letters take their place, of %d from %d on", n, len(replace.Entries), len(rest), rest[0].ref.Seq)
			}
			if size := replace.Size(); n > 1 && size > raftfsm.ProposalBytes+1<<10 {
				t.Errorf("a command of %d messages takes %d bytes", n, size)
			}
			condemned, rest = condemned+n, rest[n:]
		}
		if condemned != len(all) || commands > 20 {
			t.Errorf("%d of %d messages are condemned, by %d commands", condemned, len(all), commands)
		}
		b.stop()
	})
}

func TestCondemn_logsALineASecondForAllTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var lines logtest.Lines
		b.condemned = digest.New(lines.Logger(), slog.LevelWarn, "dead-lettering messages")
		var due []schedule.DueMessage
		for i := range 300 {
			due = append(due, b.accept(fmt.Sprint("customer-", i), 2, nil)...)
		}
		b.Hand(due)
		b.feed(due, 2*testTimeout)
		b.stop()
		var told int
		for _, line := range lines.With("dead-lettering messages") {
			var records int
			if _, err := fmt.Sscanf(line[strings.Index(line, "records="):], "records=%d", &records); err != nil {
				t.Fatal(err)
			}
			told += records
		}
		if n := len(lines.With("dead-lettering messages")); told != len(due) || len(b.log.dead) != told || n > 30 {
			t.Errorf("%d lines tell of %d dead letters, there are %d", n, told, len(b.log.dead))
		}
	})
}

// What has no partition is condemned together, by a count that is no older than the question for it: while one
// after the other was, partitions that were added meanwhile counted for nothing.
func TestLane_condemnsTogetherWhatHasNoPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		orders := b.sink.topic("orders", 2)
		b.commit = func(ctx context.Context, c raftfsm.Command) (raftfsm.Result, error) {
			time.Sleep(5 * time.Second)
			return b.log.commit(ctx, c)
		}
		third := func(_ int, m *message.Message) { m.Partition = 2 }
		b.deliver("orders", 60, third)
		b.after(lookedFor + 2*lookAgain + 5*time.Second)
		if n := b.count.deadLettered[message.CodeTargetInvalid]; n != 60 {
			t.Errorf("%d of 60 messages dead-lettered by one command", n)
		}
		b.deliver("orders", 60, third)
		b.after(lookedFor + 2*lookAgain) // these are on their way to be dead letters
		later := b.deliver("orders", 10, third)
		b.sink.change(func() { orders.partitions = 3 })
		b.after(10 * time.Second)
		if diff := cmp.Diff(later, b.written("orders", 2)); diff != "" {
			t.Errorf("delivered to the new partition (-want +got):\n%s", diff)
		}
		b.stop()
	})
}

// What names a partition that is not there hears that its target is gone though nothing is sent that could fail.
func TestLane_parksATargetThatIsGoneWithItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 2)
		seqs := b.deliver("orders", 5, func(_ int, m *message.Message) { m.Partition = 3 })
		b.after(time.Second)
		b.sink.change(func() { delete(b.sink.topics, "orders") })
		b.after(lookedFor + 10*time.Second)
		verdicts := b.verdicts()
		if len(verdicts) != 1 || !verdicts[0].Parked || len(verdicts[0].Returned) != len(seqs) {
			t.Errorf("verdicts %+v, want one that returns %d messages", verdicts, len(seqs))
		}
		b.stop()
	})
}
