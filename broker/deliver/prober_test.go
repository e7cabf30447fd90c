package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// probing runs a prober until the test ends.
func probing(t *testing.T, partitions func(context.Context, []string) []PartitionCount) *prober {
	q := newProber(partitions)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return q
}

func TestProber_asksForManyNamesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, most := 0, 0
		q := probing(t, func(_ context.Context, names []string) []PartitionCount {
			requests++
			most = max(most, len(names))
			return make([]PartitionCount, len(names))
		})
		for i := range 20_000 {
			q.probe(fmt.Sprint("customer-", i))
		}
		q.ask("orders")
		time.Sleep(urgentGap)
		synctest.Wait()
		first := q.answers.Take(nil)
		if !slices.ContainsFunc(first, func(a answer) bool { return a.Target == "orders" }) {
			t.Error("a lane waits for the answers of parked targets")
		}
		time.Sleep(time.Second + 2*probeGap)
		synctest.Wait()
		if n := len(first) + len(q.answers.Take(nil)); n != 20_001 || requests > 23 || most != mostAsked {
			t.Errorf("%d answers, %d requests of %d names at most", n, requests, most)
		}
	})
}

// A hundred thousand names that nobody has heard of are a hundred requests. Names that come to be asked
// for after them, as each second some of the existing ones do, do not wait for these.
func TestProber_asksForLatecomersBesideABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, each = 100_000, 50
		asked := make(map[string]time.Time)
		q := probing(t, func(_ context.Context, names []string) []PartitionCount {
			if len(names) > mostAsked {
				t.Errorf("a request for %d names", len(names))
			}
			for _, name := range names {
				if _, again := asked[name]; again {
					t.Errorf("%s is asked for twice", name)
				}
				asked[name] = time.Now()
			}
			return make([]PartitionCount, len(names))
		})
		for i := range burst {
			q.ask(customer(i))
		}
		begun, n := time.Now(), burst
		for range 40 {
			time.Sleep(urgentGap)
			for range each {
				q.ask(customer(n))
				n++
			}
			synctest.Wait()
		}
		time.Sleep(burst / mostAsked * urgentGap)
		synctest.Wait()
		for i := range n - burst {
			came := begun.Add(time.Duration(1+i/each) * urgentGap)
			if waited := asked[customer(burst+i)].Sub(came); waited > urgentGap {
				t.Fatalf("number %d after the burst waited for %v", i, waited)
			}
		}
		if len(asked) != n {
			t.Errorf("%d names of %d were asked for in the time that they take", len(asked), n)
		}
	})
}

// A Kafka client may not hear that its context has ended.
func TestProber_waitsForNoCallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		q := probing(t, func(_ context.Context, names []string) []PartitionCount {
			if names[0] == "frozen" {
				<-hang
			}
			return []PartitionCount{{Count: 3}}
		})
		q.ask("frozen")
		time.Sleep(time.Second)
		q.ask("orders")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := q.answers.Take(nil); len(got) != 1 || got[0] != (answer{"orders", PartitionCount{Count: 3}}) {
			t.Errorf("answers %v beside a call that hangs", got)
		}
		time.Sleep(answerPatience)
		synctest.Wait()
		if got := q.answers.Take(nil); len(got) != 1 || !errors.Is(got[0].Err, ErrTargetUnavailable) {
			t.Errorf("answers %v, want one that there is none", got)
		}
	})
}

func customer(i int) string { return fmt.Sprintf("customer-%08d.replies", i) }
