package ingest

import (
	"context"
	"log/slog"
	"slices"
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

const lead = 100 // milliseconds

const shortDelay, longDelay = lead / 2 * time.Millisecond, time.Hour

// A steadySource gives what has arrived by then: a record a millisecond, due after delay.
type steadySource struct {
	Source
	delay func(offset int64) time.Duration
	next  int64 // Offset is the millisecond of arrival
}

func (s *steadySource) Poll(ctx context.Context) ([]Batch, error) {
	now := time.Now().UnixMilli()
	if s.next == 0 {
		s.next = now
	}
	time.Sleep(time.Until(time.UnixMilli(s.next))) // in a bubble
	batch := Batch{Topic: "orders.delay", Round: 1, From: s.next}
	for ; s.next <= time.Now().UnixMilli(); s.next++ {
		batch.Arrivals = append(batch.Arrivals, arrival(s.next, s.delay(s.next), 0))
	}
	batch.Next = s.next
	return []Batch{batch}, ctx.Err()
}

// arrival is a record of size bytes that arrives in the millisecond of its offset.
func arrival(offset int64, delay time.Duration, size int) Arrival {
	due := time.UnixMilli(offset).Add(delay).UnixMilli()
	return Arrival{Offset: offset, Value: make([]byte, size), Instruction: Instruction{DueAt: due, Partition: -1}}
}

// A waitLog says how long each record waited for its command.
type waitLog struct {
	commands int
	waits    map[time.Duration][]time.Duration // by delay, in order
}

func (l *waitLog) Room() error { return nil }

func (l *waitLog) Propose(_ context.Context, command raftfsm.Command) *raftfsm.Proposal {
	l.commands++
	for _, entry := range command.(raftfsm.Ingest).Parts[0].Entries {
		message, err := message.FromEntry(&entry)
		if err != nil {
			panic(err)
		}
		arrived := message.Origin.Offset
		delay := time.Duration(entry.Due-arrived) * time.Millisecond
		l.waits[delay] = append(l.waits[delay], time.Since(time.UnixMilli(arrived)))
	}
	return nil
}

// takeForASecond takes in what the source gives.
func takeForASecond(t *testing.T, source func() Source) *waitLog {
	log := &waitLog{waits: make(map[time.Duration][]time.Duration)}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g := New(Options{ClaimLead: lead, Config: config.Default(), Source: source(), Log: log, Store: atLevel(storage.LevelTwo), Now: time.Now, Due: time.Now, Logger: slog.New(slog.DiscardHandler)})
		g.places.begin(partitionID{})
		proposed := make(chan proposedIngest, 2000)
		_ = g.take(ctx, proposed) // it ends with ctx
	})
	return log
}

// steadily is a record a millisecond.
func steadily(delay func(offset int64) time.Duration) func() Source {
	return func() Source { return &steadySource{delay: delay} }
}

func TestIngest_gathersWhatTricklesIn(t *testing.T) {
	log := takeForASecond(t, steadily(func(int64) time.Duration { return longDelay }))
	waits := log.waits[longDelay]
	if most := int(time.Second/gatherFor) + 1; len(waits) < 900 || log.commands > most {
		t.Errorf("%d records in %d commands, want %d at most", len(waits), log.commands, most)
	}
	if slowest := slices.Max(waits); slowest > gatherFor {
		t.Errorf("a record waited %v", slowest)
	}
}

func TestIngest_doesNotHoldUpWhatIsDueSoon(t *testing.T) {
	log := takeForASecond(t, steadily(func(int64) time.Duration { return shortDelay }))
	if waits := log.waits[shortDelay]; len(waits) < 900 || slices.Max(waits) > 0 {
		t.Errorf("of %d records one waited %v", len(waits), slices.Max(waits))
	}
}

// Only the first one may wait, which comes when none has for a while.
func TestIngest_doesNotHoldUpWhatIsDueSoonForWhatIsNot(t *testing.T) {
	log := takeForASecond(t, steadily(func(offset int64) time.Duration {
		if offset%97 == 0 {
			return shortDelay
		}
		return longDelay
	}))
	waits := log.waits[shortDelay]
	if len(waits) < 10 || waits[0] > gatherFor || slices.Max(waits[1:]) > 0 {
		t.Errorf("waited %v", waits)
	}
}

// A batchSource has everything at hand.
type batchSource struct {
	Source
	polls []Batch
}

func (s *batchSource) Poll(ctx context.Context) ([]Batch, error) {
	if len(s.polls) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	batch := s.polls[0]
	s.polls = s.polls[1:]
	return []Batch{batch}, nil
}

// What is due soon may be in the first of the commands that a poll makes.
func TestIngest_remembersWhatIsDueSoonBeyondOneCommand(t *testing.T) {
	log := takeForASecond(t, func() Source {
		at := time.Now().UnixMilli()
		first := []Arrival{arrival(at, shortDelay, 0), arrival(at+1, longDelay, raftfsm.ProposalBytes)}
		second := []Arrival{arrival(at+2, shortDelay, 0)}
		return &batchSource{polls: []Batch{
			{Topic: "orders.delay", Round: 1, From: at, Next: at + 2, Arrivals: first},
			{Topic: "orders.delay", Round: 1, From: at + 2, Next: at + 3, Arrivals: second},
		}}
	})
	if waits := log.waits[shortDelay]; log.commands != 3 || len(waits) != 2 || slices.Max(waits) > 0 {
		t.Errorf("%d commands, waited %v", log.commands, waits)
	}
}

func TestIngest_logsAndCountsWhatItRefuses(t *testing.T) {
	var lines logtest.Lines
	counts := make(refusedCount)
	g := New(Options{ClaimLead: lead, Config: config.Default(), Count: counts, Store: atLevel(storage.LevelTwo), Now: time.Now, Due: time.Now, Logger: lines.Logger()})
	var parts []packedPart
	pack := packer{most: raftfsm.ProposalBytes, lead: lead, propose: func(_ raftfsm.Ingest, packed []packedPart) error {
		parts = packed
		return nil
	}}
	batch := Batch{Topic: "orders.delay", Partition: 3, From: 7, Next: 11, Arrivals: []Arrival{
		{Offset: 7, Instruction: Instruction{Partition: -1}},
		{Offset: 8, Problem: &message.Problem{Code: message.CodeMalformed, Message: "deliver-at \"soon\""}},
		{Offset: 9, Problem: &message.Problem{Code: message.CodeMalformed, Message: "deliver-at \"later\""}},
		{Offset: 10, Problem: &message.Problem{Code: message.CodeUnsupported, Message: "deliver-cron"}},
	}}
	if err := g.pack(&pack, &batch); err != nil {
		t.Fatal(err)
	}
	if err := pack.flush(testNow); err != nil {
		t.Fatal(err)
	}
	g.tellRefused(parts[0])
	g.refused.Close()
	want := []string{`level=WARN msg="records refused, they go to the dead-letter topic" component=ingest records=3 topics=1 topic=orders.delay partition=3 offset=10 code=unsupported reason=deliver-cron`}
	if diff := cmp.Diff(want, lines.With("refused")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(refusedCount{message.CodeMalformed: 2, message.CodeUnsupported: 1}, counts); diff != "" || parts[0].records != 4 {
		t.Errorf("of %d records, refused -want +got:\n%s", parts[0].records, diff)
	}
}

// A refusedCount is a Count.
type refusedCount map[string]int

func (c refusedCount) Accepted(int)                       {}
func (c refusedCount) Answered(string, int)               {}
func (c refusedCount) SourceLost(int64)                   {}
func (c refusedCount) Rejected(code string, messages int) { c[code] += messages }
