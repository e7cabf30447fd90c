package wheel

import "testing"

// refused checks that nothing answers to h.
func refused(t *testing.T, w *Wheel[int], h Handle, after string) {
	t.Helper()
	if w.Cancel(h) {
		t.Errorf("after %s: Cancel hit a timer", after)
	}
	if e, ok := w.Get(h); ok {
		t.Errorf("after %s: Get hit %+v", after, e)
	}
	if moved, ok := w.Move(h, w.cursor+5); ok || moved != 0 {
		t.Errorf("after %s: Move = %#x, %v", after, moved, ok)
	}
}

func TestHandle_isStaleOnceItsTimerIsGone(t *testing.T) {
	w := New[int](0)
	h, _ := w.Add(10, 1)
	w.Advance(10, nil)
	refused(t, w, h, "firing")

	h, _ = w.Add(20, 2)
	w.Cancel(h)
	refused(t, w, h, "cancelling")

	h, _ = w.Add(20, 3)
	nearer, ok := w.Move(h, 15)
	if !ok || nearer == h {
		t.Fatalf("Move to a nearer tick = %#x, %v, want a new handle", nearer, ok)
	}
	refused(t, w, h, "moving")

	for range w.Drain() {
	}
	refused(t, w, nearer, "draining")
}

func TestHandle_ofAReusedIdIsNotSomebodyElses(t *testing.T) {
	w := New[int](0)
	var stale []Handle
	for i := range 1000 {
		h, _ := w.Add(uint64(i), i)
		w.Advance(uint64(i), nil)
		stale = append(stale, h)
	}
	if w.slab.next != 2 {
		t.Fatalf("%d ids in use, want 1: nothing was reused", w.slab.next-1)
	}
	w.Add(5000, -1)
	for _, h := range stale {
		refused(t, w, h, "reuse")
	}
}

func TestHandle_zeroForeignAndMadeUpOnesAreRefused(t *testing.T) {
	w := New[int](0)
	refused(t, w, 0, "nothing")
	w.Add(5, 1)
	for _, h := range []Handle{0, 1, 1 << 32, 1<<32 | 1<<16 | 1, 2<<32 | 1, 1<<32 | 2, ^Handle(0)} {
		refused(t, w, h, "an Add")
	}
	if w.Len() != 1 {
		t.Fatalf("Len() = %d, want 1", w.Len())
	}
}

func TestHandle_staysTheSameWhenPostponed(t *testing.T) {
	w := New[int](0)
	h, _ := w.Add(10, 1)
	for _, when := range []uint64{10, 11, 1000, 1 << 33, MaxTick} {
		if moved, ok := w.Move(h, when); !ok || moved != h {
			t.Fatalf("Move to %d = %#x, %v, want the same handle", when, moved, ok)
		}
		if due, _ := w.Advance(when-1, nil); len(due) != 0 {
			t.Fatalf("postponed to %d, fired %v", when, due)
		}
	}
	if due, _ := w.Advance(MaxTick, nil); len(due) != 1 {
		t.Fatalf("fired %v at the end, want the timer", due)
	}
}

// A timer at the cursor is not behind it: it has not passed while Advance has not
// come to it.
func TestHandle_ofATimerAtTheCursorIsAsAnyOther(t *testing.T) {
	w := New[int](0)
	w.Add(5, 0)
	moved, _ := w.Add(5, 1)
	w.Advance(5, make([]Expired[int], 0, 1))
	if h, ok := w.Move(moved, 10); !ok || h != moved {
		t.Errorf("Move = %#x, %v, want the same handle", h, ok)
	}
	w.Add(10, 2)
	w.Advance(10, make([]Expired[int], 0, 1))
	w.Cancel(moved)
	if err := w.broken(); err != nil || w.cursor != 10 {
		t.Errorf("at %d: %v", w.cursor, err)
	}
}

func TestHandle_wornOutIdRestsUntilItsPageIsWornOut(t *testing.T) {
	w := New[int](0)
	first, _ := w.Add(0, 0)
	w.Cancel(first)
	w.Advance(0, nil)
	last := first
	for i := 0; ; i++ { // 14 bits of generation
		h, _ := w.Add(uint64(i), i)
		w.Advance(uint64(i), nil)
		if h.id() != first.id() {
			break
		}
		if h == first || i > 1<<14 {
			t.Fatalf("id %d is used for the %dth time, with handle %#x", h.id(), i, h)
		}
		last = h
	}
	refused(t, w, first, "wear")
	refused(t, w, last, "wear")
	if err := w.broken(); err != nil {
		t.Fatal(err)
	}
}

func TestHandle_pageStartsANewEpochWhenAllItsIdsAreWornOut(t *testing.T) {
	w := New[int](0)
	var last []Handle
	fill := func() {
		last = last[:0]
		for i := range pageSize - 1 {
			h, _ := w.Add(1, i)
			last = append(last, h)
		}
	}
	fill()
	old := append([]Handle(nil), last...)
	page := w.slab.pages[0]
	wear := func() { // as if all had been used 16,382 times
		for i := 1; i < pageSize; i++ {
			page.state[i] = wornOut - use | live
		}
	}
	wear()
	for i := range last {
		last[i] = newHandle(last[i].id(), 0, wornOut-use|live)
	}
	old = append(old, last...)
	for _, h := range last {
		if !w.Cancel(h) {
			t.Fatalf("Cancel of %#x failed", h)
		}
	}
	w.Advance(1, nil)
	fill()
	if len(w.slab.pages) != 1 || last[0].epoch() != nextEpoch {
		t.Fatalf("%d pages, epoch %d; want the one page again, in the next epoch", len(w.slab.pages), last[0].epoch())
	}
	for _, h := range old {
		refused(t, w, h, "an epoch")
	}
	if err := w.broken(); err != nil {
		t.Fatal(err)
	}

	for _, h := range last {
		w.Cancel(h)
	}
	w.Advance(1, nil)
	page.state[0] = lastEpoch
	fill()
	wear()
	for more := true; more; {
		_, more = w.Advance(2, nil)
	}
	if h, _ := w.Add(3, 0); h.id() < pageSize {
		t.Fatalf("id %d of a page that is worn out for ever is used again", h.id())
	}
}
