package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/clock"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/raftfsm/member"
)

// newTestSkew returns the comparing part of n1, which has no term, in a cluster of the members.
func newTestSkew(wall func() time.Time, members ...string) *skew {
	own := config.Default()
	own.Node.ID, own.Cluster.Members = "n1", nil
	for _, id := range members {
		own.Cluster.Members = append(own.Cluster.Members, config.Member{ID: id})
	}
	return newSkew(&Broker{
		config: own, log: slog.New(slog.DiscardHandler), compareEvery: compareEvery,
		clock: clock.New(clock.Config{Wall: wall, MaxSkew: own.Clock.MaxSkew}),
	})
}

// A node that is alone can find its clock set while it has no term: between two of them, say. The
// next term must not wait until the old time comes back.
func TestSkew_aloneLooksAgainWithoutATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		k := newTestSkew(func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }, "n1")
		ctx, cancel := context.WithCancel(t.Context())
		go k.run(ctx)
		time.Sleep(time.Minute)
		offset.Store(int64(time.Hour))
		k.broker.clock.Due()
		time.Sleep(12 * time.Second)
		if due := k.broker.clock.Due(); !due.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("messages are due by %v, the clock was steady for 12 s at %v", due, time.Now().Add(time.Hour))
		}
		cancel()
		synctest.Wait()
	})
}

// An answer is what another member does when it is asked for its clock: it answers after a time, or
// refuses at once. One that takes longer than is waited for does not answer.
type answer struct {
	takes   time.Duration
	refuses bool
}

const silent = time.Hour

// askedOf returns a function that asks members whose clocks are right.
func askedOf(answers map[string]answer) func(context.Context, member.Member) (ClockReading, error) {
	return func(ctx context.Context, m member.Member) (ClockReading, error) {
		does := answers[m.ID]
		if does.refuses {
			return ClockReading{}, errors.New("connection refused")
		}
		now := time.Now().UnixMicro()
		select {
		case <-time.After(does.takes):
			return ClockReading{Node: m.ID, Cluster: config.Default().Cluster.Name, Micros: now}, nil
		case <-ctx.Done():
			return ClockReading{}, ctx.Err()
		}
	}
}

// The clock of n1 is an hour ahead, and n1 is elected. Whatever the comparison before came to,
// nothing of that hour is due where a majority of all members can tell.
func TestSkew_judgesTheClockBeforeTheTermBegins(t *testing.T) {
	three, five := []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3", "n4", "n5"}
	refuses := answer{refuses: true}
	for _, test := range []struct {
		what         string
		members      []string
		before, then map[string]answer
	}{
		{"one of two was down", three, map[string]answer{"n3": refuses}, nil},
		{"three of four were down", five, map[string]answer{"n3": refuses, "n4": refuses, "n5": refuses}, nil},
		{"all were down", three, map[string]answer{"n2": refuses, "n3": refuses}, nil},
		{"one of four says nothing", five, nil, map[string]answer{"n5": {takes: silent}}},
		{"one of two answers slowly", three, nil, map[string]answer{"n3": {takes: 400 * time.Millisecond}}},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTestSkew(func() time.Time { return time.Now().Add(time.Hour) }, test.members...)
				if test.before != nil {
					k.broker.askClock = askedOf(test.before)
					k.compare(t.Context(), nil)
				}
				k.broker.askClock = askedOf(test.then)
				go func() {
					select {
					case begun := <-k.wanted:
						k.compare(t.Context(), begun)
					case <-t.Context().Done():
					}
				}()
				if err := k.begin(t.Context()); err != nil {
					t.Fatal(err)
				}
				if due := k.broker.clock.Due(); time.Until(due) > time.Second {
					t.Errorf("the term begins %v ahead", time.Until(due))
				}
			})
		})
	}
}

// A majority that stands against the clock is enough, as is one that stands for it: a term waits for
// nobody else, and not at all where such a majority answered the comparison before.
func TestSkew_termsWaitForAMajorityOnly(t *testing.T) {
	for _, wrong := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			k := newTestSkew(func() time.Time { return time.Now().Add(wrong) }, "n1", "n2", "n3", "n4", "n5")
			k.broker.askClock = askedOf(map[string]answer{"n2": {takes: 10 * time.Millisecond}, "n5": {takes: silent}})
			began := time.Now()
			go func() { k.compare(t.Context(), <-k.wanted) }()
			if err := k.begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("%v ahead: the term begins after %v, a majority answered within 10 ms", wrong, took)
			}
			time.Sleep(comparePatience)
			synctest.Wait()
			if began = time.Now(); k.begin(t.Context()) != nil || !began.Equal(time.Now()) {
				t.Errorf("%v ahead: the next term does not begin at once", wrong)
			}
		})
	}
}
