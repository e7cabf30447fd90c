package raftfsm

import (
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/bulk"
)

func (m *model) startBulk(c StartBulk) Answer {
	a := m.once(c.Once, func() Answer {
		running := 0
		for _, o := range m.bulks {
			if o.State == bulk.Running {
				running++
			}
		}
		if running == bulk.MostRunning {
			return Answer{Code: Conflict, Seq: manyRun}
		}
		m.started++
		m.bulks = append(m.bulks, bulk.Operation{ID: m.started, What: c.What, Who: c.Who, UpperSeq: m.next - 1, Started: c.Time, State: bulk.Running})
		return Answer{Code: Scheduled, Seq: m.started}
	})
	if a.Seq == manyRun {
		a.Seq = 0
	}
	return a
}

func (m *model) stepBulk(o bulk.Operation, c StepBulk) []Answer {
	answers := m.operate(c.Operations)
	if c.Problem != "" {
		o.Problem = c.Problem
	}
	for i := range c.Operations {
		switch {
		case answers != nil && answers[i].Code == Conflict && c.Operations[i].Replay != nil:
			o.Failed++
			o.Problem = fmt.Sprintf("dead letter %d/%d: message %d waits under its id, which it would replace: cancel that first", c.Operations[i].Replay.At.Number, c.Operations[i].Replay.Offset, answers[i].Seq)
		case answers == nil, answers[i].Code == Scheduled, answers[i].Code == WasCancelled, answers[i].Code == Superseded:
			o.Done++
		case answers[i].Code == NotFound:
			o.NotFound++
		default:
			o.TooLate++
		}
	}
	o.Cursor = c.Next
	o.TooLate, o.NotFound, o.Failed = o.TooLate+c.Passed.TooLate, o.NotFound+c.Passed.NotFound, o.Failed+c.Passed.Failed
	if c.Finished {
		o.State, o.Ended = bulk.Finished, m.time
	}
	m.setBulk(o)
	return answers
}

// setBulk puts it into the place of what it was; of one that has ended that is the last of these.
func (m *model) setBulk(o bulk.Operation) {
	at := slices.IndexFunc(m.bulks, func(b bulk.Operation) bool { return b.ID == o.ID })
	if o.State == bulk.Running {
		m.bulks[at] = o
		return
	}
	m.bulks = slices.Delete(m.bulks, at, at+1)
	running := slices.IndexFunc(m.bulks, func(b bulk.Operation) bool { return b.State == bulk.Running })
	if running < 0 {
		running = len(m.bulks)
	}
	m.bulks = slices.Insert(m.bulks, running, o)
}
