package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/raftlog"
	"github.com/carillonmq/carillon/storage"
)

// writeData has a node of one write a data directory with all there is: segments of the
// log and of the schedule, an alive-set with changes, a claim, and entries that are not
// in the schedule yet. In a bubble only.
func (c *cluster) writeData(level storage.Level) {
	c.t.Helper()
	c.open("n1")
	n := c.leader()
	if level > storage.LevelOne {
		must(c.t, n, raftfsm.RaiseLevel{Time: 1, Level: level})
	}
	l := startLoad(c.t, n)
	for round := range uint64(3) {
		for range 4 {
			must(c.t, n, l.batch(100, 900))
		}
		must(c.t, n, raftfsm.Ack{Time: l.next, Runs: killed(400*round+1, 400*round+50)})
		if err := n.running().Snapshot().Error(); err != nil {
			c.t.Fatal(err)
		}
	}
	named := l.batch(50, 900)
	if level >= storage.LevelThree {
		for i := range named.Parts[0].Entries {
			e := &named.Parts[0].Entries[i]
			e.Topic, e.ID, e.Expires = "a.delay", fmt.Sprint("id-", i), e.Due+1000
		}
	}
	must(c.t, n, named)
	must(c.t, n, raftfsm.Ack{Time: l.next, Runs: killed(51, 55)})
}

// forms are the ways in which a node writes.
func forms(t *testing.T, test func(t *testing.T, kind string, level storage.Level)) {
	for _, kind := range []string{raftlog.WAL, raftlog.BoltDB} {
		for _, level := range []storage.Level{storage.LevelOne, storage.LevelTwo, storage.LevelFour} {
			t.Run(fmt.Sprintf("%s at level %d", kind, level), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test(t, kind, level) })
			})
		}
	}
}

func TestInspect_tellsWhatThereIsAndChangesNothing(t *testing.T) {
	forms(t, func(t *testing.T, kind string, level storage.Level) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.Log = kind })
		c.writeData(level)
		want, manifest := c.nodes["n1"].Status(), c.nodes["n1"].store.ManifestMeta()
		c.close("n1")
		stray := filepath.Join(c.dirs["n1"], scheduleDir, "segments", "00000000000000ff.seg")
		if err := os.WriteFile(stray, []byte("half a segment"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := filesIn(t, c.dirs["n1"])
		found, err := Inspect(c.dirs["n1"])
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Damages) > 0 || len(found.LeftOver) != 1 || found.LeftOver[0] != stray {
			t.Errorf("damages %v, left over %v", found.Damages, found.LeftOver)
		}
		if found.Identity.NodeID != "n1" || found.Log.Last != want.LastIndex || found.Log.Term != want.Term || found.Schedule.Meta.Index != manifest.Index {
			t.Errorf("inspected %+v %+v %+v, want %+v", found.Identity, found.Log, found.Schedule, want)
		}
		if s := found.Schedule; s.State.Pending != 1200-150 || s.State.Level != level || s.NextDue != 1_000_000+50*7919 || found.Replayed != 2 {
			t.Errorf("the schedule has %+v, %d commands are to be applied", s, found.Replayed)
		}
		if after := filesIn(t, c.dirs["n1"]); !maps.Equal(before, after) {
			t.Errorf("the files were %v and are %v", before, after)
		}
	})
}

func TestInspect_refusesTheDirectoryOfANodeThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.open("n1")
		c.leader()
		if _, err := Inspect(c.dirs["n1"]); !errors.Is(err, storage.ErrInUse) {
			t.Errorf("inspected: %v", err)
		}
	})
}

func TestInspect_refusesWhatIsNoDataDirectory(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "nowhere")} {
		if _, err := Inspect(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("inspected %s: %v", dir, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("%s holds %v now", dir, entries)
		}
	}
}

// filesIn describes all files below dir by content, mode and time of the last change.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[path] = fmt.Sprint(info.Mode(), info.ModTime())
		if d.IsDir() {
			return nil
		}
		content, err := os.ReadFile(path)
		files[path] += fmt.Sprintf(" %x", sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
