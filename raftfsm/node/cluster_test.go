package node

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
)

func TestCluster_isFoundedByAllMembersAndSurvivesItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		n := c.leader()
		must(t, n, raftfsm.Found{ClusterID: topicID, Mode: "at-least-once"})
		l := startLoad(t, n)
		for range 10 {
			must(t, n, l.batch(20, 100))
		}
		c.agree()

		lost := n.cfg.NodeID
		c.close(lost)
		start := time.Now()
		n = c.leader()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("a new leader after %s", took)
		}
		must(t, n, l.batch(20, 100))
		c.open(lost)
		c.agree()
		if got := n.store.Pending(); got != 220 {
			t.Errorf("pending %d, want 220", got)
		}

		c.closeAll()
		c.open("n1", "n2", "n3")
		c.leader()
		c.agree()
		if got := c.nodes["n1"].store.Pending(); got != 220 {
			t.Errorf("pending %d after all were restarted, want 220", got)
		}
	})
}

func TestTerms_endWhenLeadershipGoesAndBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		n := c.leader()
		first := <-n.Terms()
		if err := n.TransferLeadership(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		next := c.leader()
		if next == n {
			t.Fatal("leadership was handed over and stayed")
		}
		second := <-next.Terms()
		if second.Term <= first.Term {
			t.Errorf("term %d after %d", second.Term, first.Term)
		}
		if err := n.TransferLeadership(t.Context()); !errors.Is(err, raftfsm.ErrNotLeader) {
			t.Errorf("transfer by a follower: %v", err)
		}
		// Back again, without anybody reading the terms in between.
		if err := next.TransferLeadership(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-second.Done()
		third := c.leader()
		if last := <-third.Terms(); last.Term <= second.Term {
			t.Errorf("term %d after %d", last.Term, second.Term)
		}
	})
}

func TestTransferLeadership_ofOneMemberHasNoTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.open("n1")
		if err := c.leader().TransferLeadership(t.Context()); !errors.Is(err, ErrNoTarget) {
			t.Errorf("got %v, want ErrNoTarget", err)
		}
	})
}

// The members answer each other one by one, as their machines come up.
func TestBirth_waitsForAllMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2")
		time.Sleep(time.Minute)
		for _, n := range c.nodes {
			if s := n.Status(); s.State != "unborn" || s.Waiting == "" {
				t.Errorf("%s is %s (%s) though n3 never answered", s.Node, s.State, s.Waiting)
			}
		}
		// n1 restarts before n3 comes: it keeps its incarnation.
		was := c.nodes["n1"].Standing().Incarnation
		c.close("n1")
		c.open("n1")
		if now := c.nodes["n1"].Standing().Incarnation; now != was {
			t.Errorf("incarnation %s became %s", was, now)
		}
		c.open("n3")
		c.leader()
		c.agree()
	})
}

// Two processes have the id of n1, and each a disk of its own: one at n1's addresses, and one elsewhere, which is there first. Both
// hear from the others that all is empty.
func TestBirth_isNotGivenToASecondProcessOfOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		cfg := c.config("n1")
		cfg.DataDir, cfg.ListenAddr = t.TempDir(), "localhost:7399"
		twin, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer twin.Close()
		c.open("n2", "n3")
		time.Sleep(10 * time.Second)
		c.open("n1")
		c.leader()
		c.agree()
		time.Sleep(10 * time.Second)
		if s := twin.Status(); s.State != "unborn" || !strings.Contains(s.Waiting, "another") {
			t.Errorf("the second n1 is %s: %s", s.State, s.Waiting)
		}
	})
}

func TestBirth_ofASlowFounder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.foundWithout("n3")
		n := c.leader()
		must(t, n, raftfsm.Found{ClusterID: topicID})
		c.open("n3")
		c.agree()
		for _, m := range n.Status().Members {
			if !m.Voter || m.RaftID != m.ID {
				t.Errorf("%s is %q, voter %v", m.ID, m.RaftID, m.Voter)
			}
		}
	})
}

func TestReplace_bringsAWipedNodeBackWhileTheOthersServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.FlushBytes = 128 << 10 })
		c.open("n1", "n2", "n3")
		n := c.leader()
		l := startLoad(t, n)
		if n.cfg.NodeID == "n3" {
			if err := n.TransferLeadership(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.eventually("other leader", func() bool { n = c.leader(); return n.cfg.NodeID != "n3" })
		}
		if err := n.Replace(t.Context(), "n3"); !errors.Is(err, member.ErrReplace) {
			t.Errorf("replaced a member that serves: %v", err)
		}
		c.close("n3")
		c.wipe("n3")
		for range 100 {
			must(t, n, l.batch(20, 200))
		}
		c.open("n3")
		time.Sleep(10 * time.Second)
		if s := c.nodes["n3"].Status(); s.State != "unborn" {
			t.Fatalf("a wiped node is %s", s.State)
		}
		if err := n.Replace(t.Context(), "n3"); err != nil {
			t.Fatal(err)
		}
		// Load goes on while it catches up.
		c.eventually("vote", func() bool {
			must(t, n, l.batch(20, 200))
			m := n.Status().Members[2]
			return m.Voter && m.RaftID != "n3"
		})
		if at := c.nodes["n3"].Status().SnapshotIndex; at == 0 {
			t.Error("n3 caught up without a snapshot: the log was never cut")
		}
		c.agree()
		if err := n.Replace(t.Context(), "n3"); !errors.Is(err, member.ErrReplace) {
			t.Errorf("replaced again though it serves: %v", err)
		}

		// It counts: with it, the old leader is dispensable.
		c.close(n.cfg.NodeID)
		n = c.leader()
		must(t, n, l.batch(20, 200))
		c.agree()
		c.closeAll()
		c.open("n1", "n2", "n3")
		c.leader()
		c.agree()
	})
}

func TestReplace_twiceGivesAnotherRaftID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		ids := map[string]bool{}
		for range 3 {
			n := c.leader()
			victim := "n3"
			if n.cfg.NodeID == victim {
				victim = "n2"
			}
			c.close(victim)
			c.wipe(victim)
			time.Sleep(5 * time.Second)
			if err := n.Replace(t.Context(), victim); err != nil {
				t.Fatal(err)
			}
			c.open(victim)
			c.eventually("vote", func() bool {
				for _, m := range n.Status().Members {
					if m.ID == victim && m.Voter {
						ids[m.RaftID] = true
						return true
					}
				}
				return false
			})
			c.agree()
		}
		if len(ids) != 3 {
			t.Errorf("raft ids %v, want three", ids)
		}
	})
}

func TestReplace_tellsTheOldDiskThatItsPlaceIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		away := c.replaceOne(func(id string) { c.close(id) })
		c.open(away)
		var s Status
		c.eventually("word of it", func() bool { s = c.nodes[away].Status(); return s.Waiting != "" })
		if !strings.HasPrefix(s.Waiting, "node.data_dir: "+c.dirs[away]) || !strings.HasSuffix(s.Waiting, "(advised)") {
			t.Errorf("it says %q", s.Waiting)
		}

		// What it says helps, and then it says no more.
		c.close(away)
		c.wipe(away)
		c.open(away)
		c.eventually("place in the group", func() bool { s = c.nodes[away].Status(); return s.Leader != "" })
		if s.Waiting != "" {
			t.Errorf("with an empty disk it says %q", s.Waiting)
		}
	})
}

func TestReplace_refusesWhatWouldStopTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		n := c.leader()
		var others []string
		for _, m := range c.members {
			if m.ID != n.cfg.NodeID {
				others = append(others, m.ID)
			}
		}
		if err := n.Replace(t.Context(), n.cfg.NodeID); !errors.Is(err, member.ErrReplace) {
			t.Errorf("replaced itself: %v", err)
		}
		if err := n.Replace(t.Context(), "n9"); !errors.Is(err, member.ErrReplace) {
			t.Errorf("replaced a stranger: %v", err)
		}
		if err := c.nodes[others[0]].Replace(t.Context(), others[1]); !errors.Is(err, raftfsm.ErrNotLeader) {
			t.Errorf("replaced by a follower: %v", err)
		}
	})
}

// A disk that is set back to an older copy has forgotten what it has acknowledged, and can elect a leader with one that never
// had it. The third, which has it, must not follow: it would have one history up to there and another one from there on.
func TestCluster_refusesALeaderOfAnotherHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.FlushBytes = 64 << 10 })
		c.open("n1", "n2", "n3")
		has := c.leader()
		l := startLoad(t, has)
		for _, id := range []string{"n1", "n2", "n3"} {
			c.born(id)
		}
		c.agree()
		before := *l
		back, never := otherThan(c, has), ""
		for _, m := range c.members {
			if m.ID != back && m.ID != has.cfg.NodeID {
				never = m.ID
			}
		}
		c.close(back)
		older := t.TempDir()
		if err := os.CopyFS(older, os.DirFS(c.dirs[back])); err != nil {
			t.Fatal(err)
		}
		c.open(back)
		c.close(never)
		for range 100 {
			must(t, has, l.batch(20, 200))
		}
		c.eventually("a flush", func() bool { return has.store.ManifestMeta().Index > 50 })
		c.close(has.cfg.NodeID, back)
		c.dirs[back] = older
		c.open(back, never)
		other := c.leader()
		must(t, other, before.batch(20, 200))
		c.open(has.cfg.NodeID)
		select {
		case err := <-c.nodes[has.cfg.NodeID].Failed():
			if !errors.Is(err, raftfsm.ErrDamaged) || !strings.Contains(err.Error(), "older copy") {
				t.Errorf("it ends with %v", err)
			}
		case <-time.After(time.Minute):
			t.Errorf("it follows: %+v", c.nodes[has.cfg.NodeID].Status())
		}
		c.close(has.cfg.NodeID)
		must(t, c.leader(), before.batch(20, 200))
		c.agree()
		c.closeAll()
	})
}
