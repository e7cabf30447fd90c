package query

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// BenchmarkAMillionPending prints how long a cancel by id takes through the log of a group of one, and a get behind
// its barrier, while a million messages with ids are pending: one after the other, in turn with a write and sync of 4 KB
// to the same disk, which the log waits for as well; then from 16 callers at once.
func BenchmarkAMillionPending(b *testing.B) {
	const pending, each, callers = 1_000_000, 2000, 16
	n := nodetest.Open(b, b.Context())
	b.Cleanup(func() { n.Close() })
	scheduleAll(b, n, pending)
	desk := New(n.Store(), onlyLog{n})
	file, err := os.Create(filepath.Join(b.TempDir(), "bare"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	bare := func(int) {
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			b.Error(err)
		}
		if err := file.Sync(); err != nil {
			b.Error(err)
		}
	}
	cancel := func(i int) {
		op := raftfsm.Operation{Verb: raftfsm.Cancel, Entry: storage.Entry{Topic: "orders.delay", ID: idOf(i)}}
		if res, err := n.Propose(b.Context(), raftfsm.Operate{Time: 1, Operations: []raftfsm.Operation{op}}).Wait(b.Context()); err != nil || res.Killed != 1 {
			b.Error(res, err)
		}
	}
	get := func(i int) {
		if life, err := desk.Get(b.Context(), "orders.delay", idOf(i)); err != nil || life.Message == nil {
			b.Error(i, err)
		}
	}
	// Which message the i-th is about: a prime apart, each but once; gets are of others than cancels.
	one := func(i int) int { return i * 7919 % (pending / 2) * 2 }
	for range b.N {
		var bares, cancels, gets times
		for i := range each {
			bares.add(bare, i)
			cancels.add(cancel, one(i))
			gets.add(get, one(i)+1)
		}
		bares.report(b, "sync")
		cancels.report(b, "cancel")
		gets.report(b, "get")
		var manyCancels, manyGets times
		together(callers, each, func(i int) { manyCancels.add(cancel, one(each+i)) })
		together(callers, each, func(i int) { manyGets.add(get, one(each+i)+1) })
		manyCancels.report(b, "cancel_of_16")
		manyGets.report(b, "get_of_16")
		b.ReportMetric(0, "ns/op")
	}
}

// onlyLog is that of a group of one.
type onlyLog struct{ *node.Node }

func (l onlyLog) Barrier(ctx context.Context) error { return l.BarrierAt(ctx, nodetest.Now()) }

func (onlyLog) Leader() string { return "n1" }

func idOf(i int) string { return fmt.Sprintf("order-%012d", i) }

// scheduleAll has the log take count messages with ids, due within a day.
func scheduleAll(b *testing.B, n *node.Node, count int) {
	b.Helper()
	propose := func(c raftfsm.Command) *raftfsm.Proposal { return n.Propose(b.Context(), c) }
	wait := func(p *raftfsm.Proposal) {
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	wait(propose(raftfsm.RaiseLevel{Level: storage.LevelThree}))
	wait(propose(raftfsm.OpenIDs{}))
	var waiting []*raftfsm.Proposal
	const batch = 500
	for first := 0; first < count; first += batch {
		c := raftfsm.Operate{Time: 1}
		for i := first; i < first+batch; i++ {
			m := message.Message{Origin: message.Origin{Topic: "orders.delay", Offset: int64(i)}, ID: idOf(i), Partition: -1, Value: make([]byte, 100)}
			c.Operations = append(c.Operations, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: m.Entry(1_000_000+int64(i)*7919%86_400_000, "orders", storage.LevelThree)})
		}
		if waiting = append(waiting, propose(c)); len(waiting) == 8 {
			wait(waiting[0])
			waiting = waiting[1:]
		}
	}
	for _, p := range waiting {
		wait(p)
	}
}

// together calls do for 0 to count-1 from so many goroutines.
func together(callers, count int, do func(i int)) {
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := caller; i < count; i += callers {
				do(i)
			}
		})
	}
	all.Wait()
}

// times are how long calls took.
type times struct {
	mu   sync.Mutex
	took []time.Duration
}

func (t *times) add(call func(i int), i int) {
	began := time.Now()
	call(i)
	took := time.Since(began)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, took)
}

func (t *times) report(b *testing.B, what string) {
	slices.Sort(t.took)
	for _, percent := range []int{50, 99} {
		b.ReportMetric(float64(t.took[len(t.took)*percent/100].Microseconds())/1000, fmt.Sprintf("%s_p%d_ms", what, percent))
	}
}
