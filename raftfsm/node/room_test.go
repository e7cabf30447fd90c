package node

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
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
		if err := n.Room(); !errors.Is(err, raftfsm.ErrNoRoom) || !strings.Contains(err.Error(), "node.data_dir") || !strings.Contains(err.Error(), "free some space") {
			t.Errorf("got %v, want ErrNoRoom with field and remedy", err)
		}
	})
}

// smallMount mounts a file system of 24 MiB.
func smallMount(t *testing.T) string {
	t.Helper()
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
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp takes all that the file system of dir has left, and returns the file that does.
func fillUp(t *testing.T, dir string) string {
	t.Helper()
	filler := dir + "/filler"
	if err := os.WriteFile(filler, make([]byte, 1<<30), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	return filler
}

// A file system of 24 MiB fills up, and is emptied again.
func TestNode_goesOnWhenAFullDiskHasRoomAgain(t *testing.T) {
	dir := smallMount(t)
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
		filler := fillUp(t, dir)
		if err := n.Room(); !errors.Is(err, raftfsm.ErrNoRoom) {
			t.Errorf("room on a full disk: %v", err)
		}
		// The acks go on in what the log has allocated.
		for seq := range uint64(50) {
			must(t, n, raftfsm.Ack{Runs: killed(seq+1, seq+1)})
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

// Nothing is committed while the disks of both followers are full, and everything
// again when they have room, whatever the log was at meanwhile. The leader leads on:
// each term is written down, on disks that may not take it.
func TestNode_followersGoOnWhenTheirFullDisksHaveRoomAgain(t *testing.T) {
	dirs := map[string]string{"n1": smallMount(t), "n2": smallMount(t), "n3": smallMount(t)}
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.DataDir = dirs[cfg.NodeID] + "/data"
			cfg.FlushBytes = 256 << 10
			cfg.FlushInterval = time.Minute
			cfg.Logger = log.logger()
		})
		c.open("n1", "n2", "n3")
		n := c.leader()
		l := startLoad(t, n)
		c.agree()     // all are born: one that came after a cut would get a snapshot
		for range 8 { // of which some flushes cut the log
			must(t, n, l.batch(100, 1000))
		}
		c.agree()
		term := n.Status().Term
		var fillers []string
		for id := range c.nodes {
			if id != n.cfg.NodeID {
				fillers = append(fillers, fillUp(t, dirs[id]))
			}
		}
		var refused error
		for i := 0; i < 1_000 && refused == nil; i++ {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, refused = n.Propose(ctx, l.batch(100, 1000)).Wait(ctx)
			cancel()
		}
		if refused == nil {
			t.Fatal("the disks never got full")
		}
		time.Sleep(10 * time.Minute)
		if text := log.String(); strings.Contains(text, "installing snapshot") {
			t.Error("the leader sends snapshots that end before the followers' logs")
		}
		if now := n.Status(); now.State != "leader" || now.Term != term {
			t.Errorf("the leader of term %d is %s in term %d", term, now.State, now.Term)
		}
		for _, filler := range fillers {
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		n = c.leader()
		at, _ := n.store.Position(topicID, 0)
		l.next = at.Next
		must(t, n, l.batch(10, 1000))
		time.Sleep(time.Minute) // one may have got a snapshot
		must(t, n, l.batch(10, 1000))
		c.agree()
		for id, n := range c.nodes {
			if err := n.failureNow(); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		if got := n.store.Pending(); got != uint64(l.next) {
			t.Errorf("%d pending, want all %d that were taken in", got, l.next)
		}
		c.closeAll() // before the disks are unmounted
	})
}

// A follower that is too far behind for the log has no room for the leader's
// schedule beside its own. It keeps what it has, for a majority may count on it,
// says what is missing, and takes the snapshot once there is room.
func TestNode_keepsItsScheduleWithoutRoomForASnapshot(t *testing.T) {
	dir := smallMount(t)
	synctest.Test(t, func(t *testing.T) {
		const away = "n3"
		c := newCluster(t, 3, func(cfg *Config) { cfg.FlushBytes = 64 << 10 })
		c.dirs[away] = dir + "/n3"
		c.open("n1", "n2", away)
		n := c.leader()
		if n.cfg.NodeID == away {
			if err := n.TransferLeadership(t.Context()); err != nil {
				t.Fatal(err)
			}
			n = c.leader()
		}
		l := startLoad(t, n)
		ingestUntil(c, n, l, "flush of the follower", func() bool { return c.nodes[away].Status().SnapshotIndex > 1 })
		c.agree()
		c.isolate(away)
		n = c.leader()
		if n.cfg.NodeID == away {
			t.Fatal("the isolated node leads")
		}
		f := c.nodes[away]
		end, pending := f.Status().LastIndex, f.store.Pending()
		time.Sleep(5 * time.Second) // until the leader keeps no more log for it
		ingestUntil(c, n, l, "log cut", func() bool { first, err := n.logs.FirstIndex(); return err == nil && first > end+1 })
		filler := dir + "/filler"
		if err := os.WriteFile(filler, make([]byte, 10<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		c.rejoin(away)
		c.eventually("a snapshot without room", func() bool { return f.Status().ReceiveError != "" })
		for _, want := range []string{"bytes free", "are needed", "make room or enlarge it (advised)", ErrNoRoomToReceive.Error()} {
			if got := f.Status().ReceiveError; !strings.Contains(got, want) {
				t.Errorf("status says %q, not %q", got, want)
			}
		}
		if at := f.Status().LastIndex; at != end || f.store.Pending() != pending {
			t.Errorf("the follower ends at %d with %d pending, ended at %d with %d", at, f.store.Pending(), end, pending)
		}
		if err := f.store.Check(); err != nil {
			t.Error(err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		c.agree()
		if got := f.Status(); got.ReceiveError != "" || got.SnapshotIndex <= end {
			t.Errorf("%+v once there is room", got)
		}
	})
}

// What was delivered of a burst gives its room back soon, though no more than its Acks is written to the log.
func TestNode_flushesWhenMuchHasDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, count = 1 << 20, 2 * muchDead >> 20
		c := newCluster(t, 1, func(cfg *Config) { cfg.FlushBytes = count * size })
		c.open("n1")
		n := c.leader()
		l := startLoad(t, n)
		for range count {
			must(t, n, l.batch(1, size))
		}
		must(t, n, l.batch(1, size)) // the Backlog is full
		c.eventually("everything is in segments", func() bool { return n.store.Stats().SegmentBytes > count*size })
		full := n.store.Stats().SegmentBytes

		must(t, n, raftfsm.Ack{Runs: killed(1, count/4)})
		time.Sleep(4 * lookEvery)
		if left := n.store.Stats().SegmentBytes; left != full {
			t.Errorf("%d of %d bytes are left with a quarter dead: nothing was due", left, full)
		}
		must(t, n, raftfsm.Ack{Runs: killed(count/4+1, count-1)})
		time.Sleep(2*lookEvery + 10*time.Second) // of merging
		if left := n.store.Stats().SegmentBytes; left > 3*size {
			t.Errorf("%d of %d bytes are left with next to nothing alive", left, full)
		}
	})
}
