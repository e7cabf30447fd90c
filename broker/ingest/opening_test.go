package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/logtest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// An openingBench is a store, a log that applies at once to it, and intake beside the opening.
type openingBench struct {
	t     *testing.T
	store *storage.Store
	lines logtest.Lines

	mu       sync.Mutex // of the writer
	afterIDs func()     // called for each OpenIDs, before it is applied
}

func newOpeningBench(t *testing.T) *openingBench {
	store, err := storage.Open(storage.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &openingBench{t: t, store: store}
}

func (b *openingBench) Room() error { return nil }

func (b *openingBench) Propose(_ context.Context, command raftfsm.Command) *raftfsm.Proposal {
	if _, ok := command.(raftfsm.OpenIDs); ok && b.afterIDs != nil {
		b.afterIDs()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var result raftfsm.Result
	switch c := command.(type) {
	case raftfsm.OpenIDs:
		if _, err := b.store.OpenIDs(c.Named, c.UpTo); err != nil {
			panic(err)
		}
	case raftfsm.Ingest:
		for i, p := range c.Parts {
			if len(p.Entries) > 0 {
				first := b.store.Accept(p.Entries)
				if i == 0 {
					result.FirstSeq = first
				}
			}
			result.PartsApplied = append(result.PartsApplied, true)
		}
	}
	proposal, answer := raftfsm.NewProposal(nil)
	answer(result, nil)
	return proposal
}

// accept puts messages with these ids into the store as they were before LevelThree.
func (b *openingBench) accept(ids ...string) {
	entries := make([]storage.Entry, len(ids))
	for i, id := range ids {
		m := message.Message{ID: id, Origin: message.Origin{Topic: "orders.delay", Offset: int64(i)}, Partition: -1}
		entries[i] = m.Entry(int64(testNow-i), "orders", storage.LevelTwo) // in another order than their seqs
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store.Accept(entries)
}

func (b *openingBench) ingest(source Source) *Ingest {
	return New(Options{ClaimLead: lead, Config: config.Default(), Source: source, Log: b, Store: b.store, Count: refusedCount{}, Now: time.Now, Due: time.Now, Logger: b.lines.Logger()})
}

// seqOf returns the seq that an id stands for, 0: none.
func (b *openingBench) seqOf(id string) uint64 {
	found, _, err := b.store.Lookup("orders.delay", id)
	if err != nil {
		b.t.Fatal(err)
	}
	return found.Seq
}

func (b *openingBench) raise() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store.RaiseLevel(storage.LevelThree)
}

func TestOpening_ofNothingIsDoneAtOnce(t *testing.T) {
	b := newOpeningBench(t)
	b.raise()
	if err := b.ingest(nil).opening.run(t.Context(), nil); err != nil || !b.store.IDsOpen() {
		t.Errorf("open %v, %v", b.store.IDsOpen(), err)
	}
}

func TestOpening_namesWhatWaitsAndListsSharedIDs(t *testing.T) {
	b := newOpeningBench(t)
	const messages = 3*openingStep + 7
	ids := make([]string, messages)
	for i := range ids {
		ids[i] = fmt.Sprint("id", i)
	}
	ids[10], ids[20], ids[1000] = "shared", "shared", "shared" // seqs 11, 21 and 1001
	ids[5] = ""
	b.accept(ids...)
	b.raise()
	proposed := make(chan proposedIngest)
	g := b.ingest(nil)
	go func() { _ = g.settle(t.Context(), proposed) }()
	if err := g.opening.run(t.Context(), proposed); err != nil || !b.store.IDsOpen() {
		t.Fatalf("open %v, %v", b.store.IDsOpen(), err)
	}
	for i, id := range ids {
		want := uint64(i + 1)
		switch id {
		case "shared":
			want = 1001
		case "":
			continue
		}
		if got := b.seqOf(id); got != want {
			t.Fatalf("%q stands for %d, want %d", id, got, want)
		}
	}
	want := []string{
		"level=WARN msg=\"a message shares its id with a newer one, for which it stands: it can be neither cancelled nor replaced, and is delivered\" component=ingest topic=orders.delay id=shared seq=21 newer=1001",
		"level=WARN msg=\"a message shares its id with a newer one, for which it stands: it can be neither cancelled nor replaced, and is delivered\" component=ingest topic=orders.delay id=shared seq=11 newer=1001",
	}
	if diff := cmp.Diff(want, b.lines.With("shares its id")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if done := b.lines.With("ids are open"); len(done) != 1 || !strings.Contains(done[0], fmt.Sprintf("named=%d ", messages-1)) || !strings.Contains(done[0], "sharing_an_id_with_a_newer=2") {
		t.Errorf("%v", done)
	}
}

// Where many share ids, the log is not filled with them: as many as may be are listed, and all are counted.
func TestOpening_listsAsManyAsMayBe(t *testing.T) {
	b := newOpeningBench(t)
	b.accept(slices.Repeat([]string{"shared"}, mostListed+5)...)
	b.raise()
	proposed := make(chan proposedIngest)
	g := b.ingest(nil)
	go func() { _ = g.settle(t.Context(), proposed) }()
	if err := g.opening.run(t.Context(), proposed); err != nil {
		t.Fatal(err)
	}
	if listed := b.lines.With("shares its id"); len(listed) != mostListed {
		t.Errorf("%d are listed, want %d", len(listed), mostListed)
	}
	if done := b.lines.With("ids are open"); len(done) != 1 || !strings.Contains(done[0], fmt.Sprintf("sharing_an_id_with_a_newer=%d", mostListed+4)) {
		t.Errorf("%v", done)
	}
}

// An endlessSource gives a record with an id at each poll.
type endlessSource struct {
	Source
	next int64
}

func (s *endlessSource) Poll(ctx context.Context) ([]Batch, error) {
	s.next++
	a := Arrival{Offset: s.next - 1, Instruction: Instruction{DueAt: testNow, Partition: -1, ID: fmt.Sprint("new", s.next-1)}}
	return []Batch{{Topic: "orders.delay", Round: 1, From: s.next - 1, Next: s.next, Arrivals: []Arrival{a}}}, ctx.Err()
}

// Intake goes on while a large schedule is read, and what it accepts is named like all else.
func TestOpening_missesNothingThatIsAcceptedMeanwhile(t *testing.T) {
	synctest.Test(t, testAcceptedMeanwhile)
}

func testAcceptedMeanwhile(t *testing.T) {
	b := newOpeningBench(t)
	ids := make([]string, 4*openingStep)
	for i := range ids {
		ids[i] = fmt.Sprint("id", i)
	}
	b.accept(ids...)
	source := &endlessSource{}
	g := b.ingest(source)
	g.places.begin(partitionID{})
	ctx, cancel := context.WithCancel(t.Context())
	proposed := make(chan proposedIngest, mostProposed)
	var running sync.WaitGroup
	running.Go(func() { _ = g.take(ctx, proposed) })
	running.Go(func() { _ = g.settle(ctx, proposed) })

	raised := b.store.NextSeq() + 5
	for b.store.NextSeq() < raised { // some come before the raise
		time.Sleep(time.Millisecond)
	}
	steps := 0
	b.afterIDs = func() { // the opening is at it for longer than intake waits
		if steps++; steps == 2 {
			time.Sleep(intakeWaits)
		}
		time.Sleep(3 * gatherFor) // so it rests as long after each step: after the last one, too, something comes
		if steps == 4 {
			for from := b.store.NextSeq(); b.store.NextSeq() < from+5; {
				time.Sleep(time.Millisecond)
			}
		}
	}
	b.raise()
	if err := g.opening.run(t.Context(), proposed); err != nil {
		t.Fatal(err)
	}
	open := b.store.NextSeq()
	cancel()
	running.Wait()
	if steps < 4 {
		t.Fatalf("%d steps: nothing came between", steps)
	}
	for seq := uint64(1); seq < open; seq++ {
		id := fmt.Sprint("id", seq-1)
		if seq > uint64(len(ids)) {
			id = fmt.Sprint("new", int(seq)-len(ids)-1)
		}
		if got := b.seqOf(id); got != seq {
			t.Errorf("%q stands for %d, want %d", id, got, seq)
		}
	}
}
