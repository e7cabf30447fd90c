package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// standing is Moment.Standing without pauses.
func (m *model) standing(e *Entry) Standing {
	through, held := m.state.Claim.Through, false
	for _, h := range m.state.Claim.Holds {
		if h.Target == e.Target {
			through, held = min(through, h.Through), true
		}
	}
	switch {
	case e.Expires != 0 && e.Expires <= m.state.Time:
		return Expired
	case e.Due <= through:
		return Claimed
	case held:
		return Parked
	}
	return Waiting
}

// A pageWalk is a walk over pages of which something else happens in between.
type pageWalk struct {
	query ListQuery
	began map[uint64]Entry // the messages that were there when it began
	seen  map[uint64]int
}

func drawWalk(t *rapid.T, m *model) *pageWalk {
	prefix, target := rapid.SampledFrom([]string{"", "", "x", "inv"}).Draw(t, "prefix"), rapid.SampledFrom([]string{"", "orders"}).Draw(t, "to")
	w := &pageWalk{began: make(map[uint64]Entry), seen: make(map[uint64]int), query: ListQuery{
		From:   Ref{Due: rapid.SampledFrom([]int64{math.MinInt64, 0, 1001}).Draw(t, "first")},
		Last:   rapid.SampledFrom([]int64{math.MaxInt64, 1001}).Draw(t, "last"),
		Limit:  rapid.SampledFrom([]int{1, 3, 20}).Draw(t, "limit"),
		Bodies: rapid.Bool().Draw(t, "bodies"),
		Keep: func(_ *Moment, e *Entry) bool {
			if e.Body != nil {
				panic("shown with its body")
			}
			return strings.HasPrefix(e.ID, prefix) && (target == "" || e.Target == target)
		},
	}}
	for seq, e := range m.entries {
		w.began[seq] = e
	}
	return w
}

func (w *pageWalk) means(e Entry) bool {
	e.Body = nil
	return e.Due <= w.query.Last && w.query.Keep(nil, &e)
}

// page compares the next page with the model, and reports whether it was the last one.
func (w *pageWalk) page(t testingT, s *Store, m *model) bool {
	t.Helper()
	page, err := s.List(context.Background(), w.query)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	if page.Next.Less(w.query.From) || len(page.Items) > w.query.Limit {
		t.Fatalf("page from %v to %v of %d", w.query.From, page.Next, len(page.Items))
	}
	if got := page.Moment; got.Index != m.state.AppliedIndex || got.Pending != m.state.Pending || got.Time != m.state.Time || got.IDsOpen != m.open {
		t.Fatalf("moment %+v, want that of %+v", got, m.state)
	}
	var want []Listed
	for _, e := range m.sorted() {
		if !w.means(e) || e.Ref().Less(w.query.From) || !page.Done && !e.Ref().Less(page.Next) {
			continue
		}
		listed := Listed{Item: itemOf(&e), Standing: m.standing(&e)}
		if w.query.Bodies {
			listed.Body = e.Body
		}
		want = append(want, listed)
	}
	same := func(a, b Listed) bool {
		return a.Item == b.Item && a.Standing == b.Standing && bytes.Equal(a.Body, b.Body) && (a.Body == nil) == (b.Body == nil)
	}
	if !slices.EqualFunc(page.Items, want, same) {
		t.Fatalf("page from %v to %v (-want +got):\n%s", w.query.From, page.Next, gocmp.Diff(want, page.Items))
	}
	for _, item := range page.Items {
		w.seen[item.Seq]++
	}
	w.query.From = page.Next
	return page.Done
}

// finish looks at what the whole walk has seen.
func (w *pageWalk) finish(t testingT, m *model, from Ref) {
	t.Helper()
	for seq, e := range m.entries {
		if _, stayed := w.began[seq]; stayed && w.means(e) && !e.Ref().Less(from) && w.seen[seq] != 1 {
			t.Fatalf("%v stayed throughout and was seen %d times", e.Ref(), w.seen[seq])
		}
	}
	for seq, times := range w.seen {
		if times > 1 {
			t.Fatalf("message %d was seen %d times", seq, times)
		}
	}
}

// Between two pages anything happens to a node: each page is what the model has at its index, and a
// walk sees once whatever stays.
func TestList_equalsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := memoryDir(t)
		h := &history{t: t, root: dir, models: []*model{newModel()}}
		defer h.close()
		h.open(filepath.Join(dir, "0"))
		h.log(operation{Accept: drawEntries(t), Level: LevelThree})
		walk := drawWalk(t, h.model())
		from := walk.query.From
		page := func(t *rapid.T) {
			if !walk.page(t, h.store, h.model()) {
				return
			}
			walk.finish(t, h.model(), from)
			walk = drawWalk(t, h.model())
			from = walk.query.From
		}
		t.Repeat(map[string]func(*rapid.T){
			"page": page, "another page": page, "one more page": page,
			"accept":   func(t *rapid.T) { h.log(operation{Accept: drawEntriesAt(t, LevelThree)}) },
			"kill":     func(t *rapid.T) { h.log(operation{Kill: drawRuns(t, h.model().state.NextSeq)}) },
			"values":   func(t *rapid.T) { h.log(drawValues(t)) },
			"open":     func(t *rapid.T) { h.log(drawOpening(t, h.model())) },
			"freeze":   func(*rapid.T) { h.freeze() },
			"flush":    func(*rapid.T) { h.flush() },
			"release":  func(*rapid.T) { h.release() },
			"merge":    func(*rapid.T) { mergeAll(t, h.store) },
			"reopen":   func(*rapid.T) { h.reopen() },
			"cut":      func(*rapid.T) { h.cut() },
			"transfer": func(*rapid.T) { h.transfer() },
			"reload":   func(*rapid.T) { h.reload() },
		})
	})
}

// A filter that means nothing reads neither all of memory nor all of the disk for one page.
func TestList_doesABoundedAmountOfWorkPerPage(t *testing.T) {
	for _, onDisk := range []bool{false, true} {
		s, m := openStore(t, t.TempDir()), newModel()
		script(s, m, operation{Accept: entries(50_000, 0, 1, 200)})
		if onDisk {
			flush(t, s, 1)
		}
		pages, most, shown := 0, 0, 0
		q := ListQuery{Last: math.MaxInt64, Limit: 10, Keep: func(*Moment, *Entry) bool { shown++; return false }}
		for done := false; !done; pages++ {
			shown = 0
			page, err := s.List(t.Context(), q)
			if err != nil || len(page.Items) > 0 {
				t.Fatalf("%d items, error %v", len(page.Items), err)
			}
			q.From, done, most = page.Next, page.Done, max(most, shown)
		}
		if pages < 2 || most > 30_000 || !onDisk && most > listVisits {
			t.Errorf("on disk %v: %d pages, %d messages looked at for one", onDisk, pages, most)
		}
	}
}

// Bodies of a megabyte do not come by the hundred.
func TestList_boundsTheBodiesOfAPage(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(12, 0, 1, 1<<20)})
	flush(t, s, 1)
	var sizes []int
	q := ListQuery{Last: math.MaxInt64, Limit: 100, Bodies: true}
	for done := false; !done; {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.Items))
		q.From, done = page.Next, page.Done
	}
	if !slices.Equal(sizes, []int{4, 4, 4, 0}) && !slices.Equal(sizes, []int{4, 4, 4}) {
		t.Errorf("pages of %v", sizes)
	}
}

// While a writer replaces messages one by one, in two steps each, every page that has all has one message
// for each id, and Get finds it; both with the index of a whole command.
func TestList_showsNoHalfCommand(t *testing.T) {
	const ids = 40
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	s.Accept(withIDs(ids, 1000, "order"))
	s.Applied(1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	written := make(chan error, 1)
	go func() {
		defer close(written)
		for index := uint64(2); ctx.Err() == nil; index++ {
			old := index - 1 // the oldest that is alive has this seq
			e := withIDs(ids, 1000, "order")[(old-1)%ids]
			s.Accept([]Entry{e})
			s.Kill([]SeqRun{{old, old}})
			s.Applied(index)
			if index%500 == 0 {
				if err := s.Freeze().Flush(SnapshotMeta{Index: index, Term: 1}); err != nil {
					written <- err
					return
				}
			}
		}
	}()
	for pages := 0; ctx.Err() == nil || pages == 0; pages++ {
		page, err := s.List(t.Context(), ListQuery{From: Ref{Due: math.MinInt64}, Last: math.MaxInt64, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if !page.Done { // many dead ones
			continue
		}
		seen := make(map[string]bool)
		for _, item := range page.Items {
			seen[item.ID] = true
			if first := page.Moment.Index; item.Seq < first || item.Seq >= first+ids {
				t.Fatalf("message %d at index %d", item.Seq, first)
			}
		}
		if len(seen) != ids || len(page.Items) != ids {
			t.Fatalf("%d messages with %d ids, want %d", len(page.Items), len(seen), ids)
		}
		known, err := s.Get(t.Context(), "orders.delay", fmt.Sprint("order-", pages%ids))
		if err != nil || known.Message == nil || len(known.Message.Body) != 20 {
			t.Fatalf("got %+v, %v", known, err)
		}
		if seq, index := known.Message.Seq, known.Moment.Index; seq < index || seq >= index+ids {
			t.Fatalf("message %d at index %d", seq, index)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

// A command that failed leaves memory between two indexes: nobody is shown that, and nobody waits for ever.
func TestList_waitsForACommandToEnd(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.Accept(entries(1, 0, 1, 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.List(ctx, ListQuery{Last: 10, Limit: 1}); err == nil {
		t.Error("listed half a command")
	}
	if _, err := s.Get(ctx, "orders.delay", "x"); err == nil {
		t.Error("got half a command")
	}
	listed := make(chan Page)
	go func() {
		page, _ := s.List(t.Context(), ListQuery{Last: 10, Limit: 1})
		listed <- page
	}()
	s.Applied(1)
	if page := <-listed; len(page.Items) != 1 || page.Moment.Index != 1 {
		t.Errorf("listed %+v", page)
	}
}

func TestStanding_saysWhatBecomesOfAMessage(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	for _, target := range []string{"orders", "payments", "refunds"} {
		for _, topic := range []string{"orders.delay", "night.delay"} {
			s.Accept([]Entry{{Due: 2000, Target: target, Topic: topic}, {Due: 500, Target: target, Topic: topic}, {Due: 3000, Target: target, Topic: topic, Expires: 100}})
		}
	}
	s.ChangeClaim(ClaimChange{Through: 0, Set: []Hold{{Target: "refunds"}}})
	s.Pause(pause.Pause{Kind: pause.Topic, Name: "night.delay"})
	s.Pause(pause.Pause{Kind: pause.Target, Name: "payments"})
	s.RaiseClaim(1000)
	s.SetTime(100)
	s.Applied(1)
	page, err := s.List(t.Context(), ListQuery{Last: 10_000, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, item := range page.Items {
		key := item.Topic + " " + item.Target
		got[key] = strings.TrimSpace(got[key] + " " + item.Standing.String())
	}
	want := map[string]string{
		"orders.delay orders":   "claimed waiting expired",
		"night.delay orders":    "paused paused expired",
		"orders.delay payments": "paused paused expired",
		"night.delay payments":  "paused paused expired",
		"orders.delay refunds":  "parked parked expired",
		"night.delay refunds":   "paused paused expired",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGet_tellsWhatBecameOfAnID(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	s.Accept(withIDs(3, 1000, "order"))
	s.Kill([]SeqRun{{2, 2}})
	for _, o := range ends(40, 2, 500) {
		s.End(o)
	}
	s.Applied(7)
	flush(t, s, 7)
	known, err := s.Get(t.Context(), "orders.delay", "order-0")
	if err != nil || known.Message == nil || known.Message.Seq != 1 || known.Message.Standing != Waiting || known.Moment.Index != 7 || len(known.Life) != 0 {
		t.Errorf("got %+v, %v", known, err)
	}
	if known, err = s.Get(t.Context(), "orders.delay", "order-1"); err != nil || known.Message != nil {
		t.Errorf("got %+v, %v", known, err)
	}
	if known, err = s.Get(t.Context(), "orders.delay", "a"); err != nil || known.Message != nil || len(known.Life) != 2 || known.Life[0].Kind != outcomes.Delivered {
		t.Errorf("got %+v, %v", known, err)
	}
}

// To begin a page, each segment is sought: of many with large bodies that takes more chunks than a page may read.
func TestList_comesOnWhereToBeginTakesMoreThanAPage(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	const segments, each = 70, 6
	for i := range segments {
		script(s, m, operation{Accept: entries(each, int64(i), segments, 70_000)})
		flush(t, s, uint64(i+1))
	}
	seen, q := 0, ListQuery{Last: math.MaxInt64, Limit: 100}
	for done := false; !done; {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if !page.Done && page.Next == q.From {
			t.Fatalf("the walk stands at %v, with %d of %d seen", page.Next, seen, segments*each)
		}
		seen += len(page.Items)
		q.From, done = page.Next, page.Done
	}
	if seen != segments*each {
		t.Errorf("%d seen", seen)
	}
}

func TestGet_endsWithItsContext(t *testing.T) {
	s, m := openStore(t, t.TempDir()), newModel()
	script(s, m, operation{Accept: entries(1, 0, 1, 10)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "orders.delay", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
