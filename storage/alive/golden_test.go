package alive

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/internal/golden"
)

func goldenSet() *Set {
	set := NewSet()
	set.AddRange(5, 199)
	set.Add(1 << 33)
	return set
}

func TestGolden_portable(t *testing.T) {
	want := goldenSet()
	r, err := EncodePortable(want)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := codec.Open("alive-set", 1, golden.Compare(t, "manifest_alive", codec.Seal(r)))
	if err != nil {
		t.Fatal(err)
	}
	if set, err := DecodePortable(sealed); err != nil || !reflect.DeepEqual(set, want) {
		t.Errorf("alive-set %v, error %v", set, err)
	}
}

func TestGolden_aliveFile(t *testing.T) {
	set := goldenSet()
	set.AddRange(3*blockSeqs, 4*blockSeqs-1)
	set.AddRange(5*blockSeqs, 5*blockSeqs+maxLow)
	base := golden.Compare(t, "alive_base", encodedBase(set))
	got, _, err := decodeFile(bytes.NewReader(base), int64(len(base)), nil)
	if err != nil || !slices.Equal(encodedBase(got), base) {
		t.Errorf("base of %d seqs is read as %d (error %v)", set.count, got.count, err)
	}
	then, before, after := set.Freeze(), uint64(1<<33+1), uint64(1<<33+100)
	set.AddRange(before, after-1)
	set.RemoveRange(7, 9)
	set.remove(100)
	set.RemoveRange(1<<33, 1<<33+4)
	change := golden.Compare(t, "alive_change", EncodeChange(then, set, before, after))
	got, next, err := decodeFile(bytes.NewReader(base), int64(len(base)), change)
	if err != nil || next != after || !slices.Equal(encodedBase(got), encodedBase(set)) {
		t.Errorf("change to %d of %d seqs is read as one of %d (error %v)", set.count, next, got.count, err)
	}
}
