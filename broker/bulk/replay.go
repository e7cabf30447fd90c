package bulk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/bulk"
)

// A replay walks over the dead letters that there were at its start, partition by partition, from the first
// offset on. What it means is on Kafka's disks, so it reads ahead of its steps, and before it takes its turn:
// a Kafka that does not answer holds up nobody else.
//
//	Kafka --ReadOn--> window --gatherLetters--> StepBulk: each scheduled, and marked as replayed
//	                             cursor ------>           at this cursor, to that one

// A letterPlace is where a replay goes on: an offset of a part of its extent. Behind the last part it is at its
// end.
type letterPlace struct {
	part   int
	offset int64
}

func (p letterPlace) String() string { return fmt.Sprintf("%d %d", p.part, p.offset) }

// letterPlaceOf returns the place that a cursor names; "": the first.
func letterPlaceOf(cursor string, of deadletter.Extent) (p letterPlace, err error) {
	if cursor == "" {
		return beginOf(0, of), nil
	}
	if _, err := fmt.Sscanf(cursor, "%d %d", &p.part, &p.offset); err != nil || p.part < 0 {
		return p, fmt.Errorf("read the place %q of a replay: %w", cursor, err)
	}
	return p, nil
}

// beginOf is the first place of a part, or the end.
func beginOf(part int, of deadletter.Extent) letterPlace {
	if part >= len(of) {
		return letterPlace{part: len(of)}
	}
	return letterPlace{part, of[part].From}
}

// An ahead is what a replay has read and not dealt with. The zero value is nothing.
type ahead struct {
	part   int
	window deadletter.Window
}

// covers reports whether what comes at the place was read.
func (a *ahead) covers(p letterPlace) bool {
	return a.part == p.part && a.window.From <= p.offset && p.offset < a.window.To
}

// readAhead reads on from where the operation is, if that was not read.
func (d *Desk) readAhead(ctx context.Context, o *bulk.Operation, t *task, a *ahead) error {
	at, err := letterPlaceOf(o.Cursor, t.Letters)
	if err != nil || at.part >= len(t.Letters) || a.covers(at) {
		return err
	}
	*a = ahead{} // its memory goes before that of the next
	window, err := d.Letters.ReadOn(ctx, &t.Letters[at.part], at.offset)
	if err != nil {
		return err
	}
	*a = ahead{at.part, window}
	return nil
}

// gatherLetters returns the step that comes next, of so many dead letters at most, from what was read ahead.
func (d *Desk) gatherLetters(o *bulk.Operation, t *task, a *ahead, most int) (raftfsm.StepBulk, error) {
	c := raftfsm.StepBulk{Time: d.Now().UnixMilli(), ID: o.ID, From: o.Cursor}
	at, err := letterPlaceOf(o.Cursor, t.Letters)
	if err != nil {
		return c, err
	}
	if at.part >= len(t.Letters) {
		c.Next, c.Finished = at.String(), true
		return c, nil
	}
	if !a.covers(at) {
		return c, fmt.Errorf("replay dead letters of %s: nothing was read at offset %d", &t.Letters[at.part], at.offset)
	}
	w := &a.window
	if w.First > at.offset {
		c.Passed.NotFound = uint64(w.First - at.offset)
	}
	size := 0
	for i := range w.Found {
		l := &w.Found[i]
		if l.Told.Offset < at.offset || !deadletter.Means(&t.Filter, &l.Told) {
			continue
		}
		if !l.Told.Foreign && !t.Again && d.Letters.IsReplayed(l) {
			c.Passed.TooLate++
			continue
		}
		op, problem := d.replay(t, l, o.Started)
		bytes := raftfsm.OperationSize(&op, "")
		if taken := dealtWith(&c); taken == most || taken > 0 && size+bytes > raftfsm.ProposalBytes {
			c.Next = letterPlace{at.part, l.Told.Offset}.String()
			return c, nil
		}
		if problem != nil {
			c.Passed.Failed, c.Problem = c.Passed.Failed+1, letterProblem(l, problem)
			continue
		}
		c.Operations, size = append(c.Operations, op), size+bytes
	}
	next := letterPlace{at.part, w.To}
	if w.To >= t.Letters[at.part].To {
		next = beginOf(at.part+1, t.Letters)
	}
	c.Next, c.Finished = next.String(), next.part == len(t.Letters)
	return c, nil
}

// replay returns what schedules the dead letter anew, as a request for it alone would at the operation's start.
func (d *Desk) replay(t *task, l *deadletter.Found, started int64) (raftfsm.Operation, *client.Problem) {
	if l.Told.Foreign {
		return raftfsm.Operation{}, &client.Problem{Detail: "was put there by somebody else: it does not say what it was to become"}
	}
	r := client.ReplayRequest{DeliverAt: rfc3339(min(started, d.Due().UnixMilli())), Again: t.Again}
	if c := t.Change; c != nil {
		r.DeliverTo = c.DeliverTo
		if c.DeliverAt != "" {
			r.DeliverAt = c.DeliverAt
		}
	}
	return d.Orders.Replayed(&l.Letter, t.keepsTo, r)
}

// keepsTo refuses what would go elsewhere than the filter says: who started the operation may do so there alone.
func (t *task) keepsTo(_ *client.ScheduleRequest, target string) *client.Problem {
	if t.Filter.Target == "" || t.Filter.Target == target || t.Change != nil && t.Change.DeliverTo != "" {
		return nil
	}
	return &client.Problem{Detail: fmt.Sprintf("would go to %q, and the filter means %q: replay it alone", target, t.Filter.Target)}
}

// letterProblem tells which dead letter cannot be replayed and why.
func letterProblem(l *deadletter.Found, problem *client.Problem) string {
	text := fmt.Sprintf("dead letter %s/%d/%d: %s", l.Told.Topic, l.Told.Partition, l.Told.Offset, problem.Detail)
	if len(text) > bulk.MostProblem {
		text = strings.ToValidUTF8(text[:bulk.MostProblem], "")
	}
	return text
}

// countFor is how long dead letters are counted before a replay starts, and mostCountedWindows how much of them.
const (
	countFor           = 3 * time.Second
	mostCountedWindows = 64
)

// matchLetters fixes which dead letters the task is about, and counts those that it would replay. What it has
// not looked at by the end of its time is by how much the count may be off.
func (d *Desk) matchLetters(ctx context.Context, t *task) (err error) {
	if t.Letters, err = d.Letters.Extent(ctx, t.Filter.From); err != nil {
		return err
	}
	if err := d.Log.Barrier(ctx); err != nil { // the marks are those of all that was acknowledged
		return err
	}
	for i := range t.Letters {
		t.Within += uint64(t.Letters[i].To - t.Letters[i].From)
	}
	until, windows := time.Now().Add(countFor), 0
	for i := range t.Letters {
		for at := t.Letters[i].From; at < t.Letters[i].To; {
			if windows++; windows > mostCountedWindows || time.Now().After(until) {
				return nil
			}
			w, err := d.Letters.ReadOn(ctx, &t.Letters[i], at)
			if err != nil {
				return err
			}
			for j := range w.Found {
				l := &w.Found[j]
				if !l.Told.Foreign && deadletter.Means(&t.Filter, &l.Told) && (t.Again || !d.Letters.IsReplayed(l)) {
					t.Matched++
				}
			}
			t.Within -= uint64(w.To - at)
			at = w.To
		}
	}
	return nil
}
