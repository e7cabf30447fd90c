package digest

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/internal/logtest"
)

func TestDigest_tellsAllInALineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines logtest.Lines
		d := New(lines.Logger(), slog.LevelWarn, "refused")
		d.Add("t0", 2, "offset", 0)
		time.Sleep(time.Millisecond / 2) // so that the others come between the lines
		for i := 1; i < 3000; i++ {
			time.Sleep(time.Millisecond)
			d.Add(fmt.Sprint("t", i%100), 2, "offset", i)
		}
		time.Sleep(time.Minute)
		d.Add("later", 1)
		d.Add("last", 1)
		d.Close()
		want := []string{
			"level=WARN msg=refused records=2 topics=1 topic=t0 offset=0",
			"level=WARN msg=refused records=1998 topics=100 topic=t99 offset=999",
			"level=WARN msg=refused records=2000 topics=100 topic=t99 offset=1999",
			"level=WARN msg=refused records=2000 topics=100 topic=t99 offset=2999",
			"level=WARN msg=refused records=1 topics=1 topic=later",
			"level=WARN msg=refused records=1 topics=1 topic=last",
		}
		if diff := cmp.Diff(want, lines.With("refused")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
