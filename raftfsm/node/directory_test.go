package node

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
)

// What is open goes on without its names: the node would lead on, and have nothing when it starts again.
func TestNode_stopsWhenItsDirectoryIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		take func(dir string) error
		want string
	}{
		"deleted": {os.RemoveAll, "was emptied or unmounted while the node ran"},
		"emptied": {func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) }, "was emptied or unmounted while the node ran"},
		"without its identity": {func(dir string) error { return os.Remove(filepath.Join(dir, "node.json")) },
			"holds raft but no node.json"},
		"without its schedule": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, scheduleDir)) },
			"has lost schedule while the node ran"},
		"without its vote": {func(dir string) error { return os.Remove(filepath.Join(dir, raftDir, "stable.db")) },
			"has lost raft/stable.db"},
		"of another life": {func(dir string) error {
			id, err := member.Read(dir, nil)
			id.Incarnation = rand.Text()
			return errors.Join(err, id.Save(dir))
		}, "was replaced by that of another life of \"n"},
		"on a disk that fails": {func(dir string) error {
			identity := filepath.Join(dir, "node.json")
			return errors.Join(os.Remove(identity), os.Symlink("/proc/self/mem", identity)) // to read its beginning is an input/output error
		}, "its disk fails: read"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, nil)
				c.open("n1", "n2", "n3")
				leader := c.leader()
				l := startLoad(t, leader)
				must(t, leader, l.batch(10, 100))
				time.Sleep(2 * lookEvery)
				for _, n := range c.nodes {
					if err := n.failureNow(); err != nil {
						t.Fatalf("%s stopped before: %v", n.cfg.NodeID, err)
					}
				}
				if err := test.take(leader.cfg.DataDir); err != nil {
					t.Fatal(err)
				}
				time.Sleep(lookEvery + time.Millisecond)
				select {
				case err := <-leader.Failed():
					if !errors.Is(err, raftfsm.ErrDamaged) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "(advised)") {
						t.Errorf("stopped with: %v; want %q", err, test.want)
					}
				default:
					t.Fatal("it goes on")
				}
				c.close(leader.cfg.NodeID)
				next := c.leader()
				at, _ := next.store.Position(topicID, 0)
				l.next = at.Next
				must(t, next, l.batch(10, 100))
				if got := next.store.Pending(); got != 20 {
					t.Errorf("%d pending at the next leader, want 20", got)
				}
			})
		})
	}
}
