package node

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm/member"
)

// greetAs sends the node a greeting for the Raft id, and waits until it hangs up.
func (c *cluster) greetAs(id raft.ServerID, node string) {
	c.t.Helper()
	_, port, err := net.SplitHostPort(c.config(node).ListenAddr)
	if err != nil {
		c.t.Fatal(err)
	}
	conn, err := c.network.DialContext(c.t.Context(), "tcp", "localhost:"+port)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(greeting("test", id)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		c.t.Fatalf("greeted as %s: %v, want EOF", id, err)
	}
}

func TestReplaced_greetingByMistakeHarmsNobodyWhoHasALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c := newCluster(t, 3, func(cfg *Config) { cfg.Logger = log.logger() })
		c.open("n1", "n2", "n3")
		n := c.leader()
		follower := otherThan(c, n)
		for _, node := range []string{n.cfg.NodeID, follower} {
			c.greetAs(raft.ServerID(node+"@9999"), node)
			if s := c.nodes[node].Status(); s.Waiting != "" {
				t.Errorf("%s says %q", node, s.Waiting)
			}
		}
		if text := log.String(); strings.Contains(text, member.ErrReplaced.Error()) {
			t.Errorf("logged:\n%s", text)
		}

		// Without a leader it cannot tell, until there is one again.
		for _, m := range c.members {
			if m.ID != follower {
				c.close(m.ID)
			}
		}
		c.eventually("loss of the leader", func() bool { return c.nodes[follower].Status().Leader == "" })
		c.greetAs(raft.ServerID(follower+"@9999"), follower)
		c.eventually("word of it", func() bool { return strings.Contains(c.nodes[follower].Status().Waiting, member.ErrReplaced.Error()) })
		for _, m := range c.members {
			if m.ID != follower {
				c.open(m.ID)
			}
		}
		c.leader()
		c.agree()
		c.eventually("word taken back", func() bool { return c.nodes[follower].Status().Waiting == "" })
		now := c.nodes[follower].running().ReloadableConfig()
		if want := c.nodes[follower].cfg.Heartbeat; now.HeartbeatTimeout != want || now.ElectionTimeout != want {
			t.Errorf("with a leader it waits %s for one and %s for votes, want %s", now.HeartbeatTimeout, now.ElectionTimeout, want)
		}
	})
}

// It runs on, cut off, while it is replaced.
func TestReplaced_tellsOnceItIsReachedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		away := c.replaceOne(c.isolate)
		c.rejoin(away)
		c.eventually("word of it", func() bool { return strings.Contains(c.nodes[away].Status().Waiting, member.ErrReplaced.Error()) })
	})
}

func TestReplaced_campaignsRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		away := c.replaceOne(func(id string) { c.close(id) })
		var log lines
		c.tune = func(cfg *Config) { cfg.Logger = log.logger() }
		c.open(away)
		c.eventually("word of it", func() bool { return c.nodes[away].Status().State == "replaced" })
		const minutes = 10
		before := strings.Count(log.String(), "entering candidate state")
		time.Sleep(minutes * time.Minute)
		if more := strings.Count(log.String(), "entering candidate state") - before; more > minutes+1 {
			t.Errorf("%d elections in %d minutes", more, minutes)
		}
		if text := log.String(); strings.Contains(text, "not replaced") || strings.Count(text, member.ErrReplaced.Error()) != 1 {
			t.Errorf("it says:\n%s", text)
		}
		if s := c.nodes[away].Status(); s.State != "replaced" || s.Waiting == "" {
			t.Errorf("it is %s and says %q", s.State, s.Waiting)
		}
	})
}
