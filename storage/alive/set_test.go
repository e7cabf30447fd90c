package alive

import (
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillonmq/carillon/storage/codec"
)

// TestAliveSet_equalsMap changes a set at random, across the ends of blocks and
// nodes, and compares it and all that was frozen from it with maps.
func TestSet_equalsMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, want := NewSet(), map[uint64]bool{}
		type moment struct {
			set  *Set
			want map[uint64]bool
		}
		var frozen []moment
		change := func(t *rapid.T, in bool) {
			first := rapid.SampledFrom([]uint64{1, blockSeqs - 3, blockSeqs, nodeSeqs - 100, 2*nodeSeqs - 1}).Draw(t, "first") + rapid.Uint64Range(0, 200).Draw(t, "offset")
			last := first + rapid.SampledFrom([]uint64{0, 0, 1, 63, 64, 300, 1000, maxLow, blockSeqs + 7}).Draw(t, "length")
			n := uint64(0)
			for seq := first; seq <= last; seq++ {
				if want[seq] {
					n++
				}
				if in {
					want[seq] = true
				} else {
					delete(want, seq)
				}
			}
			if got := set.CountRange(first, last); got != n {
				t.Fatalf("%d of %d to %d in the set, want %d", got, first, last, n)
			}
			if in {
				set.AddRange(first, last)
			} else if got := set.RemoveRange(first, last); got != n {
				t.Fatalf("removed %d of %d to %d, want %d", got, first, last, n)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { change(t, true) },
			"remove": func(t *rapid.T) { change(t, false) },
			"freeze": func(*rapid.T) {
				if len(frozen) < 4 {
					frozen = append(frozen, moment{set.Freeze(), maps.Clone(want)})
				}
			},
			"thaw": func(*rapid.T) {
				if len(frozen) > 0 {
					last := frozen[len(frozen)-1]
					set, want = last.set.Thaw(), maps.Clone(last.want)
				}
			},
			"": func(t *rapid.T) {
				requireSeqs(t, set, want)
				if len(frozen) > 0 { // in turn, for they are many
					f := frozen[len(want)%len(frozen)]
					requireSeqs(t, f.set, f.want)
				}
			},
		})
	})
}

func requireSeqs(t *rapid.T, set *Set, want map[uint64]bool) {
	t.Helper()
	got := 0
	for seq := range everySeq(set) {
		if !want[seq] || !set.Contains(seq) {
			t.Fatalf("seq %d is in the set", seq)
		}
		got++
	}
	if got != len(want) || set.count != uint64(got) || set.CountRange(0, maxSeq) != uint64(got) {
		t.Fatalf("%d seqs of %d, counted %d", got, len(want), set.count)
	}
	for number, b := range set.all() {
		sparse := b.bits == nil && b.count < blockSeqs
		if b.count == 0 || sparse != (b.count <= maxLow) || sparse && !slices.IsSorted(b.low) || !sparse && b.low != nil {
			t.Fatalf("block %d holds %d seqs in the wrong form", number, b.count)
		}
	}
}

func everySeq(set *Set) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for number, b := range set.all() {
			for low := range b.all() {
				if !yield(number<<blockBits | uint64(low)) {
					return
				}
			}
		}
	}
}

func TestSet_survivesThePortableForm(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	set := NewSet()
	set.AddRange(1, 4*blockSeqs)
	set.AddRange(1<<33, 1<<33+5000)
	for range 30_000 {
		set.remove(1 + random.Uint64N(2*blockSeqs))
		set.Add(1<<35 + random.Uint64N(1<<26))
	}
	r, err := EncodePortable(set)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodePortable(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Collect(everySeq(set)); !slices.Equal(slices.Collect(everySeq(got)), want) || got.count != set.count {
		t.Errorf("%d seqs come back of %d", got.count, len(want))
	}
}

func TestAppend_writesWhatComesBack(t *testing.T) {
	for name, set := range map[string]*Set{"empty": NewSet(), "some": goldenSet()} {
		b := set.Append(nil)
		d := codec.NewDecoder(b)
		if got := Read(&d); d.Finish("set") != nil || !slices.Equal(got.Append(nil), b) || got.Count() != set.Count() {
			t.Errorf("%s: %d of %d seqs come back", name, got.Count(), set.Count())
		}
		for n := range len(b) {
			d := codec.NewDecoder(b[:n])
			if Read(&d); d.Finish("set") == nil {
				t.Errorf("%s: cut to %d of %d bytes it decodes", name, n, len(b))
			}
		}
	}
	for name, b := range map[string][]byte{
		"blocks out of their order": {2, 1, 0, 7, 0, 0, 0, 7, 0},
		"a block twice":             {2, 1, 0, 7, 0, 1, 0, 8, 0},
		"a block beyond all":        {1, 255, 255, 255, 255, 255, 255, 1, 0, 7, 0},
	} {
		d := codec.NewDecoder(b)
		if Read(&d); !d.Failed() {
			t.Errorf("%s: it decodes", name)
		}
	}
}

// Freeze shares all blocks; a kill copies the one that it changes, once.
func TestFreeze_copiesNothing(t *testing.T) {
	set := NewSet()
	for seq := uint64(1); seq < 100*blockSeqs; seq += 100 {
		set.Add(seq)
	}
	frozen := set.Freeze()
	set.remove(1)
	set.remove(101)
	copied := 0
	for number, b := range set.all() {
		if frozen.block(number<<blockBits) != b {
			copied++
		}
	}
	if copied != 1 || !frozen.Contains(1) || set.Contains(1) {
		t.Errorf("%d blocks of 100 were copied", copied)
	}
	if allocated := testing.AllocsPerRun(10, func() { set.Freeze() }); allocated > 2 {
		t.Errorf("freeze allocates %v times", allocated)
	}
}
