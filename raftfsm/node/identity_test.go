package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/raftlog"
)

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// The node that has the directory open is born and stops just while another, which
// has read that nobody was born there, waits for the lock.
func TestOpen_leavesADirectoryWhoseNodeWasBornMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.dirs["n2"] = c.dirs["n1"]
		first, err := member.Load(c.config("n1").member())
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(c.dirs["n1"], raftDir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		held, err := raftlog.OpenStable(dir)
		if err != nil {
			t.Fatal(err)
		}
		opened := make(chan error)
		go func() {
			n, err := Open(t.Context(), c.config("n2"))
			if n != nil {
				_ = n.Close()
			}
			opened <- err
		}()
		synctest.Wait() // it waits for the lock

		first.RaftID, first.Members = "n1", c.members
		if err := errors.Join(first.Save(c.dirs["n1"]), held.Close()); err != nil {
			t.Fatal(err)
		}
		if err := <-opened; !errors.Is(err, member.ErrForeignData) {
			t.Errorf("opened as n2: %v, want ErrForeignData", err)
		}
		if now, err := member.Load(c.config("n1").member()); err != nil || now.Incarnation != first.Incarnation {
			t.Errorf("incarnation %s of %s has become %s (%v)", first.Incarnation, first.NodeID, now.Incarnation, err)
		}
	})
}
