package outcomes

import (
	"bytes"
	"errors"
	"io"
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
	if got.keep != want.keep || got.since != want.since || got.first != want.first || got.next != want.next {
		t.Fatalf("%d to %d since %d, want %d to %d since %d", got.first, got.next, got.since, want.first, want.next, want.since)
	}
	for at := want.first; at < want.next; at++ {
		if got.outcome(at) != want.outcome(at) || got.row(at).older != want.row(at).older || got.row(at).higher != want.row(at).higher {
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
	s.first, s.next = slotRows-1500, slotRows-1500
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
		if most := int(n)/pageRows + 2; written > most || n == 0 && written > 0 {
			t.Fatalf("%d chunks are written for %d outcomes", written, n)
		}
		if have := len(slices.Collect(keys(now))); have != len(chunks) {
			t.Fatalf("%d chunks are left, of rows %d to %d", len(chunks), now.first, now.next)
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

// goldenSet has each kind, an id that came again, and rows that were forgotten.
func goldenSet() *Frozen {
	s := NewSet()
	s.SetKeep(Keep{For: 60_000, Count: 8})
	s.Add(Outcome{Name: id(9), Kind: Expired, Seq: 1, At: 5})
	s.Add(Outcome{Name: id(1), Kind: Delivered, Seq: 300, Due: 1_700_000_000_000, At: 1_700_000_000_003, Target: "orders", Partition: 7, Offset: 1 << 40})
	s.Add(Outcome{Name: id(2), Kind: DeadLettered, Seq: 7, Due: -1, At: 1_700_000_000_003, Target: "carillon.dead-letter", Partition: 0, Offset: -1})
	s.Add(Outcome{Name: id(3), Kind: Expired, Seq: math.MaxUint64, Due: math.MaxInt64, At: 1_700_000_000_001, Target: "orders"})
	s.Add(Outcome{Name: id(4), Kind: Cancelled, Seq: 302, Due: math.MinInt64, At: math.MinInt64, Target: ""})
	s.Add(Outcome{Name: id(1), Kind: Replaced, Seq: 298, By: 303, At: 1_700_000_000_005, Target: "orders"})
	s.Add(Outcome{Name: id(1), Kind: Refused, At: 1_700_000_000_006, Target: "orders"})
	s.Add(Outcome{Name: id(1), Kind: Replaced, Seq: 299, By: 1, At: 1_700_000_000_006, Target: "payments"})
	s.Add(Outcome{Name: id(5), Kind: Cancelled, Seq: 305, At: 1_700_000_000_007, Target: "payments"})
	s.Forget(0, 10)
	return s.Freeze()
}

func TestGolden_chunk(t *testing.T) {
	want := goldenSet()
	head, err := codec.Open("head", NewestHead, golden.Compare(t, "head", codec.Seal(want.Head())))
	if err != nil {
		t.Fatal(err)
	}
	chunks := make(map[uint64]codec.Record)
	for number, chunk := range want.Chunks(nil) {
		if chunks[number], err = codec.Open("chunk", NewestChunk, golden.Compare(t, "chunk", codec.Seal(chunk))); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(head, chunks)
	if err != nil {
		t.Fatal(err)
	}
	requireLoaded(t, got, want)
	if want.Since() != 6 || want.Count() != 8 || !reflect.DeepEqual(got.Thaw().Life(id(1)), want.Thaw().Life(id(1))) {
		t.Errorf("%d outcomes since %d", want.Count(), want.Since())
	}
}

// What storage.LevelFour writes otherwise: a chunk with an answer. A program of the level before knows
// by the version that it must not go on.
func TestGolden_chunkOfLevelFour(t *testing.T) {
	s := NewSet()
	s.Add(Outcome{Name: id(1), Kind: Cancelled, Seq: 302, Due: 9, At: 4, Target: "orders"})
	s.Add(Outcome{Name: id(2), Kind: Answered, Seq: 302, By: math.MaxUint64, At: 4, Partition: 3})
	s.Add(Outcome{Name: id(3), Kind: Answered, At: 5, Partition: 7})
	want := s.Freeze()
	chunks := make(map[uint64]codec.Record)
	for number, chunk := range want.Chunks(nil) {
		var err error
		if chunks[number], err = codec.Open("chunk", NewestChunk, golden.Compare(t, "chunk_v2", codec.Seal(chunk))); err != nil || chunk.Version != 2 {
			t.Fatalf("version %d, %v", chunk.Version, err)
		}
	}
	got, err := load(want.Head(), chunks)
	if err != nil {
		t.Fatal(err)
	}
	requireLoaded(t, got, want)
	older := chunks[0]
	older.Version = 1
	if _, err := load(want.Head(), map[uint64]codec.Record{0: older}); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("an answer in a chunk of version 1: %v", err)
	}
}

// A refusal that names its record is of a later form still.
func TestGolden_chunkWithARefusedRecord(t *testing.T) {
	s := NewSet()
	s.Add(Outcome{Name: id(1), Kind: Refused, Due: 9, At: 4, Target: "orders"})
	s.Add(Outcome{Name: id(2), Kind: Answered, Seq: 302, By: 7, At: 4, Partition: 3})
	s.Add(Outcome{Name: id(1), Kind: RefusedRecord, Due: 9, At: 4, Target: "orders", Partition: math.MaxInt32, Offset: math.MaxInt64})
	s.Add(Outcome{Name: id(1), Kind: RefusedRecord, At: 5})
	want := s.Freeze()
	chunks := make(map[uint64]codec.Record)
	for number, chunk := range want.Chunks(nil) {
		var err error
		if chunks[number], err = codec.Open("chunk", NewestChunk, golden.Compare(t, "chunk_v3", codec.Seal(chunk))); err != nil || chunk.Version != 3 {
			t.Fatalf("version %d, %v", chunk.Version, err)
		}
	}
	got, err := load(want.Head(), chunks)
	if err != nil {
		t.Fatal(err)
	}
	requireLoaded(t, got, want)
	for version := byte(1); version < 3; version++ {
		older := chunks[0]
		older.Version = version
		if _, err := load(want.Head(), map[uint64]codec.Record{0: older}); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("a refused record in a chunk of version %d: %v", version, err)
		}
	}
}

// No bytes make it fail otherwise than with ErrCorrupt, or make what answers worse than wrong.
func FuzzLoader(f *testing.F) {
	golden := goldenSet()
	for _, chunk := range golden.Chunks(nil) {
		f.Add(golden.Head().Payload, chunk.Payload)
	}
	f.Fuzz(func(t *testing.T, head, chunk []byte) {
		chunks := map[uint64]codec.Record{0: {Version: 1, Payload: chunk}, 1: {Version: 3, Payload: chunk}}
		got, err := load(codec.Record{Version: 1, Payload: head}, chunks)
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
		}
		again, err := load(got.Head(), chunks)
		if err != nil {
			t.Fatal(err)
		}
		requireLoaded(t, again, got)
		s.Add(Outcome{Name: id(1), Kind: Cancelled, Seq: 5})
		s.Forget(0, 2000)
	})
}
