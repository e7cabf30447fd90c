package wheel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// wearAll leaves a single use to every id that is not in use.
func (s *slab[T]) wearAll() {
	for _, p := range s.pages {
		for i := 1; i < pageSize; i++ {
			if p.state[i]&live == 0 && p.state[i] < wornOut {
				p.state[i] = wornOut - use
			}
		}
	}
}

// drain takes up to n timers out.
func (m *model) drain(n int) {
	for e := range m.wheel.Drain() {
		i := slices.IndexFunc(m.pending, func(t *modelTimer) bool { return t.value == e.Value })
		if i < 0 || m.pending[i].when != e.When {
			m.Fatalf("Drain yielded %+v, which is not pending", e)
		}
		m.stale = append(m.stale, m.pending[i].handle)
		m.pending = slices.Delete(m.pending, i, i+1)
		if n--; n == 0 {
			return
		}
	}
}

// Every id wears out at its first use, pages start new epochs all the time, and
// the first page comes to its last one.
func TestWheel_agreesWithSortedModelWhileIdsWearOut(t *testing.T) {
	renewed, ended := 0, 0
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 7))
		m := newModel(t, cursors[int(seed)%len(cursors)])
		s := &m.wheel.slab
		s.open()
		s.pages[0].state[0] = lastEpoch - 2*nextEpoch
		for i := range 1500 {
			step(m, byte(r.UintN(12)), byte(r.UintN(8)), uint16(r.UintN(1<<16)))
			if r.IntN(100) == 0 {
				m.drain(r.IntN(2) * 20)
			}
			s.wearAll()
			if i%50 == 0 {
				m.stale = m.stale[max(len(m.stale)-3000, 0):]
				m.check()
			}
		}
		m.finish(MaxTick, 100)
		m.check()
		for _, p := range s.pages {
			renewed += int(p.epoch() / nextEpoch % (lastEpoch/nextEpoch - 2))
		}
		if s.pages[0].epoch() == lastEpoch {
			ended++
		}
	}
	if renewed == 0 || ended == 0 {
		t.Errorf("%d renewals, %d pages at their end: nothing was tried", renewed, ended)
	}
}

func TestDrain_countsWornOutIdsAnew(t *testing.T) {
	w := New[int](0)
	w.Add(1, 1)
	w.slab.pages[0].state[1] = wornOut - use | live
	for range 3 {
		for range w.Drain() {
		}
		w.Add(1, 2)
		if err := w.broken(); err != nil {
			t.Fatal(err)
		}
	}
}

// firstWorn returns a wheel whose first page is worn out but for the given number
// of timers, and whose second page is full of pending ones.
func firstWorn(kept int) *Wheel[int] {
	const per = pageSize - 1
	w := New[int](0)
	for i := range 2 * per {
		w.Add(1000, i)
	}
	p := w.slab.pages[0]
	for i := 1 + kept; i < pageSize; i++ {
		p.state[i] = wornOut - use | live
		w.Cancel(w.slab.handle(uint32(i)))
	}
	for i := range kept {
		w.Move(w.slab.handle(uint32(i+1)), 2000)
	}
	for i := range per {
		w.Move(w.slab.handle(uint32(pageSize+i+1)), 2000)
	}
	for more := true; more; {
		_, more = w.Advance(1000, make([]Expired[int], 0, 10))
	}
	return w
}

func TestDrain_yieldsOtherPagesThanTheOneInItsNextEpoch(t *testing.T) {
	for _, added := range []int{10, pageSize - 1} { // the page is begun, and used up
		w := firstWorn(0)
		for range added {
			w.Add(3000, 0)
		}
		if len(w.slab.pages) != 2 || w.slab.pages[0].epoch() != nextEpoch {
			t.Fatalf("%d pages, the first in epoch %d", len(w.slab.pages), w.slab.pages[0].epoch())
		}
		want, yielded := w.Len(), 0
		for range w.Drain() {
			yielded++
		}
		if yielded != want || w.Len() != 0 {
			t.Errorf("%d added: Drain yielded %d of %d, left %d", added, yielded, want, w.Len())
		}
	}
}

func TestHandle_pageWithAPendingTimerKeepsItsEpoch(t *testing.T) {
	w := firstWorn(1)
	h := w.slab.handle(1)
	w.Add(3000, 0)
	if e, ok := w.Get(h); !ok || e.Value != 0 {
		t.Errorf("Get = %+v, %v, want the first timer", e, ok)
	}
	if err := w.broken(); err != nil {
		t.Error(err)
	}
}
