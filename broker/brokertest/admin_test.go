package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
)

// Programs go on through client.Admin while leaders are killed: what has an idempotency key is scheduled once, no
// list misses what was acknowledged before it began, and a cancel that was told to be one is one.
func TestAdmin_goesOnWhileLeadersAreKilled(t *testing.T) {
	testAPI(t, []string{"sync=20ms"}, []string{"orders.delay", "orders"}, func(x *apiTest) {
		const callers, each = 8, 100
		ctx := context.Background()
		var (
			all   sync.WaitGroup
			mu    sync.Mutex
			acked = map[string]uint64{} // seq by id
			doubt = map[string]bool{}   // cancels of which nothing is known
			ended = map[string]bool{}   // that were told to be cancelled
		)
		for caller := range callers {
			all.Go(func() {
				for i := range each {
					key := fmt.Sprintf("%d-%d", caller, i)
					a, err := x.admin.Schedule(ctx, client.ScheduleRequest{Topic: "orders.delay", DeliverAfter: "24h", IdempotencyKey: key})
					if err != nil {
						x.t.Errorf("schedule %s: %v", key, err)
						return
					}
					mu.Lock()
					acked[a.ID] = a.Seq
					mu.Unlock()
					if i%2 == 0 {
						_, err := x.admin.Cancel(ctx, client.Name{Topic: "orders.delay", ID: a.ID}, "")
						mu.Lock()
						switch {
						case err == nil:
							ended[a.ID] = true
						case errors.Is(err, client.ErrInDoubt):
							doubt[a.ID] = true
						default:
							x.t.Errorf("cancel %s: %v", key, err)
						}
						mu.Unlock()
					}
					x.pause(100 * time.Millisecond)
				}
			})
		}
		all.Go(func() {
			for range 10 {
				mu.Lock()
				before := len(acked) - len(ended) - len(doubt)
				mu.Unlock()
				count := 0
				for _, err := range x.admin.Messages(ctx, client.Filter{Topic: "orders.delay"}) {
					if err != nil {
						x.t.Errorf("list: %v", err)
						return
					}
					count++
				}
				if count < before-callers { // as many may be cancelled and not told so yet
					x.t.Errorf("%d are listed, %d were acknowledged before", count, before)
				}
				x.pause(3 * time.Second)
			}
		})
		for range 3 {
			x.pause(5 * time.Second)
			old := x.leader()
			x.silence(old)
			old.kill()
			x.pause(5 * time.Second)
			old.start()
			x.serve(old)
		}
		all.Wait()
		if len(acked) != callers*each {
			x.t.Fatalf("%d ids were made for %d keys", len(acked), callers*each)
		}
		for id, seq := range acked {
			life, err := x.admin.Get(ctx, "orders.delay", id)
			switch {
			case err != nil:
				x.t.Errorf("%s: %v", id, err)
			case ended[id] && (life.Message != nil || len(life.Outcomes) != 1 || life.Outcomes[0].Kind != client.OutcomeCancelled):
				x.t.Errorf("%s was cancelled and is %+v", id, life)
			case !ended[id] && !doubt[id] && (life.Message == nil || life.Message.Seq != seq || len(life.Outcomes) != 0):
				x.t.Errorf("%s was scheduled once, as %d, and is %+v", id, seq, life)
			}
		}
		count, err := x.admin.Count(ctx, client.Filter{Topic: "orders.delay"})
		if left := uint64(len(acked) - len(ended)); err != nil || !count.Exact || count.Count > left || count.Count < left-uint64(len(doubt)) {
			x.t.Errorf("%+v wait, %v: %d were scheduled, %d cancelled", count, err, len(acked), len(ended))
		}
		x.t.Logf("%d were cancelled, %d cancels are in doubt", len(ended), len(doubt))
	})
}
