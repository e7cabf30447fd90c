package ingest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A fullLog has no room until then.
type fullLog struct {
	Log
	until time.Time
	asked int
}

func (l *fullLog) Room() error {
	l.asked++
	if time.Now().Before(l.until) {
		return fmt.Errorf("%w: for now", raftfsm.ErrNoRoom)
	}
	return nil
}

// A flush that is behind ends in moments, and a full disk has room again after hours. The former is not waited for much
// longer than it takes, and the latter costs little.
func TestIngest_waitsForRoomAboutAsLongAsThereIsNone(t *testing.T) {
	for _, tt := range []struct {
		none, most time.Duration
		asked      int
		logged     int
	}{
		{100 * time.Millisecond, 200 * time.Millisecond, 10, 0},
		{time.Hour, time.Hour + mostRoomWait, int(time.Hour/time.Second) + 10, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var logged bytes.Buffer
			log := &fullLog{until: time.Now().Add(tt.none)}
			g := New(Options{Config: config.Default(), Log: log, Store: atLevel(storage.LevelTwo), Now: time.Now, Report: report.New(), Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			began := time.Now()
			if err := g.awaitRoom(context.Background()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > tt.most || log.asked > tt.asked {
				t.Errorf("no room for %v: waited for %v and asked %d times, want %v and %d at most", tt.none, took, log.asked, tt.most, tt.asked)
			}
			if lines := bytes.Count(logged.Bytes(), []byte("\n")); lines != tt.logged {
				t.Errorf("no room for %v: %d lines in the log, want %d:\n%s", tt.none, lines, tt.logged, &logged)
			}
		})
	}
}
