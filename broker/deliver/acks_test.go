package deliver

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
)

// Some ten deliveries a millisecond, as a busy leader has them, cost a sync each ackDelay, or each
// commit where that takes longer.
func TestAcks_gatherBeforeTheyCostTheDiskASync(t *testing.T) {
	for _, commit := range []time.Duration{time.Millisecond, 7 * time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			acks, commits := ackingWithin(t, commit)
			start := time.Now()
			for seq := range uint64(1000) {
				acks.put([]uint64{seq})
				if seq%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(2 * (ackDelay + commit))
			synctest.Wait()
			most := 1 + int(time.Since(start)/max(ackDelay, commit))
			if len(acks.seqs) > 0 || *commits > most {
				t.Errorf("commits of %v: %d, want %d at most; %d not acknowledged", commit, *commits, most, len(acks.seqs))
			}
		})
	}
}

// Whatever commits take, and however many are delivered: what a kill at any moment would repeat was
// delivered within leastUnacked, or within two commits. While these take what they took before, no
// lane waits for one.
func TestAcks_boundWhatAKillRepeats(t *testing.T) {
	for _, commit := range []time.Duration{time.Millisecond, 8 * time.Millisecond, 45 * time.Millisecond, 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			hang, acked := commit, make(map[uint64]bool)
			commits := func(took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				hang = took
			}
			acks := newAcks(func(_ context.Context, c raftfsm.Command) (raftfsm.Result, error) {
				mu.Lock()
				took := hang
				mu.Unlock()
				time.Sleep(took)
				mu.Lock()
				defer mu.Unlock()
				for _, run := range c.(raftfsm.Ack).Runs {
					for seq := run.First; seq <= run.Last; seq++ {
						acked[seq] = true
					}
				}
				return raftfsm.Result{}, nil
			}, func() int64 { return time.Now().UnixMilli() })
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- acks.run(ctx) }()
			var delivered []time.Time
			first, waited := 0, 0 // the oldest that is not in the log; rounds in which nothing might be sent
			for round := range 10_000 {
				if round == 7_000 {
					commits(5 * time.Second)
				} else if round == 7_500 {
					commits(commit)
				}
				if acks.isBehind() {
					waited++
				} else {
					for range 10 + 90*(round/1000%2) {
						acks.put([]uint64{uint64(len(delivered))})
						delivered = append(delivered, time.Now())
					}
				}
				mu.Lock()
				for first < len(delivered) && acked[uint64(first)] {
					first++
				}
				mu.Unlock()
				if first < len(delivered) {
					span := delivered[len(delivered)-1].Sub(delivered[first])
					acks.mu.Lock()
					most := max(leastUnacked, 2*acks.commits+ackDelay)
					acks.mu.Unlock()
					if span > most {
						t.Fatalf("commits of %v, round %d: %d would be repeated, delivered within %v, want %v at most", commit, round, len(delivered)-first, span, most)
					}
				}
				if round == 6_999 && waited > int(4*commit/time.Millisecond) {
					t.Errorf("commits of %v: nothing might be sent for %d ms, though they take what they always take", commit, waited)
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			if waited < 2_000 {
				t.Errorf("nothing might be sent for %d ms, though a commit took five seconds", waited)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// The Ack that a lane waits for gets through at whatever moment between its taking the channel and its
// finding that it must wait.
func TestAcks_wakeWhoeverFoundThatItMustWait(t *testing.T) {
	for range 500 {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			acks := newAcks(func(context.Context, raftfsm.Command) (raftfsm.Result, error) {
				<-release
				return raftfsm.Result{}, nil
			}, func() int64 { return time.Now().UnixMilli() })
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = acks.run(ctx) }()
			acks.put([]uint64{1})
			time.Sleep(leastUnacked)
			go close(release)
			freed := acks.freed()
			if acks.isBehind() {
				select {
				case <-freed:
				case <-time.After(time.Minute):
					t.Fatal("the Ack was missed")
				}
			}
			cancel()
		})
	}
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
