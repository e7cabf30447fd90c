package name

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/internal/golden"
)

// filtersOf writes the filters of hashes in order, as a segment does.
func filtersOf(t testing.TB, hashes []Hash) (values [][]byte) {
	t.Helper()
	var b FilterBuilder
	put := func(next *Hash) {
		value, err := b.Finish(uint32(len(values)), next)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	for i := range hashes {
		if b.Full(&hashes[i]) {
			put(&hashes[i])
		}
		b.Add(&hashes[i])
	}
	put(nil)
	return values
}

func hashes(n int) []Hash {
	all := make([]Hash, n)
	for i := range all {
		all[i] = Of("orders.delay", fmt.Sprint(i))
	}
	slices.SortFunc(all, func(a, b Hash) int { return bytes.Compare(a[:], b[:]) })
	return all
}

// No name that is there is denied, however many there are and however many filters they take.
func TestFilters_denyNoneThatIsThere(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 10, 100, 1000, filterNames - 1, filterNames, filterNames + 1, 2*filterNames + 3} {
		all := hashes(n)
		all = append(all, all[n-1]) // a name that has two rows
		values := filtersOf(t, all)
		var filters Filters
		var bytes int
		for _, value := range values {
			var err error
			if filters, err = filters.Add(value); err != nil {
				t.Fatal(err)
			}
			bytes += len(value)
		}
		if want := (n + filterNames - 1) / filterNames; len(filters) != want || !filters.Whole() {
			t.Fatalf("%d names take %d filters", n, len(filters))
		}
		for _, h := range all {
			if !filters.May(&h) {
				t.Fatalf("one of %d names is denied", n)
			}
		}
		wrong := 0
		for i := range 10_000 {
			if h := Of("payments.delay", fmt.Sprint(i)); filters.May(&h) {
				wrong++
			}
		}
		if n > 10 && wrong > 100 {
			t.Errorf("%d of 10000 names pass that are not there, of %d", wrong, n)
		}
		t.Logf("%d names: %d filters, %.2f bits each, %d of 10000 others pass", n, len(filters), 8*float64(bytes)/float64(n), wrong)
	}
}

func TestFilters_noticeAnyFlippedBit(t *testing.T) {
	value := filtersOf(t, hashes(50))[0]
	for i := range value {
		for bit := range 8 {
			value[i] ^= 1 << bit
			if _, err := Filters(nil).Add(value); !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
			value[i] ^= 1 << bit
		}
	}
}

// Each filter names the one before: none may be missing, or come twice.
func TestFilters_areWhole(t *testing.T) {
	values := filtersOf(t, hashes(2*filterNames+3))
	var first, second Filters
	first, err := first.Add(values[0])
	if err != nil || first.Whole() {
		t.Fatalf("one of three is all: %v", err)
	}
	for name, broken := range map[string][2]int{"twice": {0, 0}, "one left out": {0, 2}} {
		if second, err = Filters(nil).Add(values[broken[0]]); err != nil {
			t.Fatal(err)
		}
		if _, err := second.Add(values[broken[1]]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Filters(nil).May(&Hash{}) {
		t.Error("a segment without rows may have a name")
	}
}

func TestGolden_filter(t *testing.T) {
	all := hashes(20)
	filters, err := Filters(nil).Add(golden.Compare(t, "filter", filtersOf(t, all)[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if !filters.May(&h) {
			t.Errorf("%x is denied", h)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(filtersOf(f, hashes(20))[0], true)
	f.Fuzz(func(t *testing.T, value []byte, fixChecksum bool) {
		if fixChecksum && len(value) > 4 {
			binary.BigEndian.PutUint32(value, codec.Checksum(value[4:]))
		}
		filters, err := Filters(nil).Add(value)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		for i := range 256 {
			filters.May(&Hash{byte(i), 7: byte(i)})
		}
	})
}
