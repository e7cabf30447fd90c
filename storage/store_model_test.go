package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
	"pgregory.net/rapid"
)

// TestStore_equalsModel runs random scripts of everything a node does to its
// store, power cuts between steps included, and compares with a map after each.
func TestStore_equalsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := memoryDir(t)
		h := &history{t: t, root: dir, models: []*model{newModel()}}
		defer h.close()
		h.open(filepath.Join(dir, "0"))
		if rapid.Bool().Draw(t, "ids from the start") {
			h.log(operation{Accept: drawEntries(t), Level: LevelThree})
		}
		t.Repeat(map[string]func(*rapid.T){
			"accept":   func(t *rapid.T) { h.log(operation{Accept: drawEntriesAt(t, h.model().state.Level)}) },
			"kill":     func(t *rapid.T) { h.log(operation{Kill: drawRuns(t, h.model().state.NextSeq)}) },
			"values":   func(t *rapid.T) { h.log(drawValues(t)) },
			"raise":    func(t *rapid.T) { h.log(operation{Level: drawLevel(t)}) },
			"open":     func(t *rapid.T) { h.log(drawOpening(t, h.model())) },
			"end":      func(t *rapid.T) { h.log(drawEnd(t, h.model())) },
			"freeze":   func(*rapid.T) { h.freeze() },
			"flush":    func(*rapid.T) { h.flush() },
			"release":  func(*rapid.T) { h.release() },
			"merge":    func(*rapid.T) { mergeAll(t, h.store) },
			"fold":     func(*rapid.T) { h.fold() },
			"reopen":   func(*rapid.T) { h.reopen() },
			"cut":      func(*rapid.T) { h.cut() },
			"transfer": func(*rapid.T) { h.transfer() },
			"reload":   func(*rapid.T) { h.reload() },
			"":         func(t *rapid.T) { requireEqual(t, h.store, h.model()) },
		})
	})
}

// TestReplicas_agree applies one log to two stores, of which each flushes, merges, restarts and
// receives the other's snapshot at moments of its own. At every index both find the same by ids,
// and have the same digest.
func TestReplicas_agree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := memoryDir(t)
		defer os.RemoveAll(dir)
		var stores [2]*Store
		for i := range stores {
			var err error
			if stores[i], err = Open(Config{Dir: filepath.Join(dir, fmt.Sprint(i)), MergeWidth: 2, MaxSegments: 3}); err != nil {
				t.Fatal(err)
			}
			defer func() { stores[i].Close() }()
		}
		m := newModel()
		var log []operation
		for index := uint64(1); index <= uint64(rapid.IntRange(1, 40).Draw(t, "operations")); index++ {
			op := drawOperation(t, m)
			killed := m.apply(index, op)
			log = append(log, op)
			for i, s := range stores {
				if got := applyTo(s, index, op); got != killed {
					t.Fatalf("store %d killed %d, want %d", i, got, killed)
				}
				stores[i] = disturb(t, s, stores[1-i], log)
			}
			for _, s := range stores {
				requireLookups(t, s, m)
			}
			if digest(t, stores[0]) != digest(t, stores[1]) {
				t.Fatalf("digests differ at index %d", index)
			}
		}
		for _, s := range stores {
			requireEqual(t, s, m)
		}
	})
}

func drawOperation(t *rapid.T, m *model) operation {
	switch rapid.SampledFrom([]string{"entries", "entries", "entries", "open", "raise"}).Draw(t, "operation") {
	case "open":
		return drawOpening(t, m)
	case "raise":
		return operation{Level: drawLevel(t)}
	default:
		return operation{Accept: drawEntriesAt(t, m.state.Level), Kill: drawRuns(t, m.state.NextSeq+3)}
	}
}

// disturb does to a store what is a node's own business, and returns the one to go on with.
func disturb(t *rapid.T, s, other *Store, log []operation) *Store {
	replay := func(s *Store) {
		for at := s.ManifestMeta().Index; at < uint64(len(log)); at++ {
			applyTo(s, at+1, log[at])
		}
	}
	switch rapid.SampledFrom([]string{"", "flush", "flush", "release", "merge", "restart", "receive"}).Draw(t, "disturb") {
	case "flush":
		flush(t, s, uint64(len(log)))
	case "release":
		s.Freeze().Release()
	case "merge":
		mergeAll(t, s)
	case "restart":
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		replay(again)
		return again
	case "receive":
		if other.ManifestMeta().Index < s.ManifestMeta().Index {
			return s
		}
		if err := transfer(other, s); err != nil {
			t.Fatal(err)
		}
		replay(s)
	}
	return s
}

// history is a store, the log it was fed, and the model after each log index.
type history struct {
	t      *rapid.T
	root   string
	copies int
	dir    string
	store  *Store
	ops    []operation // ops[i] has index i+1
	models []*model    // models[i] is after index i
	frozen *Frozen
	at     int // index of frozen
}

func (h *history) model() *model { return h.models[len(h.models)-1] }

func (h *history) index() uint64 { return uint64(len(h.ops)) }

func (h *history) newDir() string {
	h.copies++
	return filepath.Join(h.root, fmt.Sprint(h.copies))
}

func (h *history) open(dir string) {
	s, err := Open(Config{Dir: dir, MergeWidth: 2, MaxSegments: 3})
	if err != nil {
		h.t.Fatalf("Open: %v", err)
	}
	h.dir, h.store, h.frozen = dir, s, nil
	h.replay()
}

// replay compares the store with the model of the manifest's index and applies
// the log from there, as a node does.
func (h *history) replay() {
	index := h.store.ManifestMeta().Index
	requireEqual(h.t, h.store, h.models[index])
	for i := index; i < h.index(); i++ {
		applyTo(h.store, i+1, h.ops[i])
	}
}

func (h *history) log(op operation) {
	next := h.model().clone()
	h.ops = append(h.ops, op)
	want := next.apply(h.index(), op)
	h.models = append(h.models, next)
	if got := applyTo(h.store, h.index(), op); got != want {
		h.t.Fatalf("killed %d, want %d", got, want)
	}
}

func (h *history) freeze() {
	if h.frozen == nil {
		h.frozen, h.at = h.store.Freeze(), len(h.ops)
	} else if err := h.store.Freeze().Flush(SnapshotMeta{Index: h.index()}); !errors.Is(err, ErrFlushing) {
		h.t.Fatalf("second flush: %v", err)
	}
}

func (h *history) flush() {
	if h.frozen == nil {
		return
	}
	if err := h.frozen.Flush(SnapshotMeta{Index: uint64(h.at), Term: 1}); err != nil {
		h.t.Fatalf("Flush: %v", err)
	}
	h.frozen.Release()
	h.frozen = nil
	if got := h.store.ManifestMeta().Index; got != uint64(h.at) {
		h.t.Fatalf("manifest index %d, want %d", got, h.at)
	}
}

func (h *history) release() {
	if h.frozen != nil {
		h.frozen.Release()
		h.frozen = nil
	}
}

func (h *history) reopen() {
	if err := h.store.Close(); err != nil {
		h.t.Fatalf("Close: %v", err)
	}
	h.open(h.dir)
}

// cut goes on with the directory as a process killed now leaves it.
func (h *history) cut() {
	copied := crash(h.t, h.dir, h.newDir())
	h.store.Close()
	h.open(copied)
}

// fold writes a new base although none is due.
func (h *history) fold() {
	from := h.store.pinToMerge()
	defer segment.ReleaseAll(from.segments)
	if from.stored.ID == 0 {
		return
	}
	if err := h.store.fold(context.Background(), &from); err != nil {
		h.t.Fatalf("fold: %v", err)
	}
}

// transfer goes on with another store that had a past of its own.
func (h *history) transfer() {
	other, err := Open(Config{Dir: h.newDir(), MergeWidth: 2, MaxSegments: 3})
	if err != nil {
		h.t.Fatalf("Open: %v", err)
	}
	const past = 0 // no later than what comes
	applyTo(other, past, operation{Accept: entries(3, 5, 1, 10)})
	flush(h.t, other, past)
	stale := other.Freeze()
	if err := transfer(h.store, other); err != nil {
		h.t.Fatalf("transfer: %v", err)
	}
	if err := stale.Flush(SnapshotMeta{Index: 1 << 40}); !errors.Is(err, ErrGeneration) {
		h.t.Fatalf("flush begun before a received snapshot: %v", err)
	}
	stale.Release()
	h.store.Close()
	h.dir = filepath.Join(h.root, fmt.Sprint(h.copies))
	h.store, h.frozen = other, nil
	h.replay()
}

// reload drops memory, as a restart inside the process does.
func (h *history) reload() {
	if err := h.store.Reload(); err != nil {
		h.t.Fatalf("Reload: %v", err)
	}
	if h.frozen != nil {
		if err := h.frozen.Flush(SnapshotMeta{Index: h.index()}); !errors.Is(err, ErrGeneration) {
			h.t.Fatalf("flush begun before Reload: %v", err)
		}
		h.release()
	}
	h.replay()
}

// memoryDir is a directory where a sync costs nothing, if the machine has one.
func memoryDir(t testingT) string {
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "storage")
	if err != nil {
		t.Fatalf("make directory: %v", err)
	}
	return dir
}

func (h *history) close() {
	h.store.Close()
	os.RemoveAll(h.root)
}

func drawEntries(t *rapid.T) []Entry {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Entry {
		return Entry{
			Due:    rapid.SampledFrom([]int64{-1 << 63, -1, 0, 1, 1000, 1001, 1002, 2_500_000_000_000, 1<<63 - 1}).Draw(t, "due"),
			Target: rapid.SampledFrom([]string{"", "a", "orders", "payments"}).Draw(t, "target"),
			Body:   drawBody(t),
		}
	}), 0, 12).Draw(t, "entries")
}

// drawEntriesAt draws what entries may have besides at LevelThree.
func drawEntriesAt(t *rapid.T, level Level) []Entry {
	es := drawEntries(t)
	if level < LevelThree {
		return es
	}
	for i := range es {
		es[i].Topic = rapid.SampledFrom(modelTopics).Draw(t, "topic")
		es[i].ID = rapid.SampledFrom(append([]string{""}, modelIDs...)).Draw(t, "id")
		es[i].Expires = rapid.SampledFrom([]int64{0, 0, -7, 5000, 2_500_000_000_000}).Draw(t, "expires")
	}
	return es
}

// drawOpening tells the ids of some messages from before LevelThree, dead ones among them.
func drawOpening(t *rapid.T, m *model) operation {
	if m.state.Level < LevelThree {
		return operation{}
	}
	o := &opening{UpTo: m.state.NextSeq - rapid.SampledFrom([]uint64{1, 2}).Draw(t, "left")}
	first := rapid.Uint64Range(1, m.state.NextSeq).Draw(t, "first")
	for seq := first; seq < min(first+10, m.state.NextSeq); seq++ {
		e := m.entries[seq]
		if e.Topic == "" { // it does not tell; a name is one of the seq alone
			o.Named = append(o.Named, Named{
				Ref: Ref{Due: e.Due, Seq: seq}, Target: e.Target,
				Topic: modelTopics[seq%2], ID: modelIDs[seq%3], Expires: int64(seq%4) * 1000,
			})
		}
	}
	return operation{Open: o}
}

func drawBody(t *rapid.T) []byte {
	size := rapid.SampledFrom([]int{-1, 0, 1, 100, 20_000, 70_000}).Draw(t, "size")
	if size < 0 {
		return nil
	}
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i + size)
	}
	return body
}

func drawRuns(t *rapid.T, nextSeq uint64) []SeqRun {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) SeqRun {
		first := rapid.Uint64Range(0, nextSeq+2).Draw(t, "first")
		return SeqRun{first, first + rapid.SampledFrom([]uint64{0, 1, 5, 40}).Draw(t, "length")}
	}), 0, 4).Draw(t, "runs")
}

func drawLevel(t *rapid.T) Level {
	return rapid.SampledFrom([]Level{LevelTwo, LevelThree}).Draw(t, "level")
}

// drawEnd ends messages, from LevelThree on.
func drawEnd(t *rapid.T, m *model) (op operation) {
	if m.state.Level < LevelThree {
		return op
	}
	op.Time = m.state.Time + rapid.Int64Range(-100, 200).Draw(t, "later")
	op.End = ends(rapid.SampledFrom([]int{0, 1, 3, 700, 2500}).Draw(t, "ended"), rapid.Uint64Range(1, 50).Draw(t, "seq"), op.Time)
	if rapid.Bool().Draw(t, "keep") {
		op.Keep = &outcomes.Keep{
			For:   rapid.SampledFrom([]int64{0, 100, 1000, outcomes.DefaultKeep.For}).Draw(t, "for"),
			Count: rapid.SampledFrom([]uint64{0, 10, 1500, outcomes.DefaultKeep.Count}).Draw(t, "count"),
		}
	}
	return op
}

func drawValues(t *rapid.T) operation {
	mark := func(t *rapid.T) Ref {
		return Ref{Due: rapid.Int64Range(0, 2000).Draw(t, "due"), Seq: rapid.Uint64Range(0, 50).Draw(t, "seq")}
	}
	claim := Claim{Through: rapid.Int64().Draw(t, "through"), Mark: mark(t)}
	if rapid.Bool().Draw(t, "hold") {
		claim.Holds = []Hold{{Target: "orders", Through: 3, Mark: mark(t)}, {Target: "payments", Through: -1, Mark: mark(t)}}
	}
	var change *ClaimChange
	if rapid.Bool().Draw(t, "change") {
		change = &ClaimChange{Through: 9, Mark: mark(t), Lift: []string{"payments"}, Set: []Hold{{Target: "refunds", Mark: mark(t)}}}
	}
	return operation{
		Change: change,
		Time:   rapid.Int64Range(0, 100).Draw(t, "time"),
		Claim:  &claim,
		Position: &Position{
			Topic: "orders.delay", TopicID: [16]byte{1}, Partition: rapid.Int32Range(0, 3).Draw(t, "partition"),
			Next: rapid.Int64Range(-1, 1<<40).Draw(t, "next"), Epoch: -1,
		},
	}
}
