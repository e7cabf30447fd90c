package alive

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/carillonmq/carillon/storage/codec"
	"pgregory.net/rapid"
)

func encodedBase(set *Set) []byte { return slices.Concat(slices.Collect(copied(set))...) }

// copied yields the pieces to keep.
func copied(set *Set) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for piece := range set.basePieces() {
			if !yield(bytes.Clone(piece)) {
				return
			}
		}
	}
}

func TestFile_survivesBaseAndChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, next := NewSet(), uint64(1)
		births := rapid.Uint64Range(0, 3*blockSeqs)
		live := func(t *rapid.T) {
			if n := births.Draw(t, "born"); n > 0 {
				set.AddRange(next, next+n-1)
				next += n
			}
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
			for range rapid.IntRange(0, 300).Draw(t, "killed") {
				first := random.Uint64N(next)
				set.RemoveRange(first, first+random.Uint64N(1<<random.IntN(18)))
			}
		}
		live(t)
		then, before := set.Freeze(), next
		base := encodedBase(then)
		if got := then.BaseSize(); got != int64(len(base)) {
			t.Fatalf("a base of %d bytes was announced with %d", len(base), got)
		}
		var changes []byte
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			live(t)
			now := set.Freeze()
			changes = append(changes, EncodeChange(then, now, before, next)...)
			then, before = now, next
		}
		got, _, err := decodeFile(bytes.NewReader(base), int64(len(base)), changes)
		if err != nil {
			t.Fatal(err)
		}
		if got.count != set.count || !slices.Equal(encodedBase(got), encodedBase(set)) {
			t.Fatalf("%d seqs come back of %d", got.count, set.count)
		}
	})
}

// A change kills what is in no block, at the beginning of many pieces: that is damage,
// and who reads the others ahead ends with it.
func TestDecodeFile_endsAtItsFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := NewSet()
		for block := uint64(1); block < 400; block++ {
			set.AddRange(block<<blockBits, block<<blockBits+maxLow)
		}
		base := encodedBase(set)
		if len(base) < 20*pieceSize {
			t.Fatalf("a base of %d bytes", len(base))
		}
		none := Set{epoch: 1}
		none.AddRange(5, 5)
		next := uint64(500 << blockBits)
		change := EncodeChange(none.Freeze(), NewSet(), next, next)
		if _, _, err := decodeFile(bytes.NewReader(base), int64(len(base)), change); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("got %v", err)
		}
	})
}

// Pieces are decoded by several, and each may be the damaged one.
func TestDecodeFile_reportsDamageToAnyPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := NewSet()
		for block := uint64(0); block < 400; block++ {
			set.AddRange(block<<blockBits, block<<blockBits+maxLow)
		}
		base := encodedBase(set)
		for at := pieceSize / 2; at < len(base); at += pieceSize {
			base[at] ^= 4
			if _, _, err := decodeFile(bytes.NewReader(base), int64(len(base)), nil); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("byte %d of %d: %v", at, len(base), err)
			}
			base[at] ^= 4
		}
		if got, _, err := decodeFile(bytes.NewReader(base), int64(len(base)), nil); err != nil || got.count != set.count {
			t.Errorf("repaired: %v", err)
		}
	})
}

// A kill at random takes three bytes, not the page that it lies in.
func TestEncodeChange_isSmall(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	set := NewSet()
	for seq := uint64(1); seq < 1<<26; seq += 1 + random.Uint64N(199) {
		set.Add(seq)
	}
	then, killed := set.Freeze(), 0
	for range 3000 {
		for seq := range set.Within(random.Uint64N(1<<26), 1<<26) {
			set.remove(seq)
			killed++
			break
		}
	}
	if size := len(EncodeChange(then, set, 1<<26, 1<<26)) - pieceFrame; size > 3*killed+10 {
		t.Errorf("%d kills take %d bytes", killed, size)
	}
	then = set.Freeze()
	set.RemoveRange(1, 1<<25)
	if size := len(EncodeChange(then, set, 1<<26, 1<<26+1000)) - pieceFrame; size > 3*int(then.count-set.count) {
		t.Errorf("half of all take %d bytes", size)
	}
}
