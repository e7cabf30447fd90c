package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/carillonmq/carillon/raftfsm"
)

func TestEndLevel_isLowWhenLeadershipWasLost(t *testing.T) {
	for _, test := range []struct {
		reason error
		over   bool
		want   slog.Level
	}{
		{errLeadershipLost, true, slog.LevelInfo},
		{fmt.Errorf("commit records: %w", raftfsm.ErrNotLeader), false, slog.LevelInfo}, // seen before the end of the leadership
		{fmt.Errorf("commit records: %w", raftfsm.ErrInDoubt), true, slog.LevelInfo},
		{fmt.Errorf("commit records: %w", raftfsm.ErrInDoubt), false, slog.LevelWarn},
		{fmt.Errorf("commit records: %w", raftfsm.ErrBusy), false, slog.LevelWarn},
		{errors.New("disk"), false, slog.LevelWarn},
	} {
		if got := endLevel(test.reason, test.over); got != test.want {
			t.Errorf("%v, leadership over %v: level %v, want %v", test.reason, test.over, got, test.want)
		}
	}
}
