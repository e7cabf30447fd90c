package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/raftlog"
	"github.com/carillonmq/carillon/storage"
)

// A follower has received a snapshot, its log is empty since, and its schedule is
// lost, or another one is put in its place. It has acknowledged what it does not
// have any more.
func TestOpen_refusesADirectoryThatLostItsScheduleBesideAnEmptyLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, away := receivedBesideAnEmptyLog(t, storage.LevelTwo)
		schedule := filepath.Join(c.dirs[away], scheduleDir)
		if err := os.Rename(schedule, schedule+".lost"); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"none", "the empty one of the start before"} {
			n, err := Open(t.Context(), c.config(away))
			if err == nil {
				t.Fatalf("%s: it starts as if it were new, at term %d: %v", what, n.Status().Term, n.Close())
			}
			for _, want := range []string{c.dirs[away], "schedule", "(advised)"} {
				if !errors.Is(err, raftfsm.ErrDamaged) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %q, want ErrDamaged and %q", what, err, want)
				}
			}
		}
		if err := errors.Join(os.RemoveAll(schedule), os.Rename(schedule+".lost", schedule)); err != nil {
			t.Fatal(err)
		}
		c.open(away)
		must(t, c.leader(), raftfsm.Ack{Runs: killed(1, 1)})
		c.agree()
	})
}

// At LevelOne nothing is written that programs of before did not write.
func TestStable_isThatOfProgramsBeforeUntilTheRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, away := receivedBesideAnEmptyLog(t, storage.LevelOne)
		s, err := raftlog.OpenStable(filepath.Join(c.dirs[away], raftDir))
		if err != nil {
			t.Fatal(err)
		}
		if index, err := s.GetUint64([]byte("LogClearedAt")); !errors.Is(err, raftboltdb.ErrKeyNotFound) {
			t.Errorf("the log is noted as cleared at %d: %v", index, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// receivedBesideAnEmptyLog returns a cluster and a member that has the leader's
// snapshot and no log behind it, and is closed.
func receivedBesideAnEmptyLog(t *testing.T, level storage.Level) (c *cluster, away string) {
	c = newCluster(t, 3, func(cfg *Config) { cfg.FlushBytes, cfg.FlushInterval, cfg.SegmentSize = 32<<10, time.Hour, 8<<10 })
	c.open("n1", "n2", "n3")
	n := c.leader()
	l := startLoad(t, n)
	must(t, n, raftfsm.RaiseLevel{Level: level})
	away = otherThan(c, n)
	c.close(away)
	time.Sleep(5 * time.Second) // until the leader keeps no more log for it
	for range 3 {
		for range 20 {
			must(t, n, l.batch(10, 200))
		}
		if err := n.flush(n.running()); err != nil {
			t.Fatal(err)
		}
	}
	c.open(away)
	c.agree()
	last, err := c.nodes[away].logs.LastIndex()
	if err != nil || last != 0 {
		t.Fatalf("the log ends at %d, this tests nothing: %v", last, err)
	}
	c.close(away)
	return c, away
}
