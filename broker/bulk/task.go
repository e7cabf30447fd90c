package bulk

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
)

// A task is what an operation does, with all that was to be decided at its start. It is the text that
// storage/bulk keeps, as JSON: every later version must read it.
type task struct {
	Verb   string        `json:"verb"`
	Filter client.Filter `json:"filter,omitzero"`
	All    bool          `json:"all,omitempty"`
	Reason string        `json:"reason"`
	Rate   int           `json:"rate,omitempty"`
	// Change has no time that counts from another: DeliverAt stands for DeliverAfter, too.
	Change *client.BulkChange `json:"change,omitempty"`
	Again  bool               `json:"again,omitempty"`
	// Letters is where those lie that a replay is about.
	Letters deadletter.Extent `json:"letters,omitzero"`
	Matched uint64            `json:"matched"` // at the start
	Within  uint64            `json:"within,omitempty"`
}

func (t *task) text() string {
	text, err := json.Marshal(t)
	if err != nil { // texts and numbers
		panic(err)
	}
	return string(text)
}

func readTask(text string) (t task, err error) {
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, fmt.Errorf("read what an operation does: %w", err)
	}
	return t, nil
}

// newTask returns what the request asks for at a time, epoch milliseconds, or the problem with it.
func (d *Desk) newTask(r *client.OperationRequest, now int64) (t task, problem *client.Problem) {
	t = task{Verb: r.Verb, Filter: r.Filter, All: r.All, Reason: strings.TrimSpace(r.Reason), Rate: r.Rate, Again: r.Again}
	switch r.Verb {
	case client.OperationCancel, client.OperationChange, client.OperationNow, client.OperationReplay:
	default:
		return t, client.BadField("verb", r.Verb, fmt.Sprintf("is not known: write %s, %s, %s or %s", client.OperationCancel, client.OperationChange, client.OperationNow, client.OperationReplay))
	}
	if r.Verb == client.OperationReplay {
		if problem := deadletter.CheckFilter(&r.Filter); problem != nil {
			return t, ofFilter(problem)
		}
	}
	if problem := r.CheckAll(now, d.Orders.MaxDelay().Milliseconds()); problem != nil {
		return t, problem
	}
	if problem := r.Check(); problem != nil {
		return t, problem
	}
	if r.Change != nil && *r.Change != (client.BulkChange{}) {
		if t.Change, problem = d.absolute(r, now); problem != nil {
			return t, problem
		}
	}
	return t, d.checkTarget(r, now)
}

// checkTarget refuses to deliver, now or at another time, to a target to which no message may go any more.
func (d *Desk) checkTarget(r *client.OperationRequest, now int64) *client.Problem {
	goesElsewhere := r.Change != nil && r.Change.DeliverTo != ""
	if r.Verb == client.OperationCancel || r.Filter.Target == "" || goesElsewhere {
		return nil
	}
	_, problem := d.Orders.Fixed(r.Filter.Topic, client.ChangeRequest{DeliverTo: r.Filter.Target}, now)
	return in("filter.target", problem)
}

// in is the problem as one of that field.
func in(field string, problem *client.Problem) *client.Problem {
	if problem != nil {
		problem.Field = field
	}
	return problem
}

// absolute returns the change with its time fixed, if it is one that any message may have.
func (d *Desk) absolute(r *client.OperationRequest, now int64) (*client.BulkChange, *client.Problem) {
	c := r.Change
	fixed, problem := d.Orders.Fixed(r.Filter.Topic, client.ChangeRequest{DeliverAt: c.DeliverAt, DeliverAfter: c.DeliverAfter, DeliverTo: c.DeliverTo}, now)
	if problem != nil {
		return nil, in("change."+problem.Field, problem)
	}
	return &client.BulkChange{DeliverAt: fixed.DeliverAt, Shift: c.Shift, DeliverTo: c.DeliverTo}, nil
}

// changed returns what a message that is due then is to be like. atOnce is when it is due if that is to be at once.
func (t *task) changed(due, atOnce int64) client.ChangeRequest {
	if t.Verb == client.OperationNow {
		return client.ChangeRequest{DeliverAt: rfc3339(min(max(due, 0), atOnce))}
	}
	r := client.ChangeRequest{DeliverAt: t.Change.DeliverAt, DeliverTo: t.Change.DeliverTo}
	if t.Change.Shift != "" {
		by, _ := t.Change.ShiftBy() // as it was checked at the start
		r.DeliverAt = rfc3339(max(due+by, 0))
	}
	return r
}

// rfc3339 is a time as deliver-at takes it, also one that epoch milliseconds may not say.
func rfc3339(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339Nano) }

// tell returns what is told of an operation.
func tell(o bulk.Operation) client.Operation {
	told := client.Operation{
		ID: strconv.FormatUint(o.ID, 10), State: stateOf(o.State), Who: o.Who, UpperSeq: o.UpperSeq, Started: o.Started, Ended: o.Ended,
		Done: o.Done, TooLate: o.TooLate, NotFound: o.NotFound, Failed: o.Failed, Problem: o.Problem,
	}
	t, err := readTask(o.What)
	if err != nil && told.Problem == "" {
		told.Problem = err.Error()
	}
	t.fill(&told)
	return told
}

func (t *task) fill(o *client.Operation) {
	o.Verb, o.Filter, o.All, o.Reason, o.Rate, o.Change, o.Again, o.Matched, o.Within = t.Verb, t.Filter, t.All, t.Reason, t.Rate, t.Change, t.Again, t.Matched, t.Within
}

func stateOf(s bulk.State) string {
	switch s {
	case bulk.Running:
		return client.OperationRunning
	case bulk.Stopped:
		return client.OperationStopped
	}
	return client.OperationFinished
}

// cursorOf is a place in the schedule as the text that storage/bulk keeps.
func cursorOf(at storage.Ref) string { return fmt.Sprintf("%d %d", at.Due, at.Seq) }

// placeOf returns the place that a cursor names; "": the one given.
func placeOf(cursor string, first storage.Ref) (at storage.Ref, err error) {
	if cursor == "" {
		return first, nil
	}
	if _, err := fmt.Sscanf(cursor, "%d %d", &at.Due, &at.Seq); err != nil {
		return at, fmt.Errorf("read the place %q of an operation: %w", cursor, err)
	}
	return at, nil
}
