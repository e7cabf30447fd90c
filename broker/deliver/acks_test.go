package deliver

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
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
			if len(acks.taken.seqs) > 0 || *commits > most {
				t.Errorf("commits of %v: %d, want %d at most; %d not acknowledged", commit, *commits, most, len(acks.taken.seqs))
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
				if acks.isBehind(time.Now()) {
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

// Commits take longer from one moment to the next when the kernel writes back. The lanes wait for the first of these, and
// not for the others, which take what that one took.
func TestAcks_keepLanesWaitingForTheFirstOfSlowCommitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 200 * time.Millisecond
		var takes atomic.Int64
		takes.Store(int64(3 * time.Millisecond))
		acks := newAcks(func(context.Context, raftfsm.Command) (raftfsm.Result, error) {
			time.Sleep(time.Duration(takes.Load()))
			return raftfsm.Result{}, nil
		}, func() int64 { return time.Now().UnixMilli() })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- acks.run(ctx) }()
		waited := 0
		for round := range 5_000 {
			switch round {
			case 1_000:
				takes.Store(int64(slow))
			case 4_000:
				takes.Store(int64(3 * time.Millisecond))
			}
			if acks.isBehind(time.Now()) {
				waited++
			} else {
				acks.put([]uint64{uint64(round)})
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if most := int((slow + 2*ackDelay) / time.Millisecond); waited == 0 || waited > most {
			t.Errorf("nothing might be sent for %d ms, want some and %d at most", waited, most)
		}
		acks.mu.Lock()
		if acks.commits > leastUnacked/2 {
			t.Errorf("commits count as %v a second after they take 3 ms again", acks.commits)
		}
		acks.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
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
			if acks.isBehind(time.Now()) {
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

// Each message dies with one Ack, which is as large as commands should be, and what is told of it
// goes along.
func TestAcks_splitWhatIsTooLargeForOneCommand(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		all := ends{}
		seq := uint64(0)
		most, gap, tell := random.IntN(60_000), 1+random.Uint64N(4), random.IntN(101)
		for range most {
			if random.IntN(50) > 0 { // or the same once more
				seq += 1 + random.Uint64N(gap)
			}
			all.seqs = append(all.seqs, seq)
			if random.IntN(100) < tell {
				all.told = append(all.told, raftfsm.Ended{Name: [16]byte{byte(seq)}, Kind: outcomes.Delivered, Seq: seq,
					Due: math.MinInt64, At: 1 << 45, Target: strings.Repeat("t", random.IntN(250)), Partition: math.MinInt32, Offset: math.MaxInt64})
			}
		}
		var seqs []uint64
		var told []raftfsm.Ended
		for rest := all; len(rest.seqs) > 0; {
			var ack raftfsm.Ack
			ack, rest = rest.next()
			ack.Time = 1 << 45
			if size := ack.Size(); size > raftfsm.ProposalBytes+4<<10 || size < raftfsm.ProposalBytes/8 && len(rest.seqs) > 0 {
				t.Errorf("an Ack of %d bytes, and %d more to tell", size, len(rest.seqs))
			}
			for _, run := range ack.Runs {
				for seq := run.First; seq <= run.Last; seq++ {
					seqs = append(seqs, seq)
				}
			}
			for _, e := range ack.Ended {
				if !slices.ContainsFunc(ack.Runs, func(r storage.SeqRun) bool { return r.First <= e.Seq && e.Seq <= r.Last }) {
					t.Fatalf("what became of %d is told by an Ack that does not end it", e.Seq)
				}
			}
			told = append(told, ack.Ended...)
		}
		if want := slices.Compact(slices.Clone(all.seqs)); !slices.Equal(want, slices.Compact(seqs)) {
			t.Errorf("%d seqs come out of %d", len(seqs), len(want))
		}
		if !slices.Equal(told, all.told) {
			t.Errorf("%d of %d are told", len(told), len(all.told))
		}
	}
	if ack, _ := (ends{seqs: []uint64{1, 2, 3, 5}}).next(); len(ack.Runs) != 2 {
		t.Errorf("1 2 3 5 takes %d runs, want 2", len(ack.Runs))
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
