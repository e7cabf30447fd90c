package broker

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
)

// A steadySource gives what has arrived by then: a record a millisecond, due after delay.
type steadySource struct {
	Source
	delay time.Duration
	next  int64 // Offset is the millisecond of arrival
}

func (s *steadySource) Poll(ctx context.Context) ([]Batch, error) {
	now := time.Now().UnixMilli()
	if s.next == 0 {
		s.next = now
	}
	time.Sleep(time.Until(time.UnixMilli(s.next)))
	batch := Batch{Topic: "orders.delay", From: s.next}
	for ; s.next <= time.Now().UnixMilli(); s.next++ {
		due := time.UnixMilli(s.next).Add(s.delay).UnixMilli()
		batch.Arrivals = append(batch.Arrivals, Arrival{Offset: s.next, Instruction: Instruction{DueAt: due, Partition: -1}})
	}
	batch.Next = s.next
	return []Batch{batch}, ctx.Err()
}

// A countingLog counts commands and says how long the slowest record waited for its own.
type countingLog struct {
	commands, records int
	slowest           time.Duration
}

func (l *countingLog) Room() error { return nil }

func (l *countingLog) Propose(_ context.Context, command raftfsm.Command) *raftfsm.Proposal {
	part := command.(raftfsm.Ingest).Parts[0]
	l.commands++
	l.records += len(part.Entries)
	l.slowest = max(l.slowest, time.Since(time.UnixMilli(part.From)))
	return nil
}

// takeForASecond takes in a record a millisecond, each due after delay.
func takeForASecond(t *testing.T, delay time.Duration) *countingLog {
	log := &countingLog{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g := newIngest(ingestConfig{Config: DefaultConfig(), Source: &steadySource{delay: delay}, Log: log, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		proposed := make(chan proposedIngest, 2000)
		_ = g.take(ctx, proposed) // it ends with ctx
	})
	return log
}

func TestIngest_gathersWhatTricklesIn(t *testing.T) {
	log := takeForASecond(t, time.Hour)
	if most := int(time.Second/gatherFor) + 1; log.records < 900 || log.commands > most {
		t.Errorf("%d records in %d commands, want %d at most", log.records, log.commands, most)
	}
	if log.slowest > gatherFor {
		t.Errorf("a record waited %v", log.slowest)
	}
}

func TestIngest_doesNotHoldUpWhatIsDueSoon(t *testing.T) {
	log := takeForASecond(t, claimLead/2*time.Millisecond)
	if log.records < 900 || log.slowest > 0 {
		t.Errorf("of %d records one waited %v", log.records, log.slowest)
	}
}
