package ingest

import (
	"fmt"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

const (
	// MostRecord bounds key, value and headers of a record that is scheduled. A command
	// that holds the message, or the dead letter in its place, stays far below
	// raftfsm.MaxCommandBytes: one that is refused would end every term. Only records
	// that the producer has compressed come near it.
	MostRecord = 16 << 20
	// mostKept bounds key and headers that the dead letter of a larger one keeps.
	mostKept = raftfsm.ProposalBytes
)

// An Arrival is one record of a delay topic, its headers already read as the
// contract demands (client.Parse).
type Arrival struct {
	Offset      int64
	Key, Value  []byte
	Headers     []message.Header // all of them, as they came
	Instruction Instruction
	Problem     *message.Problem // not nil: the record cannot be scheduled, and why
}

// size returns the bytes of key, value and headers.
func (a *Arrival) size() int {
	size := len(a.Key) + len(a.Value)
	for _, h := range a.Headers {
		size += h.Size()
	}
	return size
}

// An Instruction is what the deliver-* headers of a record ask for.
type Instruction struct {
	DueAt     int64  // epoch milliseconds, rounded up
	To        string // target topic; empty: the route decides
	Partition int32  // -1: by partitioner
	ID        string // the caller's id; empty: the record's origin
}

// A destination is where messages with the same deliver-to go, all of one delay topic, and what
// speaks against it. It is judged once for a run of them: patterns cost more than the rest of an
// entry.
type destination struct {
	deliverTo string
	target    string
	problem   *message.Problem
}

func (g *Ingest) destination(route config.Route, topic, deliverTo string) destination {
	target, problem := g.cfg.Config.Destination(route, topic, deliverTo)
	return destination{deliverTo, target, problem}
}

// entry returns what one record becomes in the schedule: a message for its target,
// or, when it cannot be one, a dead letter, and why. Both go the same way from here on.
func (g *Ingest) entry(route config.Route, to destination, batch Batch, a *Arrival, now int64) (storage.Entry, *message.Problem) {
	level := g.cfg.Store.Level()
	due := max(a.Instruction.DueAt, 0) // the wheel counts from 1970
	m := message.Message{
		ID:          a.Instruction.ID,
		Origin:      message.Origin{Topic: batch.Topic, Partition: batch.Partition, Offset: a.Offset},
		PlannedFor:  a.Instruction.DueAt,
		Overdue:     max(now-due, 0),
		Partition:   a.Instruction.Partition,
		Partitioner: route.Partitioner,
		Key:         a.Key,
		Value:       a.Value,
		Headers:     a.Headers,
	}
	problem := a.Problem
	if size := a.size(); size > MostRecord {
		problem = shorten(&m, size)
	}
	if problem == nil {
		problem = to.problem
	}
	if problem == nil {
		problem = route.RefuseDue(a.Instruction.DueAt, now)
	}
	if problem == nil && level < storage.LevelTwo {
		problem = m.TooNew()
	}
	if problem != nil {
		letter := m.AsDeadLetter(*problem, now)
		return letter.Entry(now, g.cfg.Config.DeadLetterTopic(route), level), problem
	}
	return m.Entry(due, to.target, level), nil
}

// shorten leaves out the value of a record of that many bytes, and key and headers if they
// are large by themselves, and returns the problem.
func shorten(m *message.Message, size int) *message.Problem {
	problem := &message.Problem{Code: message.CodeTooLarge, Message: fmt.Sprintf("record of %d bytes, uncompressed: send %d at most", size, MostRecord)}
	dropped := len(m.Value)
	if size-dropped > mostKept {
		m.Key, m.Headers = nil, nil
		problem.Message += "; key and headers are left out here"
	}
	m.DropValue()
	return problem
}
