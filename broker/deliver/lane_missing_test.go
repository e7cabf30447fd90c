package deliver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/schedule"
)

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
		m, err := message.DecodeBody(b.log.dead[0].Body)
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
