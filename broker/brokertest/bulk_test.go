package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// bulkOf has six hundred messages wait, twenty of which are due at a time, and starts an operation on all of
// them, which runs beside the delivery of the first half. It returns when each was due.
func bulkOf(x *idTest, r client.OperationRequest) (due map[string]int64) {
	x.t.Helper()
	due = make(map[string]int64)
	begin := time.Now()
	for group := range 30 {
		at := begin.Add(12*time.Second + time.Duration(group)*time.Second)
		if group >= 15 {
			at = at.Add(5 * time.Minute)
		}
		for half := range 2 {
			var values []string
			for i := range 10 {
				values = append(values, fmt.Sprintf("%d-%d-%d", group, half, i))
				due[values[i]] = at.UnixMilli()
			}
			if half == 0 {
				x.send(options(client.At(at)), values...)
				continue
			}
			for _, value := range values {
				x.send(options(client.At(at), client.ID(value)), value)
			}
		}
	}
	r.Filter, r.Reason, r.Rate = client.Filter{Target: "orders"}, "a test", 15
	o, err := x.leader().broker.Operations().Start(x.t.Context(), r, "ann", "")
	x.must(err)
	if o.ID != "1" || o.State != client.OperationRunning {
		x.t.Fatalf("started %+v", o)
	}
	return due
}

// killLeaders kills one leader after the other while the operation runs, and produces what it does not mean:
// new messages, and some under ids of those that it means.
func (x *idTest) killLeaders() (later []string) {
	x.t.Helper()
	for round := range 3 {
		x.pause(2500 * time.Millisecond)
		old := x.leader()
		old.kill()
		x.pause(5 * time.Second)
		x.leader()
		old.start()
		for i := range 3 {
			value := fmt.Sprintf("later %d-%d", round, i)
			later = append(later, value)
			x.send(options(client.After(10*time.Minute), client.ID(fmt.Sprintf("%d-1-%d", 29-round, i))), value)
		}
	}
	return later
}

// bulkEnded waits for the end of the operation, which all nodes tell of alike.
func (x *idTest) bulkEnded() client.Operation {
	x.t.Helper()
	x.await(5*time.Minute, "the end of the operation", func() bool {
		return x.leader().broker.Operations().Local().Operations[0].State != client.OperationRunning
	})
	x.pause(5 * time.Second)
	var all []client.Operations
	for _, n := range x.nodes {
		all = append(all, n.broker.Operations().Local())
	}
	if diff := cmp.Diff(all[:2], all[1:]); diff != "" || len(all[0].Operations) != 1 {
		x.t.Fatalf("nodes tell (-one +the next):\n%s", diff)
	}
	return all[0].Operations[0]
}

// met returns how many messages the operation has counted.
func met(o client.Operation) uint64 { return o.Done + o.TooLate + o.NotFound + o.Failed }

// dues returns what has come to a topic, each value once, with the times that it was due at.
func (x *idTest) dues(topic string) map[string][]int64 {
	x.t.Helper()
	came := make(map[string][]int64)
	for _, d := range x.consume() {
		if d.Topic == topic && !slices.Contains(came[d.Value], d.Due) {
			came[d.Value] = append(came[d.Value], d.Due)
		}
	}
	return came
}

// However many leaders are killed meanwhile, each message is either cancelled, and counted so once, or
// delivered. What comes later is delivered.
func TestBulk_cancelsEachMessageOnceOverKilledLeaders(t *testing.T) {
	testIDs(t, storage.LevelFour, func(x *idTest) {
		due := bulkOf(x, client.OperationRequest{Verb: client.OperationCancel})
		later := x.killLeaders()
		o := x.bulkEnded()
		x.pause(15 * time.Minute)
		came := x.dues("orders")
		for _, value := range later {
			if len(came[value]) != 1 {
				x.t.Errorf("%q, which came after the start, was due at %v", value, came[value])
			}
			delete(came, value)
		}
		for value, at := range came {
			if len(at) != 1 || at[0] != due[value] {
				x.t.Errorf("%q was due at %v, want %d", value, at, due[value])
			}
		}
		x.t.Logf("%d delivered, %d done, %d too late, %d not found of %d", len(came), o.Done, o.TooLate, o.NotFound, o.Matched)
		replaced := x.replaced()
		if o.State != client.OperationFinished || int(o.Done)+len(came)+replaced != len(due) || o.Failed != 0 || o.Done < 100 || o.Within == 0 && met(o) != o.Matched {
			x.t.Errorf("%+v with %d delivered and %d replaced of %d", o, len(came), replaced, len(due))
		}
	})
}

// replaced returns how many messages gave way to later ones before the operation came to them.
func (x *idTest) replaced() (count int) {
	x.t.Helper()
	for round := range 3 {
		for i := range 3 {
			events, _ := x.eventsOf(x.leader(), fmt.Sprintf("%d-1-%d", 29-round, i))
			if slices.Contains(events, "replaced") {
				count++
			}
		}
	}
	return count
}

// A message that is moved twice would be due twenty minutes later.
func TestBulk_movesEachMessageOnceOverKilledLeaders(t *testing.T) {
	testIDs(t, storage.LevelFour, func(x *idTest) {
		due := bulkOf(x, client.OperationRequest{Verb: client.OperationChange, Change: &client.BulkChange{Shift: "10m"}})
		later := x.killLeaders()
		o := x.bulkEnded()
		x.pause(20 * time.Minute)
		came := x.dues("orders")
		for _, value := range later {
			if len(came[value]) != 1 {
				x.t.Errorf("%q, which came after the start, was due at %v", value, came[value])
			}
			delete(came, value)
		}
		const shift = 10 * 60_000
		moved, kept := 0, 0
		for value, at := range came {
			switch {
			case len(at) == 1 && at[0] == due[value]+shift:
				moved++
			case len(at) == 1 && at[0] == due[value]:
				kept++
			default:
				x.t.Errorf("%q was due at %v, want %d, or ten minutes later", value, at, due[value])
			}
		}
		x.t.Logf("%d moved, %d not, %+v", moved, kept, o)
		// What has given way to a later message is gone, be it before it was moved or after.
		if gone := len(due) - moved - kept; gone > len(later) || int(o.Done) < moved || int(o.Done) > moved+gone || o.Failed != 0 || moved < 100 || o.Within == 0 && met(o) != o.Matched {
			x.t.Errorf("%+v with %d moved, %d not, of %d", o, moved, kept, len(due))
		}
	})
}

// A stopped operation does no more, whoever leads.
func TestBulk_staysStopped(t *testing.T) {
	testIDs(t, storage.LevelFour, func(x *idTest) {
		bulkOf(x, client.OperationRequest{Verb: client.OperationCancel})
		x.pause(4 * time.Second)
		o, err := x.leader().broker.Operations().Stop(x.t.Context(), "1", "bob", "enough")
		x.must(err)
		x.leader().kill()
		x.pause(5 * time.Second)
		x.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		if ended := x.bulkEnded(); !cmp.Equal(ended, o) || o.State != client.OperationStopped || o.Done < 40 || o.Done > 100 {
			x.t.Errorf("stopped as %+v, is %+v", o, ended)
		}
		x.pause(10 * time.Minute)
		if came := len(x.dues("orders")); came != 600-int(o.Done) {
			x.t.Errorf("%d were delivered, %d cancelled", came, o.Done)
		}
	})
}
