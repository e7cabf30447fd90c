package deliver

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
