package memtable

import (
	"errors"
	"testing"

	"github.com/carillonmq/carillon/storage/segment"
)

// A table is read some entries at a time; nobody sees where one lot ends and the next begins.
func TestEach_readsEachOnceInOrder(t *testing.T) {
	for _, count := range []int{0, 1, readAhead - 1, readAhead, readAhead + 1, 3*readAhead + 7} {
		m := New(1)
		for i := range count {
			m.Add(&segment.Entry{Due: int64(count - i), Seq: m.Next(), Target: "orders"})
		}
		read := 0
		if err := m.Each(func(e *segment.Entry) error {
			if read++; e.Due != int64(read) {
				t.Fatalf("%d entries: number %d is due at %d", count, read, e.Due)
			}
			return nil
		}); err != nil || read != count {
			t.Errorf("%d of %d entries were read (error %v)", read, count, err)
		}

		stop, read := errors.New("stop"), 0
		err := m.Each(func(*segment.Entry) error { read++; return stop })
		if want := min(count, 1); read != want || count > 0 && !errors.Is(err, stop) {
			t.Errorf("%d entries: %d were read though the first one ended it (error %v)", count, read, err)
		}
	}
}
