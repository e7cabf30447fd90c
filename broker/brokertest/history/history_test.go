package history

import (
	"math"
	"testing"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
)

// Calls one after the other, but where they say otherwise.
func inTurn(calls ...Call) []Call {
	for i := range calls {
		if calls[i].To == 0 {
			calls[i].From, calls[i].To = int64(10*i+1), int64(10*i+2)
		}
		calls[i].ID, calls[i].Client = "a", i
	}
	return calls
}

func TestCheck(t *testing.T) {
	first := Call{Verb: Schedule, Code: raftfsm.Scheduled, Seq: 1}
	short := Call{Verb: Schedule, Code: raftfsm.Scheduled, Seq: 1, Expires: 5}
	late := Call{Verb: Schedule, Code: raftfsm.Scheduled, Seq: 1, Expires: int64(time.Minute)}
	second := Call{Verb: Schedule, Code: raftfsm.Superseded, Seq: 2, Before: 1}
	for name, c := range map[string]struct {
		calls []Call
		right bool
	}{
		"delivered":                             {inTurn(first, Call{Verb: Deliver, Seq: 1}), true},
		"cancelled":                             {inTurn(first, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}), true},
		"cancelled, then delivered":             {inTurn(first, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}, Call{Verb: Deliver, Seq: 1}), false},
		"too late, then delivered":              {inTurn(first, Call{Verb: Cancel, Code: raftfsm.TooLate, Seq: 1}, Call{Verb: Deliver, Seq: 1}), true},
		"delivered, then cancelled":             {inTurn(first, Call{Verb: Deliver, Seq: 1}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}), false},
		"not found though it waits":             {inTurn(first, Call{Verb: Cancel, Code: raftfsm.NotFound}), false},
		"cancelled twice":                       {inTurn(first, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}), false},
		"cancelled and so told again":           {inTurn(first, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}, Call{Verb: Cancel, Code: raftfsm.AlreadyCancelled, Seq: 1}), true},
		"replaced, and the first one delivered": {inTurn(first, second, Call{Verb: Deliver, Seq: 1}), false},
		"replaced, and the second delivered":    {inTurn(first, second, Call{Verb: Deliver, Seq: 2}), true},
		"both wait":                             {inTurn(first, Call{Verb: Schedule, Code: raftfsm.Scheduled, Seq: 2}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 2}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}), false},
		"the first was on its way":              {inTurn(first, Call{Verb: Schedule, Code: raftfsm.Scheduled, Seq: 2}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 2}, Call{Verb: Deliver, Seq: 1}), true},
		"a read of what was replaced":           {inTurn(first, second, Call{Verb: Get, Told: Waiting, Seq: 1}), false},
		"a read at the same time":               {inTurn(first, second, Call{Verb: Get, Told: Waiting, Seq: 1, From: 11, To: 30}), true},
		"a read of what was cancelled":          {inTurn(first, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}, Call{Verb: Get, Told: Cancelled, Seq: 1}), true},
		"read as claimed, and then cancelled":   {inTurn(first, Call{Verb: Get, Told: Claimed, Seq: 1}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}), false},
		"nothing is known of what waits":        {inTurn(first, Call{Verb: Get}), false},
		"listed":                                {inTurn(first, Call{Verb: List, Seq: 1}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}), true},
		"listed, and no longer, and cancelled":  {inTurn(first, Call{Verb: List, Seq: 1}, Call{Verb: List}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}), false},
		"both listed":                           {inTurn(first, second, Call{Verb: List, Seq: 1}, Call{Verb: List, Seq: 2}), false},
		"changed, and the first one delivered":  {inTurn(first, Call{Verb: Change, Code: raftfsm.Superseded, Seq: 2, Before: 1}, Call{Verb: Deliver, Seq: 1}), false},
		"changed, and delivered":                {inTurn(first, Call{Verb: Change, Code: raftfsm.Superseded, Seq: 2, Before: 1}, Call{Verb: Deliver, Seq: 2}), true},
		"changed after it was cancelled":        {inTurn(first, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}, Call{Verb: Change, Code: raftfsm.Scheduled, Seq: 2}), false},
		"too late to change what is cancelled":  {inTurn(first, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}, Call{Verb: Change, Code: raftfsm.TooLate, Seq: 1}), true},
		"nothing to change though it waits":     {inTurn(first, Call{Verb: Change, Code: raftfsm.NotFound}), false},
		"a change without an answer has effect": {inTurn(first, Call{Verb: Change, Seq: 2, From: 5, To: math.MaxInt64}, Call{Verb: List, Seq: 2}), true},
		"a condition that holds and is refused": {inTurn(first, Call{Verb: Cancel, If: raftfsm.Exactly, Exact: 1, Code: raftfsm.Conflict, Seq: 1}), false},
		"absent refused":                        {inTurn(first, Call{Verb: Schedule, If: raftfsm.Absent, Code: raftfsm.Conflict, Seq: 1}), true},
		"no answer, and it has no effect":       {inTurn(first, Call{Verb: Cancel, From: 5, To: math.MaxInt64}, Call{Verb: Deliver, Seq: 1}), true},
		"no answer, and it has":                 {inTurn(first, Call{Verb: Cancel, From: 5, To: math.MaxInt64}, Call{Verb: Cancel, Code: raftfsm.AlreadyCancelled, Seq: 1}), true},
		"expired, and told again":               {inTurn(short, Call{Verb: Get, Told: Expired, Seq: 1}, Call{Verb: Cancel, Code: raftfsm.TooLate, Told: Expired, Seq: 1}, Call{Verb: List}), true},
		"expired though it never does":          {inTurn(first, Call{Verb: Get, Told: Expired, Seq: 1}), false},
		"expired too soon":                      {inTurn(late, Call{Verb: Get, Told: Expired, Seq: 1}), false},
		"expired, and then waiting":             {inTurn(short, Call{Verb: Get, Told: Expired, Seq: 1}, Call{Verb: Get, Told: Waiting, Seq: 1}), false},
		"expired, and then listed":              {inTurn(short, Call{Verb: Get, Told: Expired, Seq: 1}, Call{Verb: List, Seq: 1}), false},
		"expired, and then claimed":             {inTurn(short, Call{Verb: Get, Told: Expired, Seq: 1}, Call{Verb: Get, Told: Claimed, Seq: 1}), false},
		"expired, and then cancelled":           {inTurn(short, Call{Verb: Get, Told: Expired, Seq: 1}, Call{Verb: Cancel, Code: raftfsm.WasCancelled, Seq: 1}), false},
		"too late as expired, then changed":     {inTurn(short, Call{Verb: Cancel, Code: raftfsm.TooLate, Told: Expired, Seq: 1}, Call{Verb: Change, Code: raftfsm.Superseded, Seq: 2, Before: 1}), false},
		"expired, and a new one has the id":     {inTurn(short, Call{Verb: Get, Told: Expired, Seq: 1}, Call{Verb: Schedule, Code: raftfsm.Scheduled, Seq: 2}, Call{Verb: Get, Told: Waiting, Seq: 2}), true},
		"expired, and a new one replaces it":    {inTurn(short, Call{Verb: Get, Told: Expired, Seq: 1}, second), false},
		"claimed, expired, and delivered":       {inTurn(short, Call{Verb: Get, Told: Claimed, Seq: 1}, Call{Verb: Get, Told: Expired, Seq: 1}, Call{Verb: Get, Told: Delivered, Seq: 1}, Call{Verb: Deliver, Seq: 1}), true},
		"waiting, expired, and delivered later": {inTurn(short, Call{Verb: Get, Told: Expired, Seq: 1}, Call{Verb: Schedule, Code: raftfsm.Scheduled, Seq: 2}, Call{Verb: Deliver, Seq: 1, From: 25, To: 90}), true}, // a claim may have been before
		"delivered, and then expired":           {inTurn(short, Call{Verb: Get, Told: Delivered, Seq: 1}, Call{Verb: Get, Told: Expired, Seq: 1}), false},
		"delivered before it was scheduled":     {inTurn(Call{Verb: Deliver, Seq: 1}, first), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Check(c.calls, time.Minute); (err == nil) != c.right {
				t.Errorf("%v, want linearizable: %v", err, c.right)
			}
		})
	}
}
