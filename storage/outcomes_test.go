package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// Whoever is refused often, or asks with many keys, has none of the others forgotten, also after a start.
func TestOutcomes_ofMessagesAreNotForgottenForRefusalsAndKeys(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	s.RaiseLevel(LevelFour)
	s.KeepOutcomes(outcomes.Keep{For: 1000, Count: 20})
	key, of := name.Of("keys", "k"), func(id int) name.Hash { return name.Of("orders.delay", fmt.Sprint(id)) }
	s.End(outcomes.Outcome{Name: of(0), Kind: outcomes.Cancelled, Seq: 7})
	s.End(outcomes.Outcome{Name: key, Kind: outcomes.Answered, Seq: 8, By: 9})
	require := func() {
		t.Helper()
		for i := range 1000 {
			s.End(outcomes.Outcome{Name: of(i % 50), Kind: outcomes.RefusedRecord, Offset: int64(i)})
		}
		if _, ok := s.Answered(key); !ok {
			t.Error("the answer to the key is forgotten for what was refused")
		}
		for i := range 9 {
			s.End(outcomes.Outcome{Name: name.Of("other keys", fmt.Sprint(i)), Kind: outcomes.Answered})
		}
		if o, ok := s.Outcome("orders.delay", "0"); !ok || o.Seq != 7 || s.OutcomesSince() != 0 {
			t.Errorf("what became of the message is %+v (%t), known since %d", o, ok, s.OutcomesSince())
		}
	}
	require()
	s.Applied(1)
	flush(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir)
	require()
}

// What has ended is known for as long as the schedule's own time says, and is part of what all
// nodes must agree on.
func TestOutcomes_areForgottenByTheSchedulesTime(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	before := digest(t, s)
	s.KeepOutcomes(outcomes.Keep{For: 1000, Count: 10})
	kept := digest(t, s)
	s.SetTime(5000)
	timed := digest(t, s)
	s.End(outcomes.Outcome{Name: name.Of("orders.delay", "a"), Kind: outcomes.Cancelled, Seq: 7, Due: 9000, At: 5000, Target: "orders"})
	ended := digest(t, s)
	if before == kept || timed == ended {
		t.Error("the digest does not tell what is kept, or what has ended")
	}
	if o, ok := s.Outcome("orders.delay", "a"); !ok || o.Seq != 7 || o.Target != "orders" || len(s.Life("orders.delay", "a")) != 1 {
		t.Errorf("outcome %+v (%t)", o, ok)
	}
	s.SetTime(6000)
	if _, ok := s.Outcome("orders.delay", "a"); !ok || s.OutcomesSince() != 0 {
		t.Error("it was forgotten after a second, not later")
	}
	s.SetTime(6001)
	if _, ok := s.Outcome("orders.delay", "a"); ok || s.OutcomesSince() != 5001 {
		t.Errorf("it is known (%t) after more than a second; all is known since %d", ok, s.OutcomesSince())
	}
}

// ended is a store at LevelThree with several chunks of outcomes on disk.
func ended(t *testing.T, dir string) (*Store, *model) {
	t.Helper()
	s, m := openStore(t, dir), newModel()
	script(s, m, operation{Level: LevelThree, Time: 5000, Accept: entries(20, 0, 1, 10), End: ends(2500, 1, 5000)})
	flush(t, s, 1)
	return s, m
}

// rootOf is the page that all of what the outcomes have in the manifest hangs on: bbolt gives it
// another with anything that is written there.
func rootOf(t *testing.T, s *Store) (root uint64) {
	t.Helper()
	err := s.manifest.db.View(func(tx *bbolt.Tx) error {
		root = uint64(tx.Bucket(outcomesBucket).Root())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestOutcomes_areNotWrittenByAFlushThatEndsNone(t *testing.T) {
	s, m := ended(t, t.TempDir())
	before := rootOf(t, s)
	script(s, m, operation{Time: 6000, Accept: entries(20, 0, 1, 10), Kill: []SeqRun{{3, 9}}})
	flush(t, s, 2)
	mergeAll(t, s)
	if rootOf(t, s) != before {
		t.Error("they were written")
	}
	script(s, m, operation{End: ends(1, 1, 6000)})
	flush(t, s, 3)
	if rootOf(t, s) == before {
		t.Error("the test does not see that they are written")
	}
	requireEqual(t, s, m)
}

// At lower levels nothing of them is on disk, and the raise begins with what there is.
func TestOutcomes_comeToTheDiskWithTheLevel(t *testing.T) {
	dir := t.TempDir()
	s, m := raised(t, dir)
	err := s.manifest.db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(outcomesBucket) != nil {
			t.Error("there are outcomes at LevelTwo")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	script(s, m, operation{Level: LevelThree})
	flush(t, s, 2)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
	script(s, m, operation{Time: 5000, End: ends(100, 1, 5000), Keep: &outcomes.Keep{For: 1000, Count: 50}})
	named := m.clone()
	flush(t, s, 3)
	script(s, m, operation{Time: 7000, End: ends(3, 1, 7000)})
	requireReopens(t, crash(t, dir, t.TempDir()), named, 1)
}

// A commit that has to begin the file anew takes all of them along.
func TestOutcomes_areTakenIntoAManifestThatIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	s, m := ended(t, dir)
	script(s, m, operation{End: ends(10, 1, 6000)})
	flushWith(t, s, func(next *contents) error {
		return errors.Join(write(s.manifest.db, next, &s.manifest.current), s.manifest.recover(next, errors.New("sync failed")))
	})
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
	script(s, m, operation{End: ends(700, 1, 6000)})
	flush(t, s, 3)
	requireReopens(t, crash(t, dir, t.TempDir()), m, 1)
}

// Those of before, which no log led to, are gone with the rest.
func TestReceive_putsOutcomesInThePlaceOfOthers(t *testing.T) {
	from, sent := ended(t, t.TempDir())
	script(from, sent, operation{Keep: &outcomes.Keep{For: 500, Count: 2000}, Time: 5100, End: ends(300, 40, 5100)})
	flush(t, from, 2)
	for name, others := range map[string]int{"none": 0, "fewer": 200, "more": 9000} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			to, m := openStore(t, dir), newModel()
			script(to, m, operation{Level: LevelThree, End: ends(others, 7, 1)})
			flush(t, to, 1)
			if err := transfer(from, to); err != nil {
				t.Fatal(err)
			}
			requireEqual(t, to, sent)
			requireReopens(t, crash(t, dir, t.TempDir()), sent, 1)
			if digest(t, to) != digest(t, from) {
				t.Error("digests differ")
			}
			after := sent.clone()
			script(to, after, operation{End: ends(1500, 1, 6000)})
			flush(t, to, 3)
			requireReopens(t, crash(t, dir, t.TempDir()), after, 1)
		})
	}
}

func TestReceive_refusesDamageToTheOutcomesOfAStream(t *testing.T) {
	from, _ := ended(t, t.TempDir())
	meta, size, rc, err := from.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	stream, err := io.ReadAll(rc)
	if err != nil || int64(len(stream)) != size {
		t.Fatalf("stream of %d bytes, announced %d, error %v", len(stream), size, err)
	}
	chunks := from.manifest.current.outcomes.NewReader().Size
	begin := streamPrefix + int(binary.BigEndian.Uint32(stream[len(streamMagic):])) + int(from.manifest.current.alive.BaseSize()) + 4
	to := openStore(t, t.TempDir())
	for at := begin; at < begin+int(chunks)+4; at += 397 {
		damage := bytes.Clone(stream)
		damage[at] ^= 4
		if err := receive(to, meta, bytes.NewReader(damage)); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if err := receive(to, meta, bytes.NewReader(stream[:at])); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", at, err)
		}
	}
	requireEqual(t, to, newModel())
	requireNoStray(t, to)
}

// Damage is told with the place, by a start and by an inspection, and the rest is inspected.
func TestOpen_reportsDamageToTheOutcomes(t *testing.T) {
	dir := t.TempDir()
	s, m := ended(t, dir)
	var values [][2]int // offset and length
	err := s.manifest.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(outcomesBucket).ForEach(func(_, value []byte) error {
			values = append(values, [2]int{int(disk.Offset(tx.DB(), value)), len(value)})
			return nil
		})
	})
	if err = errors.Join(err, s.Close()); err != nil || len(values) != 5 {
		t.Fatalf("values %v, error %v", values, err)
	}
	path := filepath.Join(dir, manifestName)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range values {
		for at := value[0]; at < value[0]+value[1]; at += max(1, value[1]/20) {
			flip(t, path, at, 1<<(at%8))
			requireDamage(t, dir, path, int64(value[0]))
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, size := range []int{value[0], value[0] + value[1]/2} {
			if err := os.WriteFile(path, content[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			if err := readEverything(t, dir, m); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("cut to %d bytes: %v", size, err)
			}
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := readEverything(t, dir, m); err != nil {
		t.Fatal(err)
	}
	found, err := Inspect(dir)
	if err != nil || len(found.Damages) != 0 || found.Outcomes != 2500 {
		t.Errorf("inspected %+v (error %v)", found, err)
	}
}

func requireDamage(t *testing.T, dir, path string, offset int64) {
	t.Helper()
	var damage *Damage
	_, err := Open(Config{Dir: dir})
	if !errors.As(err, &damage) || !errors.Is(err, ErrCorrupt) || damage.File != path || damage.Offset != offset {
		t.Errorf("opened with %v, want damage at byte %d of %s", err, offset, path)
	}
	found, err := Inspect(dir)
	if err != nil || len(found.Damages) != 1 || found.Damages[0].File != path || found.Damages[0].Offset != offset || len(found.Segments) != 1 {
		t.Errorf("inspected %+v (error %v)", found, err)
	}
}

// Each chunk and the head must be there, and none besides.
func TestOpen_missesAChunkOfTheOutcomes(t *testing.T) {
	dir := t.TempDir()
	s, m := ended(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change := func(by func(bucket *bbolt.Bucket) error) {
		t.Helper()
		db, err := bbolt.Open(filepath.Join(dir, manifestName), 0o600, nil)
		if err == nil {
			err = errors.Join(db.Update(func(tx *bbolt.Tx) error { return by(tx.Bucket(outcomesBucket)) }), db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var content []byte
	for _, key := range [][]byte{headKey, chunkKey(0), chunkKey(1), chunkKey(1 << 56), chunkKey(2 << 56)} {
		change(func(bucket *bbolt.Bucket) error {
			content = bytes.Clone(bucket.Get(key))
			return bucket.Delete(key)
		})
		if err := readEverything(t, dir, m); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), manifestName) {
			t.Errorf("without %q: %v", key, err)
		}
		if found, err := Inspect(dir); err != nil || len(found.Damages) != 1 || found.Damages[0].File != filepath.Join(dir, manifestName) {
			t.Errorf("inspected %+v (error %v)", found, err)
		}
		change(func(bucket *bbolt.Bucket) error { return bucket.Put(key, content) })
	}
	change(func(bucket *bbolt.Bucket) error { return bucket.Put(chunkKey(2), content) })
	if err := readEverything(t, dir, m); !errors.Is(err, ErrCorrupt) {
		t.Errorf("with one too many: %v", err)
	}
	change(func(bucket *bbolt.Bucket) error { return bucket.Delete(chunkKey(2)) })
	if err := readEverything(t, dir, m); err != nil {
		t.Errorf("with all back: %v", err)
	}
}

// A flush reads pages that Apply goes on in, and anyone may ask meanwhile.
func TestOutcomes_areReadWhileTheyComeAndAreFlushed(t *testing.T) {
	s, m := ended(t, t.TempDir())
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for asked := 0; ; asked++ {
			select {
			case <-stop:
				return
			default:
			}
			id := string(rune('a' + asked%26))
			if _, ok := s.Outcome("orders.delay", id); !ok || len(s.Life("orders.delay", id)) == 0 {
				t.Errorf("nothing is known of %s", id)
				return
			}
		}
	})
	for range 12 {
		next := m.state.AppliedIndex + 1
		script(s, m, operation{Time: int64(5000 + next), Keep: &outcomes.Keep{For: 1000, Count: 3000}, End: ends(700, next, int64(5000+next))})
		f := s.Freeze()
		var flushed sync.WaitGroup
		flushed.Go(func() {
			if err := f.Flush(SnapshotMeta{Index: next, Term: 1}); err != nil {
				t.Error(err)
			}
		})
		script(s, m, operation{End: ends(900, next, int64(5000+next))})
		flushed.Wait()
	}
	close(stop)
	readers.Wait()
	requireEqual(t, s, m)
}

// replica is a node's store, with a life of its own.
type replica struct {
	t     *rapid.T
	dir   string
	store *Store
}

func (r *replica) open() {
	s, err := Open(Config{Dir: r.dir, MergeWidth: 2})
	if err != nil {
		r.t.Fatalf("Open: %v", err)
	}
	r.store = s
}

// catchUp applies the log that the disk does not have.
func (r *replica) catchUp(log []operation) {
	for i := r.store.ManifestMeta().Index; i < uint64(len(log)); i++ {
		applyTo(r.store, i+1, log[i])
	}
}

// TestOutcomes_areAlikeOnTwoReplicas applies one log to two stores, each of which flushes, merges,
// starts again and takes the other's snapshot when it happens to: after each step both answer as
// the model does.
func TestOutcomes_areAlikeOnTwoReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := memoryDir(t)
		defer os.RemoveAll(root)
		log, m := []operation{{Level: LevelThree}}, newModel()
		m.apply(1, log[0])
		var both [2]*replica
		for i := range both {
			both[i] = &replica{t: t, dir: filepath.Join(root, fmt.Sprint(i))}
			both[i].open()
			defer func() { both[i].store.Close() }()
			both[i].catchUp(log)
		}
		drawn := func(t *rapid.T) (of, other *replica) {
			i := rapid.IntRange(0, 1).Draw(t, "replica")
			return both[i], both[1-i]
		}
		t.Repeat(map[string]func(*rapid.T){
			"end": func(t *rapid.T) {
				log = append(log, drawEnd(t, m))
				m.apply(uint64(len(log)), log[len(log)-1])
				for _, r := range both {
					applyTo(r.store, uint64(len(log)), log[len(log)-1])
				}
			},
			"accept": func(t *rapid.T) {
				log = append(log, operation{Accept: drawEntries(t), Kill: drawRuns(t, m.state.NextSeq), Time: m.state.Time + 100})
				m.apply(uint64(len(log)), log[len(log)-1])
				for _, r := range both {
					applyTo(r.store, uint64(len(log)), log[len(log)-1])
				}
			},
			"flush": func(t *rapid.T) {
				r, _ := drawn(t)
				flush(t, r.store, uint64(len(log)))
			},
			"release": func(t *rapid.T) {
				r, _ := drawn(t)
				r.store.Freeze().Release()
			},
			"merge": func(t *rapid.T) {
				r, _ := drawn(t)
				mergeAll(t, r.store)
			},
			"restart": func(t *rapid.T) {
				r, _ := drawn(t)
				r.store.Close()
				r.open()
				r.catchUp(log)
			},
			"receive": func(t *rapid.T) {
				r, other := drawn(t)
				if other.store.ManifestMeta().Index < r.store.ManifestMeta().Index {
					return
				}
				if err := transfer(other.store, r.store); err != nil {
					t.Fatalf("transfer: %v", err)
				}
				r.catchUp(log)
			},
			"": func(t *rapid.T) {
				for _, r := range both {
					requireEqual(t, r.store, m)
				}
				if digest(t, both[0].store) != digest(t, both[1].store) {
					t.Fatal("digests differ")
				}
			},
		})
	})
}
