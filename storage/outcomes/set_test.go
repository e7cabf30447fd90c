package outcomes

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonmq/carillon/storage/name"
)

// model is the outcomes as a list of each class, oldest first.
type model struct {
	keep  Keep
	since int64
	all   [3][]noted // ends, refusals, answers
	count int        // of all that ever were
}

type noted struct {
	Outcome
	number int // in which order they came
}

// of returns which it counts among.
func of(o Outcome) int {
	return map[Kind]int{Refused: 1, RefusedRecord: 1, Answered: 2}[o.Kind]
}

func (m *model) add(o Outcome) {
	m.all[of(o)] = append(m.all[of(o)], noted{o, m.count})
	m.count++
}

func (m *model) forget(now int64, most int) {
	for class, count := range []uint64{m.keep.Count, (m.keep.Count + 9) / 10, m.keep.Count} {
		all := m.all[class]
		for left := most; left > 0 && len(all) > 0 && (uint64(len(all)) > count || all[0].At < now-m.keep.For); left-- {
			if class == 0 {
				m.since = max(m.since, all[0].At+1)
			}
			all = all[1:]
		}
		m.all[class] = all
	}
}

// known returns all as Frozen.All has them.
func (m *model) known() (known []Outcome) {
	for _, all := range m.all {
		for _, o := range all {
			known = append(known, o.Outcome)
		}
	}
	return known
}

func (m *model) newest(id name.Hash) (best Outcome, ok bool) {
	for _, o := range m.all[0] {
		if o.Name == id && o.Seq >= best.Seq {
			best, ok = o.Outcome, true
		}
	}
	return best, ok
}

func (m *model) answered(key name.Hash) (last Outcome, ok bool) {
	for _, o := range m.all[2] {
		if o.Name == key {
			last, ok = o.Outcome, true
		}
	}
	return last, ok
}

func (m *model) life(id name.Hash) (life []Outcome) {
	both := slices.SortedFunc(slices.Values(slices.Concat(m.all[0], m.all[1])), func(a, b noted) int { return a.number - b.number })
	for _, o := range both {
		if o.Name == id {
			life = append(life, o.Outcome)
		}
	}
	return life[max(0, len(life)-lifeMost):]
}

// ids are few, so that they come again and collide, and many.
func id(number uint64) name.Hash { return name.Of("orders.delay", fmt.Sprint(number)) }

func draw(random *rand.Rand, ids uint64, at int64) Outcome {
	o := Outcome{
		Name: id(random.Uint64N(ids)), Kind: Kind(1 + random.IntN(8)), Seq: 1 + random.Uint64N(1<<20),
		Due: random.Int64N(1<<40) - 1<<39, At: at + random.Int64N(3), Target: fmt.Sprint("orders", random.Uint64N(ids)%700),
	}
	switch o.Kind {
	case Delivered, DeadLettered:
		o.Partition, o.Offset = random.Int32N(1000)-1, random.Int64N(1<<40)-1
	case Replaced:
		o.By = o.Seq + 1
	case Refused:
		o.Seq = 0
	case RefusedRecord:
		o.Seq, o.Partition, o.Offset = 0, random.Int32N(1000), random.Int64N(1<<40)
	case Answered:
		o.Partition, o.By = random.Int32N(9), random.Uint64()
	}
	return o
}

func requireSame(t *rapid.T, what string, got *Frozen, want *model) {
	t.Helper()
	if all, wanted := slices.Collect(got.All()), want.known(); !slices.Equal(wanted, all) {
		t.Fatalf("%s (-want +got):\n%s", what, gocmp.Diff(wanted, all))
	}
	if got.Since() != want.since || got.keep != want.keep || got.Count() != uint64(len(want.known())) {
		t.Fatalf("%s: %d since %d, keeps %v; want %d since %d, %v", what, got.Count(), got.Since(), got.keep, len(want.known()), want.since, want.keep)
	}
}

func requireAnswers(t *rapid.T, s *Set, m *model, ids uint64) {
	t.Helper()
	for number := range min(ids, 12) {
		got, ok := s.Newest(id(number))
		want, there := m.newest(id(number))
		if ok != there || ok && got != want {
			t.Fatalf("newest of %d is %+v (%t), want %+v (%t)", number, got, ok, want, there)
		}
		got, ok = s.Answered(id(number))
		want, there = m.answered(id(number))
		if ok != there || ok && got != want {
			t.Fatalf("answer to %d is %+v (%t), want %+v (%t)", number, got, ok, want, there)
		}
		if want, got := m.life(id(number)), s.Life(id(number)); !slices.Equal(want, got) {
			t.Fatalf("life of %d (-want +got):\n%s", number, gocmp.Diff(want, got))
		}
	}
}

// TestSet_equalsModel adds and forgets, freezes and goes on, from row 0 and from where the numbers
// of slots begin again.
func TestSet_equalsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		ids := rapid.SampledFrom([]uint64{1, 5, 3000}).Draw(t, "ids")
		s, m, now := NewSet(), &model{keep: DefaultKeep}, int64(0)
		first := rapid.SampledFrom([]uint64{0, slotRows - 700}).Draw(t, "first")
		for c := range s.lists {
			s.lists[c].first, s.lists[c].next = first, first
		}
		frozen, then := s.Freeze(), *m
		add := func(n int) {
			for range n {
				now += random.Int64N(2)
				o := draw(random, ids, now)
				s.Add(o)
				m.add(o)
				s.Forget(now, 2)
				m.forget(now, 2)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add":  func(t *rapid.T) { add(rapid.IntRange(1, 20).Draw(t, "n")) },
			"many": func(t *rapid.T) { add(rapid.IntRange(300, 1200).Draw(t, "n")) },
			"pass": func(t *rapid.T) {
				now += rapid.Int64Range(0, 500).Draw(t, "ms")
				most := rapid.SampledFrom([]int{1, 100, 3000}).Draw(t, "most")
				s.Forget(now, most)
				m.forget(now, most)
			},
			"keep": func(t *rapid.T) {
				m.keep = Keep{
					For:   rapid.SampledFrom([]int64{0, 300, 2000, DefaultKeep.For}).Draw(t, "for"),
					Count: rapid.SampledFrom([]uint64{0, 7, 1500, DefaultKeep.Count}).Draw(t, "count"),
				}
				s.SetKeep(m.keep)
			},
			"freeze": func(*rapid.T) {
				frozen, then = s.Freeze(), *m

			},
			"thaw": func(*rapid.T) { // the one that goes on is given up, as for a reload
				s = s.Freeze().Thaw()
			},
			"back": func(*rapid.T) {
				gone := s
				s, *m = frozen.Thaw(), then

				gone.Add(draw(random, ids, now)) // does no harm to what goes on in its place
			},
			"": func(t *rapid.T) {
				requireSame(t, "set", s.Freeze(), m)
				requireSame(t, "frozen", frozen, &then)
				requireAnswers(t, s, m, ids)
			},
		})
	})
}

// After a reload, what was frozen before it may still be read by a flush that is about to fail.
func TestThaw_writesToNoRowOfOthers(t *testing.T) {
	s := NewSet()
	for i := range uint64(3) { // the list of targets has room for a fourth
		s.Add(Outcome{Name: id(i), Kind: Cancelled, Seq: i + 1, Target: fmt.Sprint("orders", i)})
	}
	flushed := s.Freeze()
	s.Add(Outcome{Name: id(4), Kind: Cancelled, Seq: 4, Target: "payments"})
	flushing := s.Freeze()
	again := flushed.Thaw()
	again.Add(Outcome{Name: id(5), Kind: Expired, Seq: 5, Target: "refunds"})
	if o := flushing.runs[ends].outcome(3); o.Seq != 4 || o.Target != "payments" {
		t.Errorf("outcome %+v", o)
	}
	if o, ok := again.Newest(id(5)); !ok || o.Target != "refunds" || again.Count() != 4 {
		t.Errorf("outcome %+v (%t) of %d", o, ok, again.Count())
	}
}

// A message that was on its way when its id was given to another may end after that.
func TestNewest_isTheHighestSeqOfWhatIsKnown(t *testing.T) {
	s := NewSet()
	s.SetKeep(Keep{For: 1000, Count: 3})
	for at, seq := range []uint64{7, 9, 5, 4, 3} {
		s.Add(Outcome{Name: id(1), Kind: Cancelled, Seq: seq, At: int64(at)})
	}
	want := func(seq uint64, ok bool) {
		t.Helper()
		if got, there := s.Newest(id(1)); got.Seq != seq || there != ok {
			t.Errorf("newest is %d (%t), want %d (%t)", got.Seq, there, seq, ok)
		}
	}
	want(9, true)
	s.Forget(0, 1)
	want(9, true)
	s.Forget(0, 1)
	want(5, true)
	s.Forget(2000, 3)
	want(0, false)
	if got := s.Since(); got != 5 {
		t.Errorf("all is known since %d", got)
	}
}

// Whoever is refused, or gives a key, a thousand times as often as messages end forgets what is told to himself alone.
// Messages of one id that end in the order of falling seqs: the way to the highest has a step for each, and is gone once.
func TestNewest_isNotFarThoughSeqsFall(t *testing.T) {
	s, m := NewSet(), &model{keep: DefaultKeep}
	random := rand.New(rand.NewPCG(1, 2))
	const most = 400
	k := Keep{For: math.MaxInt64 / 2, Count: most}
	s.SetKeep(k)
	m.keep = k
	seq, kept := uint64(1_000_000), 0
	for at := range int64(20_000) {
		switch random.IntN(200) {
		case 0:
			seq += uint64(random.IntN(1000)) // above some, or above all
		case 1:
			seq += 3000
		default:
			seq -= uint64(random.IntN(3))
		}
		o := Outcome{Name: id(7), Kind: Delivered, Seq: seq, At: at}
		s.Add(o)
		m.add(o)
		s.Forget(at, 2)
		m.forget(at, 2)
		got, ok := s.Newest(id(7))
		want, _ := m.newest(id(7))
		if !ok || got != want {
			t.Fatalf("after %d the newest is %+v, want %+v", at, got, want)
		}
		kept += len(s.lists[ends].tops.rows)
	}
	if kept < 10_000 {
		t.Errorf("the highest was kept %d times of 20000", kept)
	}
}

func TestSet_forgetsNoEndForRefusalsAndAnswers(t *testing.T) {
	s := NewSet()
	s.SetKeep(Keep{For: 1000, Count: 100})
	s.Add(Outcome{Name: id(1), Kind: Cancelled, Seq: 1, At: 5})
	s.Add(Outcome{Name: id(2), Kind: Answered, Seq: 2, By: 7, At: 5})
	s.Add(Outcome{Name: id(1), Kind: Refused, At: 5})
	for i := range uint64(1000) {
		s.Add(Outcome{Name: id(1000 + i), Kind: Refused + Kind(2*(i%2)), At: 6})
		s.Forget(6, 2)
	}
	if o, ok := s.Newest(id(1)); !ok || o.Seq != 1 || s.Since() != 0 {
		t.Errorf("newest is %+v (%t), all is known since %d", o, ok, s.Since())
	}
	if a, ok := s.Answered(id(2)); !ok || a.By != 7 {
		t.Errorf("answered %+v (%t)", a, ok)
	}
	if n := s.Count(); n != 2+10 || len(s.Life(id(1))) != 1 {
		t.Errorf("%d outcomes are known, the life of one is %+v", n, s.Life(id(1)))
	}
	for i := range uint64(1000) {
		s.Add(Outcome{Name: id(3000 + i), Kind: Answered, Seq: i, At: 6})
		s.Forget(6, 2)
	}
	if _, ok := s.Answered(id(2)); ok || s.Count() != 1+10+100 || s.Since() != 0 {
		t.Errorf("the first answer is known (%t) among %d outcomes, ends since %d", ok, s.Count(), s.Since())
	}
	if _, ok := s.Newest(id(1)); !ok {
		t.Error("the end is not known")
	}
	s.Forget(1006, 1)
	if _, ok := s.Newest(id(1)); ok || s.Since() != 6 {
		t.Errorf("the end is known after its time (%t), all is known since %d", ok, s.Since())
	}
}

// Rows of two lists are told in the order in which they came, also where that is all one millisecond.
func TestLife_isInTheOrderInWhichItHappened(t *testing.T) {
	s := NewSet()
	kinds := []Kind{Refused, RefusedRecord, Cancelled, Refused, Replaced, Delivered, Refused}
	for i, k := range kinds {
		s.Add(Outcome{Name: id(2), Kind: Expired, Seq: 50})
		s.Add(Outcome{Name: id(1), Kind: k, Seq: uint64(9 - i), At: 5})
	}
	var told []Kind
	for _, o := range s.Life(id(1)) {
		told = append(told, o.Kind)
		if isRefusal := o.Kind.class() == refusals; isRefusal != (o.Seq == 0) {
			t.Errorf("seq of %+v", o)
		}
	}
	if !slices.Equal(told, kinds) {
		t.Errorf("kinds %v, want %v", told, kinds)
	}
}

// What was refused thousands of times is no longer than others, for Apply waits meanwhile.
func TestLife_ofMuchThatWasRefusedIsBounded(t *testing.T) {
	s := NewSet()
	s.Add(Outcome{Name: id(1), Kind: Replaced, Seq: 3, By: 4})
	for range 5000 {
		s.Add(Outcome{Name: id(1), Kind: Refused})
	}
	if l := &s.lists[refusals]; l.row(l.next-1).higher != 0 || l.row(l.next-1).older != 1 {
		t.Errorf("the last refusal is %+v", *l.row(l.next - 1))
	}
	if o, ok := s.Newest(id(1)); !ok || o.Seq != 3 || o.By != 4 {
		t.Errorf("newest is %+v (%t)", o, ok)
	}
	if n := len(s.Life(id(1))); n != lifeMost {
		t.Errorf("%d outcomes", n)
	}
}

// Names of targets are free text: one that is not written to any more is forgotten.
func TestSet_givesPagesAndNamesBack(t *testing.T) {
	s := NewSet()
	s.SetKeep(Keep{For: 1000, Count: 10})
	for i := range uint64(10 * pageRows) {
		s.Add(Outcome{Name: id(i), Kind: Cancelled, Seq: i + 1, Target: fmt.Sprint("target", i)})
		s.Forget(0, 2)
	}
	names, used, l := 0, 0, &s.lists[ends]
	for _, p := range l.pages {
		names += len(p.targets)
	}
	for _, table := range l.newest {
		used += table.used
	}
	if len(l.pages) > 2 || names > 2*pageRows || len(l.targets) > pageRows || used != 10 {
		t.Errorf("%d pages, %d and %d names, %d ids for 10 outcomes", len(l.pages), names, len(l.targets), used)
	}
}

// A page with room, all of whose rows are forgotten, is a chunk of a file that goes as well.
func TestGone_namesThePageOfWhichNothingIsLeft(t *testing.T) {
	s := NewSet()
	s.SetKeep(Keep{For: 1000, Count: 10})
	s.Add(Outcome{Name: id(1), Kind: Cancelled, Seq: 1})
	then := s.Freeze()
	s.Forget(2000, 10)
	if gone := slices.Collect(s.Freeze().Gone(then)); !slices.Equal(gone, []uint64{keyOf(ends, 0)}) {
		t.Errorf("chunks %v are gone, want that of the first page", gone)
	}
}

// A page that came and went between two files is in neither.
func TestGone_namesNoPageThatWasNotThere(t *testing.T) {
	s := NewSet()
	s.SetKeep(Keep{For: 1000, Count: 10 * pageRows})
	add := func(from uint64) {
		for seq := from; seq < from+pageRows; seq++ {
			s.Add(Outcome{Name: id(seq), Kind: Cancelled, Seq: seq})
		}
	}
	add(1)
	then := s.Freeze()
	add(1 + pageRows)
	s.Forget(2000, 2*pageRows)
	if gone := slices.Collect(s.Freeze().Gone(then)); !slices.Equal(gone, []uint64{keyOf(ends, 0)}) {
		t.Errorf("chunks %v are gone, want that of the first page", gone)
	}
}

func TestRow_hasSixtyFourBytes(t *testing.T) {
	if size := unsafe.Sizeof(row{}); size != 64 {
		t.Errorf("a row has %d bytes", size)
	}
}

// million has a million outcomes of as many ids.
func million() *Set {
	s := NewSet()
	s.SetKeep(Keep{For: DefaultKeep.For, Count: 1 << 20})
	for i := range uint64(1_000_000) {
		s.Add(outcomeOf(i))
	}
	return s
}

func outcomeOf(i uint64) Outcome {
	var h name.Hash
	binary.BigEndian.PutUint64(h[:], i*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(h[8:], i*0xbf58476d1ce4e5b9)
	return Outcome{
		Name: h, Kind: Delivered, Seq: i + 1, Due: 1_700_000_000_000 + int64(i/10), At: 1_700_000_000_003 + int64(i/10),
		Target: [...]string{"orders", "payments", "refunds"}[i%3], Partition: int32(i % 12), Offset: int64(i / 36),
	}
}

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What a million outcomes of as many ids take, and how long Apply waits with them.
func BenchmarkMillion(b *testing.B) {
	before := heap()
	s := million()
	b.Run("Memory", func(b *testing.B) {
		for b.Loop() {
		}
		b.ReportMetric(float64(heap()-before)/float64(s.Count()), "B/outcome")
	})
	var frozen *Frozen
	b.Run("Freeze", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			frozen = s.Freeze()
		}
	})
	b.Run("Add", func(b *testing.B) {
		b.ReportAllocs()
		var longest time.Duration
		for i := s.lists[ends].next; b.Loop(); i++ {
			begin := time.Now()
			s.Add(outcomeOf(i))
			s.Forget(0, 2)
			longest = max(longest, time.Since(begin))
		}
		b.ReportMetric(float64(longest.Microseconds()), "us/longest")
	})
	b.Run("Newest", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			s.Newest(outcomeOf(s.lists[ends].first + i*7919%s.Count()).Name)
		}
	})
	b.Run("Thaw", func(b *testing.B) {
		for b.Loop() {
			frozen.Thaw()
		}
	})
	b.Run("Forget1000", func(b *testing.B) {
		for b.Loop() {
			if s.Forget(1<<62, 1000); s.Count() == 0 {
				b.StopTimer()
				s = million()
				b.StartTimer()
			}
		}
	})
}
