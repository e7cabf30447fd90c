package raftfsm

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoom_isWhatTheDiskHasAboveTheReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.open("n1")
		n := c.leader()
		if err := n.Room(); err != nil {
			t.Errorf("no room for 2 MiB: %v", err)
		}
		n.cfg.FlushBytes = 1 << 59
		if err := n.Room(); !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "node.data_dir") || !strings.Contains(err.Error(), "free some space") {
			t.Errorf("got %v, want ErrNoRoom with field and remedy", err)
		}
	})
}

// A file system of 24 MiB fills up, and is emptied again.
func TestNode_goesOnWhenAFullDiskHasRoomAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, to mount a tmpfs")
		}
		t.Skip("needs root, to mount a tmpfs")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	filler := dir + "/filler"
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.DataDir = dir + "/n1"
			cfg.FlushBytes = 256 << 10
		})
		c.open("n1")
		n := c.leader()
		l := startLoad(t, n)
		must(t, n, l.batch(100, 1000))

		// Somebody else takes all that is left.
		if err := os.WriteFile(filler, make([]byte, 1<<30), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("filling the disk: %v", err)
		}
		if err := n.Room(); !errors.Is(err, ErrNoRoom) {
			t.Errorf("room on a full disk: %v", err)
		}
		// The acks go on in what the log has allocated.
		for seq := range uint64(50) {
			must(t, n, Ack{Runs: killed(seq+1, seq+1)})
		}
		if got := n.store.Pending(); got != 50 {
			t.Errorf("pending %d after 50 acks, want 50", got)
		}
		var refused error
		for i := 0; i < 10_000 && refused == nil; i++ {
			_, refused = n.Propose(t.Context(), l.batch(10, 1000)).Wait(t.Context())
		}
		if refused == nil {
			t.Fatal("the disk never got full")
		}
		select {
		case err := <-n.Failed():
			t.Fatalf("the node stopped: %v", err)
		case <-time.After(10 * time.Second):
		}

		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		n = c.leader()
		c.eventually("room", func() bool { return n.Room() == nil })
		at, _ := n.store.Position(topicID, 0)
		l.next = at.Next
		must(t, n, l.batch(10, 1000))
		if want := uint64(at.Next) + 10 - 50; n.store.Pending() != want {
			t.Errorf("pending %d, want %d", n.store.Pending(), want)
		}
		if err := n.store.Check(); err != nil {
			t.Error(err)
		}
		before := digest(t, n.store)
		c.close("n1")
		c.open("n1")
		if c.leader(); digest(t, c.nodes["n1"].store) != before {
			t.Error("the state of before is not that of after the restart")
		}
	})
}
