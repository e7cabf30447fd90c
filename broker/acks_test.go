package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
)

// Some ten deliveries a millisecond, as a busy leader has them, cost a sync each ackDelay or each
// fullAck deliveries, and not one per commit that was in time; a slow disk too.
func TestAcks_gatherBeforeTheyCostTheDiskASync(t *testing.T) {
	for _, commit := range []time.Duration{time.Millisecond, 7 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const deliveries = 1000
			acks, commits := ackingWithin(t, commit)
			start := time.Now()
			for seq := range uint64(deliveries) {
				acks.put([]uint64{seq})
				if seq%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(2 * (ackDelay + commit))
			synctest.Wait()
			most := 1 + max(int(time.Since(start)/(ackDelay+commit)), deliveries/fullAck)
			if acks.unacked() > 0 || *commits > most {
				t.Errorf("commits of %v: %d, want %d at most; %d not acknowledged", commit, *commits, most, acks.unacked())
			}
		})
	}
}

// A lane that is late waits for Acks when it has too much exposed: they must not wait for the timer.
func TestAcks_doNotWaitForMoreOnceEnoughHasGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const commit = time.Millisecond
		acks, _ := ackingWithin(t, commit)
		for range 5 {
			start := time.Now()
			freed := acks.freed()
			acks.put(make([]uint64, fullAck))
			<-freed
			if took := time.Since(start); took > commit {
				t.Errorf("enough had gathered, and it took %v to acknowledge it", took)
			}
		}
	})
}

// ackingWithin returns acks that run in the bubble, with a log that takes that long to commit, and
// where the commits are counted.
func ackingWithin(t *testing.T, commit time.Duration) (*acks, *int) {
	commits := new(int)
	a := newAcks(func(context.Context, raftfsm.Command) (raftfsm.Result, error) {
		time.Sleep(commit) // in a bubble
		*commits++
		return raftfsm.Result{}, nil
	}, func() int64 { return time.Now().UnixMilli() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a, commits
}
