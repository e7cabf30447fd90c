package storage

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// model is the schedule as a map: what a store must be equal to.
type model struct {
	entries map[uint64]Entry // alive
	state   State

	told map[uint64]Named // messages from before LevelThree, by seq
	lost map[uint64]bool  // that have lost their id to a newer one
	open bool

	ended      [3][]noted // ends of messages, refusals, answers to keys; oldest first
	endedCount int        // of all that ever were
	keep       outcomes.Keep
	endedSince int64
}

func newModel() *model {
	return &model{entries: make(map[uint64]Entry), told: make(map[uint64]Named), lost: make(map[uint64]bool), state: State{Level: LevelOne, NextSeq: 1}, keep: outcomes.DefaultKeep}
}

// noted is an outcome, and which it was of all.
type noted struct {
	outcomes.Outcome
	number int
}

// operation is one log entry: the same value is applied to models and stores.
type operation struct {
	Accept   []Entry
	Kill     []SeqRun
	Position *Position
	Claim    *Claim
	Change   *ClaimChange
	Time     int64
	Level    Level
	Open     *opening
	Keep     *outcomes.Keep
	End      []outcomes.Outcome
}

// opening is what OpenIDs is given.
type opening struct {
	Named []Named
	UpTo  uint64
}

func (m *model) apply(index uint64, op operation) (killed uint64) {
	for _, e := range op.Accept {
		e.Seq = m.state.NextSeq
		m.state.NextSeq++
		m.entries[e.Seq] = e
		m.lower(e)
	}
	for _, run := range op.Kill {
		for seq := run.First; seq <= min(run.Last, m.state.NextSeq-1); seq++ {
			if _, ok := m.entries[seq]; ok {
				delete(m.entries, seq)
				killed++
			}
		}
	}
	if p := op.Position; p != nil {
		m.state.Positions = slices.DeleteFunc(slices.Clone(m.state.Positions), func(q Position) bool {
			return q.TopicID == p.TopicID && q.Partition == p.Partition
		})
		m.state.Positions = append(m.state.Positions, *p)
		slices.SortFunc(m.state.Positions, func(a, b Position) int {
			return cmp.Or(bytes.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Partition, b.Partition))
		})
	}
	if op.Claim != nil {
		m.state.Claim = *op.Claim
		m.state.Claim.Holds = slices.Clone(op.Claim.Holds)
	}
	if c := op.Change; c != nil {
		set := slices.Clone(c.Set)
		for i := range set { // from LevelThree on none falls
			through := m.state.Claim.Through
			for _, h := range m.state.Claim.Holds {
				if h.Target == set[i].Target {
					through = min(through, h.Through)
				}
			}
			if m.state.Level >= LevelThree {
				set[i].Through = max(set[i].Through, through)
			}
		}
		holds := slices.DeleteFunc(slices.Clone(m.state.Claim.Holds), func(h Hold) bool {
			return slices.Contains(c.Lift, h.Target) || slices.ContainsFunc(c.Set, func(s Hold) bool { return s.Target == h.Target })
		})
		holds = append(holds, set...)
		slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Target, b.Target) })
		m.state.Claim = Claim{Through: c.Through, Mark: c.Mark, Holds: holds}
	}
	if o := op.Open; o != nil {
		for _, n := range o.Named {
			if _, ok := m.entries[n.Seq]; !ok || m.lost[n.Seq] {
				continue
			}
			if before, ok := m.lookup(n.Topic, n.ID); ok && before.Seq != n.Seq {
				m.lost[min(before.Seq, n.Seq)] = true
			}
			m.told[n.Seq] = n
		}
		if !m.open && o.UpTo >= m.state.NextSeq-1 {
			if m.open = true; m.state.NextSeq > 1 {
				m.endedSince = max(m.endedSince, m.state.Time+1)
			}
		}
	}
	m.state.Level = max(m.state.Level, op.Level)
	m.state.Time = max(m.state.Time, op.Time)
	m.forget(1000)
	if op.Keep != nil {
		m.keep = *op.Keep
	}
	for _, o := range op.End {
		class := map[outcomes.Kind]int{outcomes.Refused: 1, outcomes.RefusedRecord: 1, outcomes.Answered: 2}[o.Kind]
		m.ended[class] = append(m.ended[class], noted{o, m.endedCount})
		m.endedCount++
		m.forget(2)
	}
	m.state.Pending = uint64(len(m.entries))
	m.state.AppliedIndex = index
	return killed
}

// forget gives up what is too old or too much of each class, so many at a time.
func (m *model) forget(most int) {
	for class, count := range []uint64{m.keep.Count, (m.keep.Count + 9) / 10, m.keep.Count} {
		all := m.ended[class]
		for left := most; left > 0 && len(all) > 0 && (uint64(len(all)) > count || all[0].At < m.state.Time-m.keep.For); left-- {
			if class == 0 {
				m.endedSince = max(m.endedSince, all[0].At+1)
			}
			all = all[1:]
		}
		m.ended[class] = all
	}
}

// lookup is Store.Lookup: the newest alive of those with the id.
func (m *model) lookup(topic, id string) (found Found, ok bool) {
	for seq, e := range m.entries {
		if isTopic, isID := m.idOf(seq); isTopic != topic || isID != id || m.lost[seq] || seq < found.Seq {
			continue
		}
		found, ok = Found{Ref: e.Ref(), Target: e.Target, Topic: e.Topic, Expires: e.Expires}, true
		if told, isTold := m.told[seq]; isTold {
			found.Expires = told.Expires
		}
	}
	return found, ok
}

// idOf returns what the entry tells, or OpenIDs was told.
func (m *model) idOf(seq uint64) (topic, id string) {
	if told, isTold := m.told[seq]; isTold {
		return told.Topic, told.ID
	}
	return m.entries[seq].Topic, m.entries[seq].ID
}

func (m *model) lower(e Entry) {
	if fresh := &m.state.Claim.Fresh; *fresh == (Ref{}) || e.Ref().Compare(*fresh) < 0 {
		*fresh = e.Ref()
	}
	for i := range m.state.Claim.Holds {
		if h := &m.state.Claim.Holds[i]; h.Target == e.Target {
			if e.Ref().Compare(h.Mark) < 0 {
				h.Mark = e.Ref()
			}
			return
		}
	}
	if e.Ref().Compare(m.state.Claim.Mark) < 0 {
		m.state.Claim.Mark = e.Ref()
	}
}

func (m *model) clone() *model {
	c := *m
	c.entries = maps.Clone(m.entries)
	c.state.Claim.Holds = slices.Clone(m.state.Claim.Holds)
	c.told, c.lost = maps.Clone(m.told), maps.Clone(m.lost)
	for class := range m.ended {
		c.ended[class] = slices.Clone(m.ended[class])
	}
	return &c
}

func (m *model) sorted() []Entry {
	return slices.SortedFunc(maps.Values(m.entries), func(a, b Entry) int { return a.Ref().Compare(b.Ref()) })
}

func applyTo(s *Store, index uint64, op operation) (killed uint64) {
	s.Accept(slices.Clone(op.Accept))
	killed = s.Kill(op.Kill)
	if op.Position != nil {
		s.SetPosition(*op.Position)
	}
	if op.Claim != nil {
		s.SetClaim(*op.Claim)
	}
	if op.Change != nil {
		s.ChangeClaim(*op.Change)
	}
	if op.Open != nil {
		if _, err := s.OpenIDs(op.Open.Named, op.Open.UpTo); err != nil {
			panic(err)
		}
	}
	s.SetTime(op.Time)
	s.RaiseLevel(op.Level)
	if op.Keep != nil {
		s.KeepOutcomes(*op.Keep)
	}
	for _, o := range op.End {
		s.End(o)
	}
	s.Applied(index)
	return killed
}

// testingT is what *testing.T and *rapid.T share.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// requireEqual compares a store with the model in every way a reader can.
func requireEqual(t testingT, s *Store, m *model) {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Fatalf("Check: %v", err)
	}
	state := s.State()
	state.Claim.Holds = s.Holds()
	if diff := gocmp.Diff(m.state, state, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("State (-want +got):\n%s", diff)
	}
	requireOutcomes(t, s, m)
	requireLookups(t, s, m)
	want := m.sorted()
	var items []Item
	var refs []Ref
	for _, e := range want {
		items = append(items, itemOf(&e))
		refs = append(refs, e.Ref())
	}
	if got := scanAll(t, s, max(7, len(items)/5)); !slices.Equal(items, got) {
		t.Fatalf("Scan (-want +got):\n%s", gocmp.Diff(items, got))
	}
	got, err := s.Read(refs, nil)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	if !slices.EqualFunc(want, got, sameEntry) {
		t.Fatalf("Read (-want +got):\n%s", gocmp.Diff(want, got))
	}
}

// requireOutcomes compares what is known of messages that have ended.
func requireOutcomes(t testingT, s *Store, m *model) {
	t.Helper()
	if since, keep := s.OutcomesSince(), s.OutcomesKept(); since != m.endedSince || keep != m.keep {
		t.Fatalf("outcomes are known since %d and kept %+v, want %d and %+v", since, keep, m.endedSince, m.keep)
	}
	var known []outcomes.Outcome
	for _, o := range slices.Concat(m.ended[:]...) {
		known = append(known, o.Outcome)
	}
	if got := slices.Collect(s.outcomes.Freeze().All()); !slices.Equal(got, known) {
		t.Fatalf("outcomes (-want +got):\n%s", gocmp.Diff(known, got))
	}
	inOrder := slices.SortedFunc(slices.Values(slices.Concat(m.ended[:2]...)), func(a, b noted) int { return a.number - b.number })
	for _, id := range []string{"a", "b"} {
		var life []outcomes.Outcome
		var newest outcomes.Outcome
		for _, o := range inOrder {
			if o.Name != name.Of("orders.delay", id) {
				continue
			}
			life = append(life, o.Outcome)
			if o.Seq > 0 && o.Seq >= newest.Seq {
				newest = o.Outcome
			}
		}
		if got, ok := s.Outcome("orders.delay", id); ok && got != newest || ok != (newest.Seq > 0) {
			t.Fatalf("outcome of %s is %+v (%t), want %+v", id, got, ok, newest)
		}
		if got := s.Life("orders.delay", id); !slices.Equal(got, life[max(0, len(life)-1000):]) {
			t.Fatalf("life of %s (-want +got):\n%s", id, gocmp.Diff(life, got))
		}
	}
}

// requireLookups compares all that can be looked up.
func requireLookups(t testingT, s *Store, m *model) {
	t.Helper()
	if s.IDsOpen() != m.open {
		t.Fatalf("ids open: %v, want %v", s.IDsOpen(), m.open)
	}
	for _, topic := range modelTopics {
		for _, id := range modelIDs {
			want, wantOK := m.lookup(topic, id)
			got, ok, err := s.Lookup(topic, id)
			if err != nil || ok != wantOK || got != want {
				t.Fatalf("Lookup of %s in %s: %+v, %v, %v, want %+v", id, topic, got, ok, err, want)
			}
			_, ended := s.Outcome(topic, id)
			if fresh := s.Fresh([]name.Hash{name.Of(topic, id)}, nil); fresh[0] && (ok || ended) {
				t.Fatalf("%s in %s is fresh, though it is known: alive %t, ended %t", id, topic, ok, ended)
			}
		}
	}
}

// modelTopics and modelIDs are those that tests draw from.
var (
	modelTopics = []string{"orders.delay", "payments.delay"}
	modelIDs    = []string{"invoice-7", "x", "a much longer id of the kind that is made of two hashes and a date"}
)

// sameEntry tells nil and empty bodies apart.
func sameEntry(a, b Entry) bool {
	return a.Ref() == b.Ref() && a.Target == b.Target && a.Topic == b.Topic && a.ID == b.ID && a.Expires == b.Expires && bytes.Equal(a.Body, b.Body) && (a.Body == nil) == (b.Body == nil)
}

func scanAll(t testingT, s *Store, limit int) (all []Item) {
	t.Helper()
	from := Ref{Due: -1 << 63}
	for {
		items, next, done, err := s.Scan(from, Ref{}, limit, nil, nil)
		if err != nil {
			t.Fatalf("Scan from %v: %v", from, err)
		}
		if len(items) > limit || next.Less(from) {
			t.Fatalf("Scan from %v: %d items, next %v", from, len(items), next)
		}
		all = append(all, items...)
		if done {
			return all
		}
		from = next
	}
}

func digest(t testingT, s *Store) [32]byte {
	t.Helper()
	d, err := s.Digest()
	if err != nil {
		t.Fatalf("Digest: %v", err)
	}
	return d
}

func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, MergeWidth: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func flush(t testingT, s *Store, index uint64) {
	t.Helper()
	if err := s.Freeze().Flush(SnapshotMeta{Index: index, Term: 1}); err != nil {
		t.Fatalf("Flush: %v", err)
	}
}

func mergeAll(t testingT, s *Store) {
	t.Helper()
	for {
		did, err := s.Merge(context.Background())
		if err != nil {
			t.Fatalf("Merge: %v", err)
		}
		if !did {
			return
		}
	}
}

// transfer sends what from has on disk to to.
func transfer(from, to *Store) error {
	meta, size, rc, err := from.OpenStream()
	if err != nil {
		return err
	}
	defer rc.Close()
	counted := &countingReader{from: rc}
	if err := receive(to, meta, counted); err != nil {
		return err
	}
	if counted.n != size {
		return fmt.Errorf("stream of %d bytes, announced with %d", counted.n, size)
	}
	return nil
}

type countingReader struct {
	from io.Reader
	n    int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

// entries makes n messages of size bytes, due every step ms from due.
func entries(n int, due, step int64, size int) []Entry {
	es := make([]Entry, n)
	for i := range es {
		es[i] = Entry{Due: due + int64(i)*step, Target: "orders", Body: bytes.Repeat([]byte{byte(i)}, size)}
	}
	return es
}

// ends makes n outcomes of each kind in turn, of ids a to z, from seq and time on.
func ends(n int, seq uint64, at int64) []outcomes.Outcome {
	es := make([]outcomes.Outcome, n)
	for i := range es {
		o := outcomes.Outcome{
			Name: name.Of("orders.delay", string(rune('a'+i%26))), Kind: outcomes.Kind(1 + i%8), Seq: seq + uint64(i*7919%(n+1)),
			Due: at - int64(i), At: at + int64(i/10), Target: fmt.Sprint("orders", i%5),
		}
		switch o.Kind {
		case outcomes.Delivered, outcomes.DeadLettered:
			o.Partition, o.Offset = int32(i%12), int64(i)-1
		case outcomes.Replaced:
			o.By = o.Seq + 1
		case outcomes.Refused:
			o.Seq = 0
		case outcomes.RefusedRecord:
			o.Seq, o.Partition, o.Offset = 0, int32(i%12), int64(i)
		case outcomes.Answered:
			o.By, o.Partition = o.Seq+7, int32(i%9)
		}
		es[i] = o
	}
	return es
}

// crash returns a copy of the directory as it is now.
func crash(t testingT, dir, copied string) string {
	t.Helper()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatalf("copy directory: %v", err)
	}
	return copied
}

// requireNoStray compares the files with what the manifest names.
func requireNoStray(t *testing.T, s *Store) {
	t.Helper()
	files, err := os.ReadDir(s.manifest.segmentsDir())
	if err != nil || len(files) != s.Stats().Segments {
		t.Fatalf("%d files for %d segments (error %v)", len(files), s.Stats().Segments, err)
	}
}
