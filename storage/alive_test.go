package storage

import (
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAliveSet_equalsMap changes a set at random, across the ends of blocks and
// nodes, and compares it and all that was frozen from it with maps.
func TestAliveSet_equalsMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, want := newAliveSet(), map[uint64]bool{}
		type moment struct {
			set  *aliveSet
			want map[uint64]bool
		}
		var frozen []moment
		change := func(t *rapid.T, in bool) {
			first := rapid.SampledFrom([]uint64{1, blockSeqs - 3, blockSeqs, nodeSeqs - 100, 2*nodeSeqs - 1}).Draw(t, "first") + rapid.Uint64Range(0, 200).Draw(t, "offset")
			run := SeqRun{first, first + rapid.SampledFrom([]uint64{0, 0, 1, 63, 64, 300, 1000, maxLow, blockSeqs + 7}).Draw(t, "length")}
			n := uint64(0)
			for seq := run.First; seq <= run.Last; seq++ {
				if want[seq] {
					n++
				}
				if in {
					want[seq] = true
				} else {
					delete(want, seq)
				}
			}
			if got := set.countRange(run); got != n {
				t.Fatalf("%d of %v in the set, want %d", got, run, n)
			}
			if in {
				set.addRange(run)
			} else if got := set.removeRange(run); got != n {
				t.Fatalf("removed %d of %v, want %d", got, run, n)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { change(t, true) },
			"remove": func(t *rapid.T) { change(t, false) },
			"freeze": func(*rapid.T) {
				if len(frozen) < 4 {
					frozen = append(frozen, moment{set.freeze(), maps.Clone(want)})
				}
			},
			"thaw": func(*rapid.T) {
				if len(frozen) > 0 {
					last := frozen[len(frozen)-1]
					set, want = last.set.thaw(), maps.Clone(last.want)
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

func requireSeqs(t *rapid.T, set *aliveSet, want map[uint64]bool) {
	t.Helper()
	got := 0
	for seq := range everySeq(set) {
		if !want[seq] || !set.contains(seq) {
			t.Fatalf("seq %d is in the set", seq)
		}
		got++
	}
	if got != len(want) || set.count != uint64(got) || set.countRange(SeqRun{0, maxSeq}) != uint64(got) {
		t.Fatalf("%d seqs of %d, counted %d", got, len(want), set.count)
	}
	for number, b := range set.all() {
		sparse := b.bits == nil && b.count < blockSeqs
		if b.count == 0 || sparse != (b.count <= maxLow) || sparse && !slices.IsSorted(b.low) || !sparse && b.low != nil {
			t.Fatalf("block %d holds %d seqs in the wrong form", number, b.count)
		}
	}
}

func everySeq(set *aliveSet) iter.Seq[uint64] {
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

func TestAliveSet_survivesThePortableForm(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	set := newAliveSet()
	set.addRange(SeqRun{1, 4 * blockSeqs})
	set.addRange(SeqRun{1 << 33, 1<<33 + 5000})
	for range 30_000 {
		set.remove(1 + random.Uint64N(2*blockSeqs))
		set.add(1<<35 + random.Uint64N(1<<26))
	}
	r, err := encodeAlive(set)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeAlive(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Collect(everySeq(set)); !slices.Equal(slices.Collect(everySeq(got)), want) || got.count != set.count {
		t.Errorf("%d seqs come back of %d", got.count, len(want))
	}
}

// Freeze shares all blocks; a kill copies the one that it changes, once.
func TestFreeze_copiesNothing(t *testing.T) {
	set := newAliveSet()
	for seq := uint64(1); seq < 100*blockSeqs; seq += 100 {
		set.add(seq)
	}
	frozen := set.freeze()
	set.remove(1)
	set.remove(101)
	copied := 0
	for number, b := range set.all() {
		if frozen.block(number<<blockBits) != b {
			copied++
		}
	}
	if copied != 1 || !frozen.contains(1) || set.contains(1) {
		t.Errorf("%d blocks of 100 were copied", copied)
	}
	if allocated := testing.AllocsPerRun(10, func() { set.freeze() }); allocated > 2 {
		t.Errorf("freeze allocates %v times", allocated)
	}
}
