package outcomes

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/internal/golden"
)

// load is what a start does with head and chunks.
func load(head codec.Record, chunks map[uint64]codec.Record) (*Frozen, error) {
	l, err := NewLoader(head)
	if err != nil {
		return nil, err
	}
	for {
		number, ok := l.Wants()
		chunk, there := chunks[number]
		if !ok || !there {
			return l.Finish()
		}
		if err := l.Take(chunk); err != nil {
			return nil, err
		}
	}
}

// requireLoaded compares all but what was forgotten.
func requireLoaded(t *testing.T, got, want *Frozen) {
	t.Helper()
	if got.keep != want.keep {
		t.Fatalf("keeps %+v, want %+v", got.keep, want.keep)
	}
	for c := range want.runs {
		requireLoadedRun(t, &got.runs[c], &want.runs[c])
	}
}

func requireLoadedRun(t *testing.T, got, want *run) {
	t.Helper()
	if got.since != want.since || got.first != want.first || got.next != want.next {
		t.Fatalf("%d to %d since %d, want %d to %d since %d", got.first, got.next, got.since, want.first, want.next, want.since)
	}
	for at := want.first; at < want.next; at++ {
		g, w := *got.row(at), *want.row(at)
		g.target, w.target = 0, 0
		if got.outcome(at) != want.outcome(at) || g != w {
			t.Fatalf("row %d is %+v, want %+v", at, *got.row(at), *want.row(at))
		}
	}
	if len(got.pages) > 0 && (got.next-1)/pageRows-got.first/pageRows+1 != uint64(len(got.pages)) {
		t.Fatalf("%d pages of rows %d to %d", len(got.pages), got.first, got.next)
	}
}

// What is written of one flush after the other is, on disk, all that there is. A flush writes
// what is new, and the page that this begins in.
func TestChunks_ofOneFlushAfterTheOtherAreAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := NewSet()
	for c := range s.lists {
		s.lists[c].first, s.lists[c].next = slotRows-1500, slotRows-1500
	}
	then, chunks := s.Freeze(), make(map[uint64]codec.Record)
	for range 300 {
		n := random.Uint64N(10)
		if random.IntN(3) == 0 {
			n = random.Uint64N(2500)
		}
		for range n {
			s.Add(draw(random, 500, 0))
		}
		s.SetKeep(Keep{Count: random.Uint64N(3000)})
		s.Forget(0, random.IntN(3000))
		now := s.Freeze()
		written := 0
		for number, chunk := range now.Chunks(then) {
			chunks[number] = chunk
			written++
		}
		for number := range now.Gone(then) {
			delete(chunks, number)
		}
		if most := int(n)/pageRows + 2*int(classes); written > most || n == 0 && written > 0 {
			t.Fatalf("%d chunks are written for %d outcomes", written, n)
		}
		if have := len(slices.Collect(keys(now))); have != len(chunks) {
			t.Fatalf("%d chunks are left, want %d", len(chunks), have)
		}
		got, err := load(now.Head(), chunks)
		if err != nil {
			t.Fatal(err)
		}
		requireLoaded(t, got, now)
		if then = now; random.IntN(5) == 0 { // a restart
			s, then = got.Thaw(), got
		}
	}
}

func keys(f *Frozen) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for number := range f.Chunks(nil) {
			if !yield(number) {
				return
			}
		}
	}
}

func drawn(n int) *Frozen {
	random := rand.New(rand.NewPCG(3, 4))
	s := NewSet()
	for range n {
		s.Add(draw(random, 700, 1_700_000_000_000))
	}
	s.SetKeep(Keep{Count: uint64(n) - 100})
	s.Forget(0, n)
	return s.Freeze()
}

func TestStream_bringsAll(t *testing.T) {
	for _, n := range []int{100, 150, 5000} {
		f := drawn(n)
		r := f.NewReader()
		stream, err := io.ReadAll(iotest.OneByteReader(r))
		if err != nil || int64(len(stream)) != r.Size {
			t.Fatalf("%d bytes, announced with %d (error %v)", len(stream), r.Size, err)
		}
		l, err := NewLoader(f.Head())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyBuffer(l, struct{ io.Reader }{bytes.NewReader(stream)}, make([]byte, 777)); err != nil {
			t.Fatal(err)
		}
		got, err := l.Finish()
		if err != nil {
			t.Fatal(err)
		}
		requireLoaded(t, got, f)
		if n > 100 {
			short, _ := NewLoader(f.Head())
			_, err := short.Write(stream[:len(stream)-1])
			if _, finished := short.Finish(); err != nil || !errors.Is(finished, codec.ErrCorrupt) {
				t.Errorf("a stream cut short: %v, %v", err, finished)
			}
		}
	}
}

func TestLoader_refusesOtherChunksThanTheHeadTellsOf(t *testing.T) {
	f := drawn(5000)
	var chunks []codec.Record
	for _, chunk := range f.Chunks(nil) {
		chunks = append(chunks, chunk)
	}
	for name, taken := range map[string][]codec.Record{
		"one missing":    chunks[:len(chunks)-1],
		"a gap":          append(slices.Clone(chunks[:2]), chunks[3]),
		"one more":       append(slices.Clone(chunks), chunks[0]),
		"the last first": {chunks[len(chunks)-1]},
		"none":           nil,
	} {
		l, err := NewLoader(f.Head())
		for _, chunk := range taken {
			if err == nil {
				err = l.Take(chunk)
			}
		}
		if err == nil {
			_, err = l.Finish()
		}
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// goldenSet has each kind but RefusedRecord, an id that came again, and rows that were forgotten.
func goldenSet() *Frozen {
	s := NewSet()
	s.SetKeep(Keep{For: 60_000, Count: 7})
	s.Add(Outcome{Name: id(9), Kind: Expired, Seq: 1, At: 5})
	s.Add(Outcome{Name: id(1), Kind: Delivered, Seq: 300, Due: 1_700_000_000_000, At: 1_700_000_000_003, Target: "orders", Partition: 7, Offset: 1 << 40})
	s.Add(Outcome{Name: id(2), Kind: DeadLettered, Seq: 7, Due: -1, At: 1_700_000_000_003, Target: "carillon.dead-letter", Partition: 0, Offset: -1})
	s.Add(Outcome{Name: id(9), Kind: Refused, At: 4})
	s.Add(Outcome{Name: id(3), Kind: Expired, Seq: math.MaxUint64, Due: math.MaxInt64, At: 1_700_000_000_001, Target: "orders"})
	s.Add(Outcome{Name: id(4), Kind: Cancelled, Seq: 302, Due: math.MinInt64, At: math.MinInt64, Target: ""})
	s.Add(Outcome{Name: id(1), Kind: Replaced, Seq: 298, By: 303, At: 1_700_000_000_005, Target: "orders"})
	s.Add(Outcome{Name: id(1), Kind: Refused, At: 1_700_000_000_006, Target: "orders"})
	s.Add(Outcome{Name: id(2), Kind: Answered, Seq: 302, By: math.MaxUint64, At: 4, Partition: 3})
	s.Add(Outcome{Name: id(1), Kind: Replaced, Seq: 299, By: 1, At: 1_700_000_000_006, Target: "payments"})
	s.Add(Outcome{Name: id(5), Kind: Cancelled, Seq: 305, At: 1_700_000_000_007, Target: "payments"})
	s.Add(Outcome{Name: id(3), Kind: Answered, At: 5, Partition: 7})
	s.Forget(0, 10)
	return s.Freeze()
}

func TestGolden_chunks(t *testing.T) {
	want := goldenSet()
	head, err := codec.Open("head", NewestHead, golden.Compare(t, "head_v2", codec.Seal(want.Head())))
	if err != nil {
		t.Fatal(err)
	}
	chunks := make(map[uint64]codec.Record)
	for key, chunk := range want.Chunks(nil) {
		name := map[uint64]string{0: "chunk_ends", 1 << 56: "chunk_refusals", 2 << 56: "chunk_answers"}[key]
		if chunks[key], err = codec.Open("chunk", NewestChunk, golden.Compare(t, name, codec.Seal(chunk))); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(head, chunks)
	if err != nil {
		t.Fatal(err)
	}
	requireLoaded(t, got, want)
	if want.Since() != 6 || want.Count() != 7+1+2 || !reflect.DeepEqual(got.Thaw().Life(id(1)), want.Thaw().Life(id(1))) {
		t.Errorf("%d outcomes since %d", want.Count(), want.Since())
	}
	requireVersions(t, head, chunks, 2<<56, 2)
}

// A refusal that names its record is of a later form than answers. A program of the level before knows by the
// version that it must not go on.
func TestGolden_chunkWithARefusedRecord(t *testing.T) {
	s := NewSet()
	s.SetKeep(Keep{Count: 100})
	s.Add(Outcome{Name: id(1), Kind: Refused, Due: 9, At: 4, Target: "orders"})
	s.Add(Outcome{Name: id(1), Kind: RefusedRecord, Due: 9, At: 4, Target: "orders", Partition: math.MaxInt32, Offset: math.MaxInt64})
	s.Add(Outcome{Name: id(1), Kind: RefusedRecord, At: 5})
	want := s.Freeze()
	chunks := make(map[uint64]codec.Record)
	for key, chunk := range want.Chunks(nil) {
		var err error
		if chunks[key], err = codec.Open("chunk", NewestChunk, golden.Compare(t, "chunk_refused_records", codec.Seal(chunk))); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(want.Head(), chunks)
	if err != nil {
		t.Fatal(err)
	}
	requireLoaded(t, got, want)
	requireVersions(t, want.Head(), chunks, 1<<56, 3)
}

// requireVersions wants the chunk of that key to be of the version, and what is in it to be refused in a lower one.
func requireVersions(t *testing.T, head codec.Record, chunks map[uint64]codec.Record, key uint64, version byte) {
	t.Helper()
	if chunks[key].Version != version {
		t.Errorf("the chunk is of version %d, want %d", chunks[key].Version, version)
	}
	for older := range version {
		changed := maps.Clone(chunks)
		changed[key] = codec.Record{Version: older, Payload: chunks[key].Payload}
		if _, err := load(head, changed); older > 0 && !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("in version %d: %v", older, err)
		}
	}
}

// Before the classes were told apart, all rows were in one run. They stay there, and are known until they are
// forgotten as ends are; what comes is put where it belongs.
func TestGolden_readsRowsOfOneRun(t *testing.T) {
	read := func(what string, newest byte) codec.Record {
		record, err := codec.Open(what, newest, golden.Read(t, what))
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	for name, rows := range map[string]byte{"chunk_v2": 3, "chunk_v3": 4} {
		head := codec.Record{Version: 1, Payload: []byte{0, 100, 0, 0, rows}}
		then, err := load(head, map[uint64]codec.Record{0: read(name, NewestChunk)})
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := then.Thaw().Answered(id(2)); !ok || a.Seq != 302 {
			t.Errorf("%s: answered %+v (%t)", name, a, ok)
		}
	}
	then, err := load(read("head", NewestHead), map[uint64]codec.Record{0: read("chunk", NewestChunk)})
	if err != nil {
		t.Fatal(err)
	}
	s := then.Thaw()
	s.Add(Outcome{Name: id(1), Kind: RefusedRecord, Partition: 3, Offset: 4})
	s.Add(Outcome{Name: id(1), Kind: Cancelled, Seq: 306})
	var told []Kind
	for _, o := range s.Life(id(1)) {
		told = append(told, o.Kind)
	}
	if want := []Kind{Delivered, Replaced, Refused, Replaced, RefusedRecord, Cancelled}; !slices.Equal(told, want) {
		t.Errorf("%v happened with the id, want %v", told, want)
	}
	if o, ok := s.Newest(id(1)); !ok || o.Seq != 306 {
		t.Errorf("newest %+v (%t)", o, ok)
	}
	chunks := map[uint64]codec.Record{0: read("chunk", NewestChunk)}
	now := s.Freeze()
	for key, chunk := range now.Chunks(then) {
		chunks[key] = chunk
	}
	got, err := load(now.Head(), chunks)
	if err != nil {
		t.Fatal(err)
	}
	requireLoaded(t, got, now)
}

// No bytes make it fail otherwise than with ErrCorrupt, or make what answers worse than wrong.
func FuzzLoader(f *testing.F) {
	for _, set := range []*Frozen{goldenSet(), drawn(100)} {
		for _, chunk := range set.Chunks(nil) {
			f.Add(set.Head().Payload, chunk.Payload, byte(2))
			f.Add(set.Head().Payload, chunk.Payload, byte(1))
		}
	}
	f.Fuzz(func(t *testing.T, head, chunk []byte, version byte) {
		chunks := make(map[uint64]codec.Record)
		for c := range classes {
			chunks[keyOf(c, 0)], chunks[keyOf(c, 1)] = codec.Record{Version: 1, Payload: chunk}, codec.Record{Version: 3, Payload: chunk}
		}
		got, err := load(codec.Record{Version: version, Payload: head}, chunks)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		s := got.Thaw()
		for o := range got.All() {
			s.Newest(o.Name)
			s.Life(o.Name)
			s.Answered(o.Name)
		}
		again, err := load(got.Head(), chunks)
		if err != nil {
			t.Fatal(err)
		}
		requireLoaded(t, again, got)
		s.Add(Outcome{Name: id(1), Kind: Cancelled, Seq: 5})
		s.Add(Outcome{Name: id(1), Kind: Refused})
		s.Forget(0, 2000)
	})
}
