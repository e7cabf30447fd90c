package node

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/raftlog"
	"github.com/carillonmq/carillon/storage"
)

func TestNode_aloneServesAtOnceAndAgainAfterARestart(t *testing.T) {
	for _, kind := range []string{raftlog.WAL, raftlog.BoltDB} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, func(cfg *Config) { cfg.Log = kind; cfg.AskMember = nil })
				c.open("n1")
				n := c.leader()
				l := startLoad(t, n)
				must(t, n, l.batch(100, 50))
				must(t, n, raftfsm.Ack{Runs: killed(1, 10)})
				before := digest(t, n.store)
				c.closeAll()

				c.open("n1")
				n = c.leader()
				if got := n.store.Pending(); got != 90 || digest(t, n.store) != before {
					t.Errorf("pending %d after the restart, want the 90 of before", got)
				}
			})
		})
	}
}

func TestNode_flushesByBytesAndCutsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.FlushBytes = 64 << 10 })
		c.open("n1")
		n := c.leader()
		l := startLoad(t, n)
		for range 40 {
			must(t, n, l.batch(10, 1000))
		}
		c.eventually("flush", func() bool { return n.Status().SnapshotIndex > 20 })
		c.eventually("shorter log", func() bool { first, err := n.logs.FirstIndex(); return err == nil && first > 1 })
		want := digest(t, n.store)
		c.closeAll()
		c.open("n1")
		n = c.leader()
		if n.store.Pending() != 400 || digest(t, n.store) != want {
			t.Errorf("pending %d after the restart, want 400", n.store.Pending())
		}
		if err := n.store.Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestNode_flushesAQuietLogAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int32
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.FlushInterval, cfg.FreeMemory = 10*time.Minute, func() { freed.Add(1) }
		})
		c.open("n1")
		n := c.leader()
		l := startLoad(t, n)
		must(t, n, l.batch(1, 10))
		time.Sleep(9 * time.Minute)
		if at := n.Status().SnapshotIndex; at != 0 {
			t.Errorf("flushed at %d already", at)
		}
		time.Sleep(2 * time.Minute)
		if at := n.Status().SnapshotIndex; at == 0 {
			t.Error("not flushed")
		}
		time.Sleep(time.Hour) // there is nothing more to flush, and nothing to tidy up after that
		if n := freed.Load(); n != 1 {
			t.Errorf("memory was returned %d times after one flush", n)
		}
	})
}

// The reserve is more than any disk has free.
func TestNode_flushesSoonWhenTheDiskIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.FlushBytes = 1 << 59 })
		c.open("n1")
		n := c.leader()
		l := startLoad(t, n)
		must(t, n, l.batch(1, 10))
		if err := n.Room(); !errors.Is(err, raftfsm.ErrNoRoom) {
			t.Errorf("room: %v, want ErrNoRoom", err)
		}
		time.Sleep(lookEvery + time.Second)
		if at := n.Status().SnapshotIndex; at == 0 {
			t.Error("not flushed")
		}
	})
}

func TestNode_stopsAtAnUnknownCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.open("n1")
		n := c.leader()
		if err := n.running().Apply([]byte{77, 1, 0}, time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		if err := <-n.Failed(); !errors.Is(err, raftfsm.ErrUnknownCommand) || !strings.Contains(err.Error(), "version 77") {
			t.Errorf("failed with %v, want the unknown version named", err)
		}
		if _, err := n.Propose(t.Context(), raftfsm.Ack{}).Wait(t.Context()); !errors.Is(err, raftfsm.ErrClosed) || !errors.Is(err, raftfsm.ErrUnknownCommand) {
			t.Errorf("a command after it failed: %v, want ErrClosed and why", err)
		}
		if s := n.Status(); s.State != "failed" || !strings.Contains(s.Waiting, "unknown command") {
			t.Errorf("status %q %q", s.State, s.Waiting)
		}
	})
}

// What nodes cannot read would stop all of them, at each start again.
func TestNode_proposesNothingThatItCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.open("n1")
		n := c.leader()
		if _, err := n.Propose(t.Context(), raftfsm.RaiseLevel{Level: storage.LevelFour}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		ofNoTopic := raftfsm.Operation{Verb: raftfsm.Schedule, Entry: storage.Entry{Topic: "orders.delay", Target: "orders"}, Replay: &raftfsm.Replay{Offset: 7}}
		for range 2 {
			if _, err := n.Propose(t.Context(), raftfsm.Operate{Operations: []raftfsm.Operation{ofNoTopic}}).Wait(t.Context()); !errors.Is(err, raftfsm.ErrCommand) || errors.Is(err, raftfsm.ErrInDoubt) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := n.Propose(t.Context(), raftfsm.Ack{}).Wait(t.Context()); err != nil {
			t.Errorf("after it: %v", err)
		}
		c.closeAll()
	})
}

func TestNode_saysWhatHappenedToAProposal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1")
		if _, err := c.nodes["n1"].Propose(t.Context(), raftfsm.Ack{}).Wait(t.Context()); !errors.Is(err, raftfsm.ErrNotLeader) {
			t.Errorf("unborn: %v, want ErrNotLeader", err)
		}
		c.open("n2", "n3")
		leader := c.leader()
		for _, n := range c.nodes {
			if n != leader {
				if _, err := n.Propose(t.Context(), raftfsm.Ack{}).Wait(t.Context()); !errors.Is(err, raftfsm.ErrNotLeader) {
					t.Errorf("follower: %v, want ErrNotLeader", err)
				}
			}
		}
		big := raftfsm.Ingest{Parts: []raftfsm.Part{{Entries: startLoad(t, leader).batch(1, raftfsm.MaxCommandBytes).Parts[0].Entries}}}
		if _, err := leader.Propose(t.Context(), big).Wait(t.Context()); !errors.Is(err, raftfsm.ErrTooLarge) {
			t.Errorf("too large: %v", err)
		}
		if err := leader.inFlight.Acquire(t.Context(), bytesInFlight); err != nil {
			t.Fatal(err)
		}
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := leader.Propose(hasty, raftfsm.Ack{}).Wait(t.Context()); !errors.Is(err, raftfsm.ErrBusy) || errors.Is(err, raftfsm.ErrNotLeader) {
			t.Errorf("too much in flight: %v, want ErrBusy", err)
		}
		cancel()
		leader.inFlight.Release(bytesInFlight)
		for _, m := range c.members {
			if m.ID != leader.cfg.NodeID {
				c.close(m.ID)
			}
		}
		// Without a majority it is stored and not committed: nobody can know.
		if _, err := leader.Propose(t.Context(), raftfsm.Ack{}).Wait(t.Context()); !errors.Is(err, raftfsm.ErrInDoubt) {
			t.Errorf("without a majority: %v, want ErrInDoubt", err)
		}
		c.closeAll()
		if _, err := leader.Propose(context.Background(), raftfsm.Ack{}).Wait(context.Background()); !errors.Is(err, raftfsm.ErrClosed) {
			t.Errorf("closed: %v, want ErrClosed", err)
		}
	})
}

// The schedule alone does not make a node whole: what it has acknowledged since
// the last flush was in the log.
func TestOpen_refusesADirectoryThatLostItsLog(t *testing.T) {
	for _, kind := range []string{raftlog.WAL, raftlog.BoltDB} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, func(cfg *Config) { cfg.Log, cfg.FlushBytes = kind, 4<<10 })
				c.open("n1")
				n := c.leader()
				l := startLoad(t, n)
				ingestUntil(c, n, l, "flush", func() bool { return n.Status().SnapshotIndex > 0 })
				c.close("n1")
				lost := filepath.Join(raftDir, kind)
				if err := os.RemoveAll(filepath.Join(c.dirs["n1"], lost)); err != nil {
					t.Fatal(err)
				}
				n, err := Open(t.Context(), c.config("n1"))
				if !errors.Is(err, raftfsm.ErrDamaged) || !strings.Contains(err.Error(), lost) || strings.Contains(err.Error(), "replace") {
					t.Errorf("got %v, want ErrDamaged with %s, and no word of replacing what no other node has", err, lost)
				}
				if err == nil {
					_ = n.Close()
				}
			})
		})
	}
}

// Open ends between the transport and raft, and leaves no goroutine (TestMain).
func TestOpen_closesWhatItStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.open("n1")
		c.leader()
		c.close("n1")
		dir := filepath.Join(c.dirs["n1"], raftDir)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		log, err := raftlog.Open(raftlog.Config{Dir: dir, Kind: raftlog.WAL, SegmentSize: 8 << 10, Logger: newHCLogger(testLogger(t), "test")})
		if err != nil {
			t.Fatal(err)
		}
		stable, err := raftlog.OpenStable(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(log.Close(), stable.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), c.config("n1")); !errors.Is(err, raftfsm.ErrDamaged) {
			t.Errorf("got %v, want ErrDamaged", err)
		}
	})
}

// The first configuration may have been wrong: until the node is born, another holds.
func TestOpen_letsAnUnbornNodeBecomeAnother(t *testing.T) {
	dir := t.TempDir()
	var log lines
	open := func(id, cluster string) member.Identity {
		t.Helper()
		n, err := Open(t.Context(), Config{
			NodeID: id, DataDir: dir, ClusterName: cluster, Members: []member.Member{{ID: "n1", Raft: "localhost:0"}, {ID: "n2", Raft: "localhost:1"}},
			ListenAddr: "localhost:0", Logger: log.logger(), SegmentSize: 64 << 10,
			AskMember: func(context.Context, member.Member) (member.Standing, error) {
				return member.Standing{}, errors.New("away")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		return n.identity
	}
	first := open("n1", "shop")
	if again := open("n1", "shop"); again.Incarnation != first.Incarnation {
		t.Error("the same node is another incarnation after a restart")
	}
	if text := log.String(); strings.Contains(text, "taken over") {
		t.Errorf("its own directory:\n%s", text)
	}
	seen := map[string]bool{first.Incarnation: true}
	for _, other := range [][2]string{{"n2", "shop"}, {"n2", "store"}} {
		id := open(other[0], other[1])
		if id.NodeID != other[0] || id.ClusterName != other[1] || seen[id.Incarnation] {
			t.Errorf("opened as %v, it is %+v", other, id)
		}
		seen[id.Incarnation] = true
	}
	if text := log.String(); strings.Count(text, "taken over") != 2 || !strings.Contains(text, "was_node=n1 was_cluster=shop cluster=shop") {
		t.Errorf("two changes of the owner are logged as:\n%s", text)
	}
}

func TestOpen_namesFieldValueAndRemedy(t *testing.T) {
	base := func(dir string) Config {
		return Config{
			NodeID: "n1", DataDir: dir, ClusterName: "carillon", Bootstrap: true,
			Members: []member.Member{{ID: "n1", Raft: "localhost:0"}}, Logger: testLogger(t), SegmentSize: 64 << 10,
		}
	}
	dir := t.TempDir()
	n, err := Open(t.Context(), base(dir))
	if err != nil {
		t.Fatal(err)
	}
	second := base(dir)
	_, inUse := Open(t.Context(), second)
	if inUse == nil || !strings.Contains(inUse.Error(), "in use by another process") {
		t.Errorf("second open: %v", inUse)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	lost := t.TempDir()
	if err := os.MkdirAll(filepath.Join(lost, scheduleDir), 0o700); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   error
		say    []string
	}{
		{"another node's directory", func(c *Config) { c.NodeID = "n2"; c.Members = []member.Member{{ID: "n2", Raft: "localhost:0"}} }, member.ErrForeignData, []string{"node.data_dir", dir, `"n1"`, `"n2"`}},
		{"another cluster's directory", func(c *Config) { c.ClusterName = "other" }, member.ErrForeignData, []string{"cluster.name", `"carillon"`, `"other"`}},
		{"another member", func(c *Config) {
			c.Members = append(c.Members, member.Member{ID: "n2", Raft: "b:1"})
			c.AskMember = func(context.Context, member.Member) (member.Standing, error) { return member.Standing{}, nil }
		}, member.ErrMembers, []string{"cluster.members", "n2 at b:1", "restore"}},
		{"another log", func(c *Config) { c.Log = raftlog.BoltDB }, member.ErrOtherLog, []string{"raft.log", "boltdb", "wal"}},
		{"node.json lost", func(c *Config) { c.DataDir = lost }, raftfsm.ErrDamaged, []string{"node.json"}},
		{"node.json lost, where others have it all", func(c *Config) {
			c.DataDir, c.Members = lost, append(c.Members, member.Member{ID: "n2", Raft: "b:1"}, member.Member{ID: "n3", Raft: "c:1"})
			c.AskMember = func(context.Context, member.Member) (member.Standing, error) { return member.Standing{}, nil }
			c.Advise = advised
		}, raftfsm.ErrDamaged, []string{"node.json", "(advised)"}},
		{"a port in use", func(c *Config) { c.DataDir = t.TempDir(); c.ListenAddr = taken.Addr().String() }, member.ErrConfig, []string{"raft.listen", taken.Addr().String(), "free the port"}},
		{"a member's port in use", func(c *Config) {
			c.DataDir, c.Members = t.TempDir(), []member.Member{{ID: "n1", Raft: taken.Addr().String()}}
		}, member.ErrConfig, []string{"cluster.members[n1].raft", taken.Addr().String(), "free the port", "on all nodes"}},
		{"no bootstrap", func(c *Config) { c.DataDir = t.TempDir(); c.Bootstrap = false }, member.ErrConfig, []string{"cluster.bootstrap", "true"}},
		{"a node that is no member", func(c *Config) { c.NodeID = "n9" }, member.ErrConfig, []string{"node.id", "n9", "n1"}},
		{"a member twice", func(c *Config) { c.Members = append(c.Members, c.Members[0]) }, member.ErrConfig, []string{"cluster.members", "n1", "twice"}},
		{"a member without a port", func(c *Config) { c.Members = []member.Member{{ID: "n1", Raft: "host"}} }, member.ErrConfig, []string{"cluster.members[n1].raft", "host:port"}},
		{"an unknown log", func(c *Config) { c.Log = "paper" }, member.ErrConfig, []string{"raft.log", "paper", "wal"}},
		{"a hasty heartbeat", func(c *Config) { c.Heartbeat = time.Millisecond }, member.ErrConfig, []string{"raft.heartbeat", "1ms", "20ms"}},
		{"a negative interval", func(c *Config) { c.FlushInterval = -time.Second }, member.ErrConfig, []string{"FlushInterval", "-1s", "above 0"}},
		{"negative bytes", func(c *Config) { c.FlushBytes = -1 }, member.ErrConfig, []string{"FlushBytes", "-1", "above 0"}},
		{"a negative segment", func(c *Config) { c.SegmentSize = -1 }, member.ErrConfig, []string{"SegmentSize", "-1", "above 0"}},
	} {
		cfg := base(dir)
		tt.change(&cfg)
		n, err := Open(t.Context(), cfg)
		if err == nil {
			t.Errorf("%s: opened", tt.name)
			_ = n.Close()
			continue
		}
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		for _, word := range tt.say {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not name %q", tt.name, err, word)
			}
		}
	}
	n, err = Open(t.Context(), base(dir))
	if err != nil {
		t.Fatalf("after all that: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
