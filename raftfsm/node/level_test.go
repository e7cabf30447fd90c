package node

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A program that does not understand the level would lead on a directory that does not tell of it.
func TestRaiseLevel_isOnDiskSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		n := c.leader()
		must(t, n, raftfsm.RaiseLevel{Level: storage.LevelTwo})
		raised := n.Status().LastIndex
		time.Sleep(time.Second)
		for name, n := range c.nodes {
			if at := n.Status().SnapshotIndex; at < raised {
				t.Errorf("the schedule of %s ends at %d on disk, and the raise is %d", name, at, raised)
			}
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

// A barrier moves the time on every node from the level on at which something expires, and waits for the log below it.
func TestBarrierAt_movesTheTimeFromLevelThreeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.Understands = storage.LevelThree })
		c.open("n1", "n2", "n3")
		n := c.leader()
		barrier := func(ms, want int64) {
			t.Helper()
			if err := n.BarrierAt(t.Context(), ms); err != nil || n.Store().Time() != want {
				t.Errorf("the time is %d after a barrier at %d, %v, want %d", n.Store().Time(), ms, err, want)
			}
		}
		must(t, n, raftfsm.RaiseLevel{Level: storage.LevelTwo})
		barrier(5, 0)
		must(t, n, raftfsm.RaiseLevel{Level: storage.LevelThree})
		barrier(7, 7)
		barrier(6, 7)
		for id, other := range c.nodes {
			c.eventually("the time of "+id, func() bool { return other.Store().Time() == 7 })
			if other == n {
				continue
			}
			if err := other.BarrierAt(t.Context(), 9); !errors.Is(err, raftfsm.ErrNotLeader) {
				t.Errorf("%s, a follower: %v, want ErrNotLeader", id, err)
			}
		}
		c.isolate(n.Status().Node)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := n.BarrierAt(ctx, 9); !errors.Is(err, raftfsm.ErrNotLeader) && !errors.Is(err, raftfsm.ErrInDoubt) {
			t.Errorf("cut off: %v", err)
		}
	})
}

func TestPropose_returnsWhatCameOfOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.Understands = storage.LevelThree })
		c.open("n1", "n2", "n3")
		n := c.leader()
		must(t, n, raftfsm.RaiseLevel{Level: storage.LevelThree})
		must(t, n, raftfsm.OpenIDs{})
		entry := storage.Entry{Due: 1 << 50, Target: "a", Topic: "a.delay", ID: "x", Body: []byte("x")}
		res := must(t, n, raftfsm.Operate{Time: 5, Operations: []raftfsm.Operation{
			{Verb: raftfsm.Schedule, Entry: entry}, {Verb: raftfsm.Cancel, If: raftfsm.Exactly, Seq: 1, Entry: entry}, {Verb: raftfsm.Cancel, Entry: entry},
		}})
		var codes []raftfsm.Code
		for _, a := range res.Answers[0] {
			codes = append(codes, a.Code)
		}
		if !slices.Equal(codes, []raftfsm.Code{raftfsm.Scheduled, raftfsm.WasCancelled, raftfsm.AlreadyCancelled}) {
			t.Errorf("answers %+v", res.Answers)
		}
		if life := n.Store().Life("a.delay", "x"); len(life) != 1 || life[0] != *res.Answers[0][2].Outcome {
			t.Errorf("its life is %+v, the answer was %+v", life, res.Answers[0][2])
		}
	})
}

// Programs of the first feature level do not know a checksum in node.json: it is there from the first start on at which the
// schedule on disk has the second.
func TestNode_sealsItsIdentityWhereTheLevelAllowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.AskMember = nil })
		startAndRead := func() string {
			c.open("n1")
			c.leader()
			identity, err := os.ReadFile(filepath.Join(c.dirs["n1"], "node.json"))
			if err != nil {
				t.Fatal(err)
			}
			return string(identity)
		}
		if identity := startAndRead(); strings.Contains(identity, `"sum"`) {
			t.Errorf("at the first level it is %s", identity)
		}
		must(t, c.leader(), raftfsm.RaiseLevel{Time: 1, Level: storage.LevelTwo})
		if err := c.leader().running().Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		c.closeAll()
		if identity := startAndRead(); !strings.Contains(identity, `"sum"`) {
			t.Errorf("at the second level it is %s", identity)
		}
	})
}
