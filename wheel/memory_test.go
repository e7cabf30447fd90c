package wheel

import (
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"testing"
	"unsafe"
	"weak"
)

func TestWheel_allocatesNothingInSteadyState(t *testing.T) {
	const n = 20_000
	w := New[uint64](0)
	r := rand.New(rand.NewPCG(1, 1))
	handles := make([]Handle, n)
	for i := range handles {
		handles[i], _ = w.Add(1+r.Uint64N(n), uint64(i))
	}
	buf := make([]Expired[uint64], 0, 64)
	now := uint64(0)
	step := func() {
		now++
		for more := true; more; {
			var due []Expired[uint64]
			due, more = w.Advance(now, buf)
			for _, e := range due { // what fires, and some that was cancelled, is added again
				handles[e.Value], _ = w.Add(now+1+r.Uint64N(n), e.Value)
			}
		}
		i := r.IntN(n)
		w.Cancel(handles[i])
		handles[i], _ = w.Add(now+1+r.Uint64N(n), uint64(i))
		i = r.IntN(n)
		handles[i], _ = w.Move(handles[i], now+n)
		w.Maintain(now, 4)
	}
	for range 4 * n {
		step()
	}
	if allocs := testing.AllocsPerRun(n, step); allocs != 0 {
		t.Errorf("%v allocations per step, want 0", allocs)
	}
	if w.Len() != n {
		t.Errorf("Len() = %d, want %d", w.Len(), n)
	}
}

// held returns the bytes of a wheel's slab and chunks.
func held[T any](w *Wheel[T]) int {
	return len(w.slab.pages)*int(unsafe.Sizeof(page[T]{})) +
		len(w.chunks.pages)*int(unsafe.Sizeof([chunkPageCount]chunk{}))
}

func TestWheel_memoryPerTimerIsBounded(t *testing.T) {
	const n = 1_000_000
	d := delays(n, day)
	w := New[uint64](0)
	for i, when := range d {
		w.Add(when, uint64(i))
	}
	if per := float64(held(w)) / n; per > 25 {
		t.Errorf("%.1f bytes per timer, want 25 at most", per)
	}
	if per := churned(day); per > 40 {
		t.Errorf("%.1f bytes per timer after churn, want 40 at most", per)
	}
	if per := churned(1); per > 40 {
		t.Errorf("%.1f bytes per timer after churn at one tick, want 40 at most", per)
	}
}

// churned returns the bytes per timer when each was replaced three times, on
// average, by one within span.
func churned(span uint64) float64 {
	const n = 300_000
	w := New[uint64](0)
	r := rand.New(rand.NewPCG(2, 2))
	handles := make([]Handle, n)
	for i := range handles {
		handles[i], _ = w.Add(day+r.Uint64N(span), 0)
	}
	for range 3 * n {
		i := r.IntN(n)
		w.Cancel(handles[i])
		handles[i], _ = w.Add(day+r.Uint64N(span), 0)
	}
	return float64(held(w)) / n
}

// AllocsPerRun does not see what is allocated less than once in a run.
func TestWheel_memoryIsBackAfterEachRound(t *testing.T) {
	for name, takeOut := range map[string]func(w *Wheel[uint64], now uint64){
		"fired": func(w *Wheel[uint64], now uint64) {
			for more := true; more; {
				_, more = w.Advance(now, make([]Expired[uint64], 0, 512))
			}
		},
		"drained": func(w *Wheel[uint64], _ uint64) {
			for range w.Drain() {
			}
		},
	} {
		w := New[uint64](0)
		before := 0
		for round := range uint64(60) {
			for i := range uint64(20_000) {
				w.Add(round<<20+i*977%1_000_000, i)
			}
			takeOut(w, (round+1)<<20)
			if round == 2 {
				before = held(w)
			}
		}
		if after := held(w); after != before {
			t.Errorf("%s: %d bytes after three rounds, %d after many", name, before, after)
		}
	}
}

func TestWheel_memoryOfCancelledTimersIsReused(t *testing.T) {
	w := New[uint64](0)
	for i := range uint64(1_000_000) {
		h, _ := w.Add(1000+i%day, i)
		w.Cancel(h)
	}
	if bytes := held(w); bytes > 4<<20 {
		t.Errorf("an empty wheel holds %d bytes after a million timers were cancelled", bytes)
	}
	back := New[uint64](1 << 40) // the same behind the cursor
	for i := range uint64(1_000_000) {
		h, _ := back.Add(1000+i%day, i)
		back.Cancel(h)
	}
	if n := len(back.behind.heap); n > 2*sweepSlack {
		t.Errorf("%d cancelled timers are left behind the cursor", n)
	}
}

// scannable returns the bytes of heap that a garbage collection has to scan.
func scannable() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestWheel_givesTheCollectorNothingToScan(t *testing.T) {
	before := scannable()
	w := New[uint64](0)
	for i := range uint64(1_000_000) {
		w.Add(i*977, i)
	}
	if grown := int64(scannable()) - int64(before); grown > 1<<20 {
		t.Errorf("a million timers are %d more bytes to scan", grown)
	}
	runtime.KeepAlive(w)
}

func TestWheel_letsGoOfValues(t *testing.T) {
	w := New[*[100]byte](0)
	add := func(when uint64) (Handle, weak.Pointer[[100]byte]) {
		v := new([100]byte)
		h, _ := w.Add(when, v)
		return h, weak.Make(v)
	}
	_, fired := add(5)
	cancelled, cancelledValue := add(10)
	nearer, movedValue := add(1000)
	sorted, sortedValue := add(5000)
	_, kept := add(6000)
	_, _ = w.Advance(5, nil)
	w.Cancel(cancelled)
	nearer, _ = w.Move(nearer, 20)
	w.Cancel(nearer)
	_, _ = w.Advance(4096, nil) // opens the slot of the later two
	if w.run.len() != 2 {
		t.Fatalf("%d timers are sorted, want two", w.run.len())
	}
	w.Cancel(sorted)
	runtime.GC()
	for name, p := range map[string]weak.Pointer[[100]byte]{
		"fired": fired, "cancelled": cancelledValue, "moved and cancelled": movedValue, "sorted and cancelled": sortedValue,
	} {
		if p.Value() != nil {
			t.Errorf("the wheel keeps the value of a timer that was %s", name)
		}
	}
	if kept.Value() == nil {
		t.Error("the value of a pending timer was collected")
	}
	runtime.KeepAlive(w)
}

// holds checks that each timer fires with its own value.
func holds[T comparable](t *testing.T, value func(i uint64) T) {
	const n, apart = 3000, 977
	w := New[T](0)
	for i := range uint64(n) {
		w.Add(i*apart, value(i))
	}
	fired := 0
	for more := true; more; {
		var due []Expired[T]
		due, more = w.Advance(n*apart, nil)
		for _, e := range due {
			if e.Value != value(e.When/apart) {
				t.Fatalf("%T: the timer at %d fired with another's value", e.Value, e.When)
			}
		}
		fired += len(due)
	}
	if err := w.broken(); fired != n || err != nil {
		t.Errorf("%T: %d of %d fired, %v", value(0), fired, n, err)
	}
}

func TestWheel_holdsValuesOfAnySize(t *testing.T) {
	holds(t, func(uint64) struct{} { return struct{}{} })
	holds(t, func(i uint64) byte { return byte(i) })
	holds(t, func(i uint64) [3]uint16 { return [3]uint16{2: uint16(i)} })
	holds(t, func(i uint64) [200]byte { return [200]byte{199: byte(i)} })
	holds(t, func(i uint64) any { return i })
}
