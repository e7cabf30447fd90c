package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever ends a node while it starts, as it reads a large schedule, is told of no failure. A hang-up ends none.
func TestServe_endsInGoodOrderWhileItStarts(t *testing.T) {
	defer signal.Reset(syscall.SIGHUP)
	ctx, end := context.WithCancelCause(t.Context())
	end(errors.New("terminated"))
	var log strings.Builder
	code := run(ctx, []string{"serve", "--node.data_dir", t.TempDir(), "--raft.listen", "127.0.0.1:0", "--api.listen", "127.0.0.1:0"}, strings.NewReader(""), io.Discard, &log)
	if code != exitDone || !strings.Contains(log.String(), "node stopped") {
		t.Errorf("exit %d, logged %s", code, log.String())
	}
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("SIGHUP ends the node")
	}
}

func TestHeadroom_keepsOffALowLimit(t *testing.T) {
	for limit, want := range map[int64]int{math.MaxInt64: headroom, 4 << 30: headroom, 512 << 20: headroom, 512<<20 - 1: 0, 64 << 20: 0} {
		if got := headroomWithin(limit); got != want {
			t.Errorf("%d bytes of %d, want %d", got, limit, want)
		}
	}
}

func TestServe_endsThoughItsDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("not flushed")
		if err := inTime(func() error { time.Sleep(closePatience / 2); return failed }); !errors.Is(err, failed) {
			t.Errorf("closed with %v", err)
		}
		begun, release := time.Now(), make(chan struct{})
		err := inTime(func() error { <-release; return nil })
		if err == nil || !strings.Contains(err.Error(), "its disk hangs") || time.Since(begun) != closePatience {
			t.Errorf("a disk that hangs: %v after %v", err, time.Since(begun))
		}
		close(release)
	})
}
