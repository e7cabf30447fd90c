package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/storage"
)

// damages are what a disk does to bytes that nobody writes.
var damages = []struct {
	name string
	do   func(random *rand.Rand, content []byte, at int) []byte
	// whole says that nothing is left of what was there.
	whole bool
}{
	{"a flipped bit", func(random *rand.Rand, content []byte, at int) []byte {
		content[at] ^= 1 << random.IntN(8)
		return content
	}, false},
	{"a sector of zeros", func(_ *rand.Rand, content []byte, at int) []byte {
		clear(content[at/512*512 : min(at/512*512+512, len(content))])
		return content
	}, false},
	{"a page of something else", func(random *rand.Rand, content []byte, at int) []byte {
		for i := at / 4096 * 4096; i < min(at/4096*4096+4096, len(content)); i++ {
			content[i] = byte(random.Uint32())
		}
		return content
	}, true},
	{"its end cut off", func(_ *rand.Rand, content []byte, at int) []byte { return content[:at] }, false},
}

// Whatever is damaged: `inspect data` and a start find it, or it changes nothing that the node
// knows, has promised, or tells. CARILLON_DAMAGES is how many damages each form of a directory
// suffers.
func TestDamage_isFoundOrChangesNothing(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 8
	}
	if text := os.Getenv("CARILLON_DAMAGES"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	forms(t, func(t *testing.T, kind string, level storage.Level) {
		p := newPatient(t, kind, level)
		random := rand.New(rand.NewPCG(uint64(level), uint64(len(kind))))
		counts := map[string]int{}
		for range rounds {
			path := p.files[random.IntN(len(p.files))]
			damage := damages[random.IntN(len(damages))]
			content := bytes.Clone(p.contents[path])
			at := place(random, content)
			if damage.whole && endsLog(path, content, at) {
				continue
			}
			damaged := damage.do(random, content, at)
			if bytes.Equal(damaged, p.contents[path]) {
				continue
			}
			p.write(path, damaged)
			what := fmt.Sprintf("%s at byte %d of %s", damage.name, at, path)
			counts[p.examine(what, path)]++
			p.restore()
		}
		t.Logf("%v", counts)
		if counts["found"]+counts["found when read"] < rounds/4 {
			t.Errorf("few damages were found: %v", counts)
		}
	})
}

// endsLog reports whether the page lies at the end of what was written to a segment of the log. Where nothing is left of it that
// passes for an append which a crash has cut off: see DESIGN.md of raftlog.
func endsLog(path string, content []byte, at int) bool {
	return strings.HasSuffix(path, ".wal") && at/4096*4096+4096 >= len(bytes.TrimRight(content, "\x00"))
}

// place picks a byte, seldom one of the zeros that a file has to spare.
func place(random *rand.Rand, content []byte) (at int) {
	for range 20 {
		at = random.IntN(len(content))
		if around := content[at/64*64 : min(at/64*64+64, len(content))]; bytes.Count(around, []byte{0}) < len(around) {
			break
		}
	}
	return at
}

// A patient is a data directory that is damaged and restored.
type patient struct {
	t        *testing.T
	c        *cluster
	dir      string
	files    []string // below dir
	contents map[string][]byte
	sound    *Inspection
	digest   [32]byte
	bare     map[string]bool // files whose values have no checksum, at LevelOne
}

func newPatient(t *testing.T, kind string, level storage.Level) *patient {
	c := newCluster(t, 1, func(cfg *Config) { cfg.Log = kind })
	c.writeData(level)
	p := &patient{t: t, c: c, dir: c.dirs["n1"], contents: map[string][]byte{}}
	c.close("n1")
	if level > storage.LevelOne { // a vote at this level
		c.open("n1")
		c.leader()
		c.close("n1")
	}
	if level == storage.LevelOne {
		p.bare = map[string]bool{"node.json": true, "raft/stable.db": true, "raft/boltdb/log.db": true}
	}
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(p.dir, path)
		content, err := os.ReadFile(path)
		p.contents[name] = content
		if d.Name() != "reserve" {
			p.files = append(p.files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.sound, err = Inspect(p.dir); err != nil || len(p.sound.Damages) > 0 {
		t.Fatalf("%v: %+v", err, p.sound)
	}
	n, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	p.digest = digest(t, n.store)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	p.restore()
	return p
}

func (p *patient) write(name string, content []byte) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) restore() {
	p.t.Helper()
	if err := os.RemoveAll(p.dir); err != nil {
		p.t.Fatal(err)
	}
	for name, content := range p.contents {
		p.write(name, content)
	}
}

// open starts the node and waits until it leads.
func (p *patient) open() (*Node, error) {
	n, err := Open(p.t.Context(), p.c.config("n1"))
	if err != nil {
		return nil, err
	}
	for give := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
		err := n.Barrier(ctx)
		cancel()
		if err == nil {
			return n, nil
		}
		if failure := n.failureNow(); failure != nil || time.Now().After(give) {
			return nil, errors.Join(failure, err, n.Close())
		}
	}
}

// namesOthers reports whether the file tells of others: where they contradict each other, nobody knows which of them is wrong.
func namesOthers(file string) bool {
	return strings.HasSuffix(file, "manifest.db") || strings.HasSuffix(file, "wal-meta.db")
}

// examine says whether the damage was found, or is harmless.
func (p *patient) examine(what, file string) string {
	p.t.Helper()
	found, err := Inspect(p.dir)
	if err != nil {
		p.t.Errorf("%s: not inspected: %v", what, err)
		return "not inspected"
	}
	sound := len(found.Damages) == 0
	if names := func(d storage.Damage) bool { return d.File == filepath.Join(p.dir, file) }; !sound && !p.bare[file] && !namesOthers(file) && !slices.ContainsFunc(found.Damages, names) {
		p.t.Errorf("%s: found as %+v", what, found.Damages)
	}
	found.LeftOver, found.Log.LeftOver, found.Schedule.LeftOver = p.sound.LeftOver, p.sound.Log.LeftOver, p.sound.Schedule.LeftOver
	if len(found.Log.Segments) == len(p.sound.Log.Segments) { // what a file has to spare
		for i := range found.Log.Segments {
			found.Log.Segments[i].Bytes = p.sound.Log.Segments[i].Bytes
		}
		found.Log.Unfinished = p.sound.Log.Unfinished
	}
	if sound && p.bare[file] {
		return "not covered by a checksum"
	}
	if sound && !reflect.DeepEqual(found, p.sound) {
		p.t.Errorf("%s: found sound as\n%+v %+v %+v, was\n%+v %+v %+v", what, found.Identity, found.Log, found.Schedule, p.sound.Identity, p.sound.Log, p.sound.Schedule)
	}
	n, err := p.open()
	if err != nil {
		if !isDamage(err) && !p.bare[file] {
			p.t.Errorf("%s: a start says %v", what, err)
		}
		if sound {
			p.t.Errorf("%s: found sound, and does not start: %v", what, err)
		}
		return "found"
	}
	defer n.Close()
	got, err := n.store.Digest()
	switch {
	case p.bare[file]:
		return "not covered by a checksum"
	case err == nil && got != p.digest:
		p.t.Errorf("%s: it has become another schedule (found: %v)", what, found.Damages)
	case err != nil && sound:
		p.t.Errorf("%s: found sound, and cannot be read: %v", what, err)
	case err != nil:
		return "found when read"
	case !sound:
		return "found by inspect alone"
	}
	return "harmless"
}

func isDamage(err error) bool {
	for _, kind := range []error{raftfsm.ErrDamaged, storage.ErrCorrupt, member.ErrForeignData, member.ErrMembers, member.ErrOtherLog} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
