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
