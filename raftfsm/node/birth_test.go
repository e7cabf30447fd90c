package node

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/repeats"
)

func TestBirth_saysOnceAMinuteWhoDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		var port atomic.Int64 // our side of a connection, another each time
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.Logger = log.logger()
			cfg.AskMember = func(_ context.Context, m member.Member) (member.Standing, error) {
				return member.Standing{}, fmt.Errorf("read tcp n1.test:%d->%s: connection reset by peer", port.Add(1), m.API)
			}
		})
		c.open("n1")
		time.Sleep(5*repeats.Every - askEvery)
		for _, member := range []string{"n2", "n3"} {
			if got := strings.Count(log.String(), "member="+member+" "); got != 5 {
				t.Errorf("%d lines about %s in five minutes, want 5", got, member)
			}
		}
	})
}
