package replayed

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillonmq/carillon/storage/codec"
)

var first, second = Partition{[16]byte{1}, 0}, Partition{[16]byte{1}, -7}

// A set beside a map of single offsets, through copies and its written form.
func TestSet_equalsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		model := map[Partition]map[int64]bool{first: {}, second: {}, {}: {}}
		partitions := []Partition{first, second, {}}
		kept := s.Clone()
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			at := rapid.SampledFrom(partitions).Draw(t, "partition")
			offset := rapid.Int64Range(0, 40).Draw(t, "offset")
			from := rapid.SampledFrom([]int64{0, 0, 0, offset - 20, offset, offset + 1}).Draw(t, "first")
			s.Add(at, offset, from)
			for marked := range model[at] {
				if marked < from {
					delete(model[at], marked)
				}
			}
			model[at][offset] = true
			if rapid.IntRange(0, 9).Draw(t, "copy") == 0 {
				s = s.Clone()
			}
			if rapid.IntRange(0, 9).Draw(t, "write") == 0 {
				b := s.Append(nil)
				d := codec.NewDecoder(b)
				s = Read(&d)
				if err := d.Finish("marks"); err != nil || string(s.Append(nil)) != string(b) {
					t.Fatalf("%x does not come back: %v", b, err)
				}
			}
		}
		for _, at := range partitions {
			for offset := range int64(45) {
				if s.Has(at, offset) != model[at][offset] {
					t.Errorf("%v/%d: marked %t", at, offset, s.Has(at, offset))
				}
				if kept.Has(at, offset) {
					t.Errorf("%v/%d: a copy has changed", at, offset)
				}
			}
		}
		runs := 0
		for _, at := range partitions {
			last := int64(-2)
			for r := range s.from(at) {
				if r.first <= last+1 {
					t.Errorf("runs touch at %d", r.first)
				}
				last = r.last
				runs++
			}
		}
		if runs != s.runs.Len() {
			t.Errorf("%d runs in order of %d", runs, s.runs.Len())
		}
	})
}

func TestSet_isBounded(t *testing.T) {
	s := New()
	s.Add(second, 7, 0)
	for i := range int64(mostRuns + 10) {
		s.Add(first, 2*i, 0)
	}
	if s.runs.Len() != mostRuns || s.Has(first, 0) || !s.Has(first, 2*(mostRuns+9)) || !s.Has(second, 7) {
		t.Errorf("%d runs; first %t, last %t, of another partition %t", s.runs.Len(), s.Has(first, 0), s.Has(first, 2*(mostRuns+9)), s.Has(second, 7))
	}
	s.Add(first, math.MaxInt64, 1<<40)
	if s.runs.Len() != 2 {
		t.Errorf("%d runs after all below were trimmed", s.runs.Len())
	}
}

// What was marked last is known, else it would be scheduled twice.
func TestSet_keepsWhatWasMarkedLast(t *testing.T) {
	s := New()
	for i := range int64(mostRuns) {
		s.Add(second, 2*i+100, 0)
	}
	s.Add(first, 7, 0)
	s.Add(second, 3, 0)
	if !s.Has(first, 7) || !s.Has(second, 3) || s.Has(second, 102) || s.runs.Len() != mostRuns {
		t.Errorf("%d runs; alone in its partition %t, the lowest of its partition %t, the lowest before %t", s.runs.Len(), s.Has(first, 7), s.Has(second, 3), s.Has(second, 102))
	}
}

// One partition that has many scattered marks costs another none of its few.
func TestSet_forgetsWhereTheMostIsMarked(t *testing.T) {
	s := New()
	for i := range int64(mostRuns - 1) {
		s.Add(first, 2*i, 0)
	}
	third := Partition{TopicID: [16]byte{9}}
	for i := range int64(5) {
		s.Add(second, 10*i, 0)
		s.Add(third, 10*i, 0)
	}
	b := s.Append(nil)
	d := codec.NewDecoder(b)
	s = Read(&d)
	s.Add(second, 50, 0)
	for i := range int64(6) {
		if !s.Has(second, 10*i) || i < 5 && !s.Has(third, 10*i) {
			t.Errorf("%d is forgotten", 10*i)
		}
	}
	if s.runs.Len() != mostRuns || s.Has(first, 2*9) || !s.Has(first, 2*10) {
		t.Errorf("%d runs", s.runs.Len())
	}
}

func TestRead_refusesWhatAppendDoesNotWrite(t *testing.T) {
	s := New()
	s.Add(second, 7, 0)
	s.Add(first, 3, 0)
	s.Add(first, 5, 0)
	b := s.Append(nil)
	const want = "02" + "01000000000000000000000000000000" + "0d" + "01" + "0700" + "01000000000000000000000000000000" + "00" + "02" + "03000200"
	if hex.EncodeToString(b) != want {
		t.Errorf("got  %x\nwant %s", b, want)
	}
	for n := range len(b) {
		d := codec.NewDecoder(b[:n])
		Read(&d)
		if d.Finish("marks") == nil {
			t.Errorf("cut to %d of %d bytes it decodes", n, len(b))
		}
	}
	const id = "01000000000000000000000000000000"
	for what, text := range map[string]string{
		"a partition without a mark": "01" + id + "00" + "00",
		"a partition twice":          "02" + id + "00" + "01" + "0700" + id + "00" + "01" + "0900",
		"runs that touch":            "01" + id + "00" + "02" + "0700" + "0100",
		"a run twice":                "01" + id + "00" + "02" + "0700" + "0000",
		"an offset below 0":          "01" + id + "00" + "01" + "ffffffffffffffffff01" + "00",
		"a run beyond all offsets":   "01" + id + "00" + "01" + "07" + "ffffffffffffffffff01",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		d := codec.NewDecoder(b)
		if Read(&d); !d.Failed() {
			t.Errorf("%s: it decodes", what)
		}
	}
}

// Topics that are deleted leave their marks behind, which nothing trims: they stay within the bound all the same.
func TestSet_isBoundedByTopicsThatAreGone(t *testing.T) {
	s := New()
	topic := func(i int) (id [16]byte) {
		binary.BigEndian.PutUint64(id[:], uint64(i))
		return id
	}
	for i := range mostRuns + 10 {
		s.Add(Partition{topic(i), math.MaxInt32}, math.MaxInt64-1, 0)
	}
	live := Partition{topic(mostRuns + 10), 0}
	for offset := range int64(5) {
		s.Add(live, 2*offset, 0)
	}
	if !s.Has(live, 8) {
		t.Error("what was marked last is forgotten")
	}
	const most = 4 << 20
	if size := len(s.Append(nil)); s.runs.Len() != mostRuns || len(s.count) > mostRuns || size > most {
		t.Errorf("%d runs of %d partitions in %d bytes, want %d runs in %d bytes at most", s.runs.Len(), len(s.count), size, mostRuns, most)
	} else {
		t.Logf("%d runs of %d partitions take %d bytes", s.runs.Len(), len(s.count), size)
	}
}
