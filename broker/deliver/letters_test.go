package deliver

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// takes limits the values of a topic, as max.message.bytes does.
func (t *topicLog) takes(bytes int) {
	t.refuse = func(d Delivery) error {
		if len(d.Value) > bytes {
			return ErrRecordTooLarge
		}
		return nil
	}
}

// sized makes messages dead letters with values of the given sizes.
func sized(sizes ...int) func(int, *message.Message) {
	return func(i int, m *message.Message) {
		asDeadLetter(i, m)
		m.Value = append(m.Value, bytes.Repeat([]byte(" "), sizes[i%len(sizes)])...)
	}
}

func TestAside_waitsForTheTopicAndHoldsNoOtherUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		dead.takes(1000)
		due := b.accept("dead", 5, sized(0, 5000, 0, 3000, 0))
		b.Hand(due)
		b.after(2 * time.Second)
		if diff := cmp.Diff([]uint64{1, 3, 5}, b.written("dead", 0)); diff != "" {
			t.Errorf("written while two are refused (-want +got):\n%s", diff)
		}
		for range 6000 { // it must not flicker while the two are tried again
			problems := b.cfg.Report.Read().Problems
			if len(problems) != 1 || !strings.HasPrefix(problems[0], "dead-letter topic dead: dead letters wait, 2 of them") || !strings.Contains(problems[0], "raise max.message.bytes") {
				t.Fatalf("problems %q, want that two wait, and the remedy", problems)
			}
			if told := b.cfg.Report.Aside(); len(told) != 2 || told[2] != due[1].Due || told[4] != due[3].Due {
				t.Fatalf("%v are told to be aside, want the two", told)
			}
			b.after(100 * time.Millisecond)
		}
		if b.count.stuck != 2 || b.count.parked != 0 {
			t.Errorf("%d alarms and %d parked, want one alarm each and none", b.count.stuck, b.count.parked)
		}
		later := b.deliver("dead", 1, sized(0))
		b.after(time.Second)
		if written := b.written("dead", 0); !slices.Contains(written, later[0]) {
			t.Errorf("written %v, without the one that came while two are aside", written)
		}

		b.sink.change(func() { dead.takes(4000) })
		b.after(2 * asideAgain)
		if problems := b.cfg.Report.Read().Problems; len(problems) != 1 || !strings.Contains(problems[0], " 1 of them") || len(b.cfg.Report.Aside()) != 1 {
			t.Errorf("problems %q, %v aside, want that one waits", problems, b.cfg.Report.Aside())
		}
		b.sink.change(func() { dead.takes(5001) })
		b.after(2 * asideAgain)
		if diff := cmp.Diff([]uint64{1, 3, 5, 6, 4, 2}, b.written("dead", 0)); diff != "" {
			t.Errorf("written in the end (-want +got):\n%s", diff)
		}
		if problems := b.cfg.Report.Read().Problems; len(problems) != 0 || len(b.log.alive) != 0 || b.cfg.Report.Aside() != nil {
			t.Errorf("problems %q, %d alive, %v aside, want none", problems, len(b.log.alive), b.cfg.Report.Aside())
		}
		for _, d := range dead.written[0] {
			if slices.ContainsFunc(d.Headers, func(h message.Header) bool { return h.Key == client.HeaderErrorValueDropped }) {
				t.Errorf("%d bytes went out as a letter without its value", len(d.Value))
			}
		}
		b.stop()
	})
}

// What can never be written must not keep from the topic what can be.
func TestAside_triesEachInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		dead.refuse = func(Delivery) error { return ErrRecordRefused }
		const n = 10 * mostChunk
		b.deliver("dead", n, sized(0))
		b.after(time.Minute)
		b.sink.change(func() {
			dead.refuse = func(d Delivery) error {
				if valueIs(d, n) {
					return nil
				}
				return ErrRecordRefused
			}
		})
		b.after(11 * asideAgain)
		if diff := cmp.Diff([]uint64{n}, b.written("dead", 0)); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
		b.sink.change(func() { dead.refuse = nil })
		b.after(2 * asideAgain) // one that gets through has all others follow at once
		if got := len(b.written("dead", 0)); got != n {
			t.Errorf("%d written soon after the repair, want %d", got, n)
		}
		b.stop()
	})
}

func TestAside_readsLittleWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		sent := 0
		dead.refuse = func(d Delivery) error {
			sent += len(d.Value)
			return ErrRecordTooLarge
		}
		b.deliver("dead", 100, sized(200_000))
		b.after(time.Minute)
		b.sink.change(func() { sent = 0 })
		b.after(time.Minute)
		b.sink.change(func() {
			if most := asideBytes * int(time.Minute/asideAgain+1); sent > most+200_100*int(time.Minute/asideAgain+1) || sent == 0 {
				t.Errorf("%d bytes sent in a minute, want some and %d at most", sent, most)
			}
		})
		if b.loaded.Load() != 0 {
			t.Errorf("%d bytes of payload in memory while all wait", b.loaded.Load())
		}
		b.stop()
	})
}

// A topic that goes away takes its lane's letters back to the scheduler, those too
// that are aside; each comes back once.
func TestAside_goesBackWhenTheTopicIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		dead.takes(1000)
		due := b.accept("dead", 3, sized(0, 5000, 5000))
		b.Hand(due)
		b.after(time.Second)
		b.sink.change(func() { dead.err = ErrTargetUnavailable })
		b.Hand(b.accept("dead", 1, sized(0)))
		b.after(10 * time.Second)
		var returned []uint64
		for _, v := range b.verdicts() {
			for _, ref := range v.Returned {
				returned = append(returned, ref.Seq)
			}
		}
		slices.Sort(returned)
		if diff := cmp.Diff([]uint64{2, 3, 4}, returned); diff != "" {
			t.Errorf("returned (-want +got):\n%s", diff)
		}
		if told := b.cfg.Report.Aside(); told != nil {
			t.Errorf("%v are told to be aside, though all wait for the topic", told)
		}
		b.sink.change(func() { dead.err = nil })
		b.feed([]schedule.DueMessage{due[1], due[2]}, 3*mostProbe)
		if problems := b.cfg.Report.Read().Problems; len(problems) != 1 || !strings.Contains(problems[0], " 2 of them") || len(b.cfg.Report.Aside()) != 2 {
			t.Errorf("problems %q, %v aside, want that two wait", problems, b.cfg.Report.Aside())
		}
		retried := b.count.retried
		b.sink.change(func() { dead.takes(5001) })
		b.after(2 * asideAgain)
		if n := len(dead.written[0]); n != 3 || b.count.retried-retried > 2 {
			t.Errorf("%d written and %d retried, want each once", n, b.count.retried-retried)
		}
		b.stop()
	})
}

// Where Kafka takes long to refuse, what is tried again must not hold up what comes.
func TestAside_holdsNobodyUpWhereKafkaIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		dead.latency = 100 * time.Millisecond
		dead.takes(1000)
		b.deliver("dead", 2000, sized(2000))
		b.after(30 * time.Minute)
		good := b.deliver("dead", 1, sized(0))
		b.after(mostChunk*dead.latency + asideAgain)
		if !slices.Contains(b.written("dead", 0), good[0]) {
			t.Errorf("a dead letter waits for the tries of those aside")
		}
		b.stop()
	})
}

// A limit that is raised is found by the letter that fits first, among many that
// others refuse for another reason; then all are tried.
func TestAside_followsSoonWhenTheTopicTakesLargerOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		limit := 1000
		dead.refuse = func(d Delivery) error {
			switch {
			case d.Key == nil:
				return ErrRecordRefused
			case len(d.Value) > limit:
				return ErrRecordTooLarge
			}
			return nil
		}
		b.deliver("dead", 2000, func(i int, m *message.Message) {
			sized(0)(i, m)
			m.Key = nil
		})
		b.deliver("dead", 40, sized(400_000, 600_000))
		b.after(10 * time.Minute)
		if got := len(dead.written[0]); got != 0 {
			t.Fatalf("%d written, want none", got)
		}
		b.sink.change(func() { limit = 500_000 })
		b.after(4 * asideAgain)
		if got := len(dead.written[0]); got != 20 {
			t.Errorf("%d written soon after the limit was raised, want the 20 that fit", got)
		}
		b.stop()
	})
}

func TestDeadLetter_withoutItsValueIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		dead.refuse = func(Delivery) error { return ErrTargetUnavailable }
		due := b.accept("dead", 3, func(i int, m *message.Message) {
			if i == 1 { // ingest has dropped it
				m.Value, m.ValueDropped = nil, true
				m.Headers = append(m.Headers, message.Header{Key: client.HeaderErrorValueDropped, Value: []byte("20000000")})
			}
			asDeadLetter(i, m)
		})
		b.Hand(due)
		b.feed(due, time.Minute) // parked and tried again
		if b.count.valueless != 0 {
			t.Errorf("%d values counted as dropped while nothing could be written", b.count.valueless)
		}
		b.sink.change(func() { dead.refuse = nil })
		b.feed(due, time.Minute)
		if n := len(b.acked()); n != 3 || b.count.valueless != 1 {
			t.Errorf("%d written, %d of them counted as without their values, want 3 and 1", n, b.count.valueless)
		}
		b.stop()
	})
}

func TestDeadLetter_thatWaitsIsAProblemUntilItIsWritten(t *testing.T) {
	for name, broken := range map[string]func(*topicLog){
		"may be looked at only": func(dead *topicLog) { dead.refuse = func(Delivery) error { return ErrTargetForbidden } },
		"forbidden":             func(dead *topicLog) { dead.err = ErrTargetForbidden },
		"missing":               func(dead *topicLog) { dead.err = ErrTargetMissing },
		"unavailable":           func(dead *topicLog) { dead.err = ErrTargetUnavailable },
	} {
		for _, held := range []bool{false, true} { // by the claim of an earlier term
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					dead := b.sink.topic("dead", 1)
					b.sink.change(func() { broken(dead) })
					due := b.accept("dead", 10, asDeadLetter)
					if held {
						b.Confirm("dead")
					} else {
						b.Hand(due)
					}
					b.feed(due, parkAfter+time.Second)
					for range 600 { // it must not flicker while the topic is tried again
						problems := b.cfg.Report.Read().Problems
						if len(problems) != 1 || !strings.HasPrefix(problems[0], "dead-letter topic dead: dead letters wait: ") {
							t.Fatalf("problems %q, want that dead letters wait", problems)
						}
						b.feed(due, 100*time.Millisecond)
					}
					b.sink.change(func() { dead.err, dead.refuse = nil, nil })
					b.feed(due, 3*mostProbe)
					if problems := b.cfg.Report.Read().Problems; len(problems) != 0 || len(b.acked()) != len(due) {
						t.Errorf("problems %q after the repair, %d of %d written", problems, len(b.acked()), len(due))
					}
					b.stop()
				})
			})
		}
	}
}

// It is tried each few seconds. Whoever looks after it reads that in the status; the log is not filled with it.
func TestDeadLetter_thatWaitsIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		b := newBench(t)
		b.Publisher.log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
		dead := b.sink.topic("dead", 1)
		b.sink.change(func() { dead.refuse = func(Delivery) error { return ErrTargetForbidden } })
		due := b.accept("dead", 10, asDeadLetter)
		b.Hand(due)
		b.feed(due, 10*time.Minute)
		b.stop()
		if lines := bytes.Count(logged.Bytes(), []byte("\n")); lines < 9 || lines > 10 {
			t.Errorf("%d lines in the log in ten minutes:\n%s", lines, &logged)
		}
	})
}

// Each that is refused is named once: the first in a second so that it is seen, the others for those who look for them.
func TestDeadLetter_thatIsRefusedIsLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		b := newBench(t)
		b.Publisher.log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		dead := b.sink.topic("dead", 1)
		dead.refuse = func(Delivery) error { return ErrRecordRefused }
		for range 2 {
			b.deliver("dead", 5, asDeadLetter)
			b.after(2 * time.Second)
		}
		b.stop()
		levels := make(map[string]int)
		for line := range strings.Lines(logged.String()) {
			if strings.Contains(line, "is refused and waits") {
				levels[strings.Fields(line)[1]]++
			}
		}
		if diff := cmp.Diff(map[string]int{"level=ERROR": 2, "level=DEBUG": 8}, levels); diff != "" {
			t.Errorf("lines of each level (-want +got):\n%s\n%s", diff, &logged)
		}
	})
}

func TestDeadLetter_problemGoesWhenNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		dead.err = ErrTargetUnavailable
		b.Confirm("dead")
		b.after(time.Minute)
		if problems := b.cfg.Report.Read().Problems; len(problems) != 1 {
			t.Errorf("problems %q of a topic that is held and cannot be written to, want one", problems)
		}
		b.sink.change(func() { dead.err = nil })
		b.after(mostProbe + 2*idleAfter)
		if problems := b.cfg.Report.Read().Problems; len(problems) != 0 {
			t.Errorf("problems %q of a topic that works and has nothing to do", problems)
		}
		b.stop()
	})
}

func TestParkedTarget_isNoProblemOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sink.topic("orders", 1).err = ErrTargetUnavailable
		due := b.accept("orders", 10, nil)
		b.Hand(due)
		b.feed(due, time.Minute)
		if problems := b.cfg.Report.Read().Problems; len(problems) != 0 || b.count.parked != 1 {
			t.Errorf("problems %q and %d parked targets, want none and one", problems, b.count.parked)
		}
		b.stop()
	})
}

// Whoever mends a stuck dead-letter topic may configure another one. What waits for
// the old one stays a dead letter.
func TestDeadLetter_staysOneWhenTheConfigurationChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		old := b.sink.topic("dead-before", 1)
		old.takes(1000)
		sent := message.Header{Key: "deliver-at", Value: []byte("soon")}
		b.deliver("dead-before", 2, func(i int, m *message.Message) {
			m.Headers = append(m.Headers, sent)
			sized(0, 5000)(i, m)
		})
		b.after(time.Minute)
		if problems := b.cfg.Report.Read().Problems; len(problems) != 1 || !strings.HasPrefix(problems[0], "dead-letter topic dead-before: dead letters wait, 1 of them") {
			t.Errorf("problems %q, want that one waits", problems)
		}
		b.sink.change(func() { old.takes(5001) })
		b.after(2 * asideAgain)
		if len(old.written[0]) != 2 || b.count.delivered != 0 || len(b.log.dead) != 0 {
			t.Errorf("%d written, %d counted as delivered, %d condemned", len(old.written[0]), b.count.delivered, len(b.log.dead))
		}
		const added = 5 // headers of a dead letter
		for _, d := range old.written[0] {
			if len(d.Headers) != 1+added || d.Headers[0].Key != sent.Key {
				t.Errorf("written with headers %v", d.Headers)
			}
		}
		b.stop()
	})
}

// From LevelTwo on a message is no dead letter for headers that its producer wrote, and a
// dead letter stays one without a look at them; what was stored before is known by them.
func TestDeadLetter_isToldByItsMarkAlone(t *testing.T) {
	const marked = 3 // version of the stored form
	for name, test := range map[string]struct {
		level                    storage.Level
		isMarked, hasHeaders, is bool
	}{
		"marked":                {storage.LevelTwo, true, true, true},
		"marked, other headers": {storage.LevelTwo, true, false, true},
		"forged":                {storage.LevelTwo, false, true, false},
		"of an old version":     {storage.LevelOne, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.sink.topic("dead", 1)
				b.log.level = test.level
				due := b.accept("late", 5, func(i int, m *message.Message) {
					if test.hasHeaders {
						asDeadLetter(i, m)
					}
					m.DeadLetter = test.isMarked
				})
				b.Hand(due)
				b.log.mu.Lock()
				b.log.level = storage.LevelTwo
				b.log.mu.Unlock()
				b.feed(due, 3*testTimeout)
				if condemned := len(b.log.dead) == len(due); condemned == test.is || !condemned && len(b.log.dead) != 0 {
					t.Errorf("%d of %d condemned for a target that was missing too long", len(b.log.dead), len(due))
				}
				for _, entry := range b.log.dead {
					if m, err := message.FromEntry(&entry); err != nil || !m.DeadLetter || entry.Body[0] != marked {
						t.Errorf("condemned to %+v, %v", m, err)
					}
				}
				b.stop()
			})
		})
	}
}
