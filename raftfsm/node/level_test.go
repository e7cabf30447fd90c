package node

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/storage"
)

func TestUnderstood_asksEveryMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		ask := c.ask
		c.tune = func(cfg *Config) {
			if cfg.NodeID == "n2" {
				cfg.Understands = storage.LevelOne
			}
			cfg.AskMember = func(ctx context.Context, m member.Member) (member.Standing, error) { return ask(ctx, m) }
		}
		c.open("n1", "n2", "n3")
		n := c.leader()
		want := map[string]storage.Level{"n1": storage.NewestLevel, "n2": storage.LevelOne, "n3": storage.NewestLevel}
		if got, err := n.Understood(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("understood %v, want %v (error %v)", got, want, err)
		}

		away := otherThan(c, n)
		c.close(away)
		delete(want, away)
		if got, err := n.Understood(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("with %s away: understood %v, want %v (error %v)", away, got, want, err)
		}

		ask = func(context.Context, member.Member) (member.Standing, error) { return n.Standing(), nil }
		if got, err := n.Understood(t.Context()); err == nil || !strings.Contains(err.Error(), "correct the address") {
			t.Errorf("one node answered for all: understood %v, error %v", got, err)
		}
	})
}

// A form that older members would stop at does not get into the log before the raise.
func TestPropose_refusesAFormAboveTheLevelInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.open("n1")
		n := c.leader()
		if _, err := n.Propose(t.Context(), raftfsm.ChangeClaim{}).Wait(t.Context()); !errors.Is(err, raftfsm.ErrLevel) {
			t.Errorf("at level %d: %v, want ErrLevel", n.Store().Level(), err)
		}
		must(t, n, raftfsm.RaiseLevel{Level: storage.LevelTwo})
		must(t, n, raftfsm.ChangeClaim{})
	})
}
