package deliver

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

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
						b.Probe("dead")
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

func TestDeadLetter_problemGoesWhenNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := b.sink.topic("dead", 1)
		dead.err = ErrTargetUnavailable
		b.Probe("dead")
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
// dead letter stays one without a look at them; what was stored before is told by them.
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
					if m, err := message.DecodeBody(entry.Body); err != nil || !m.DeadLetter || entry.Body[0] != marked {
						t.Errorf("condemned to %+v, %v", m, err)
					}
				}
				b.stop()
			})
		})
	}
}
