package broker

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

const (
	// mostRecord bounds key, value and headers of a record that is scheduled. A command
	// that holds the message, or the dead letter in its place, stays far below
	// raftfsm.MaxCommandBytes: one that is refused would end every term. Only records
	// that the producer has compressed come near it.
	mostRecord = 16 << 20
	// mostKept bounds key and headers that the dead letter of a larger one keeps.
	mostKept = raftfsm.ProposalBytes
)

// entry returns what one record becomes in the schedule: a message for its target,
// or, when it cannot be one, a dead letter. Both go the same way from here on.
func (g *ingest) entry(route Route, batch Batch, a *Arrival, now int64) (entry storage.Entry, poison bool) {
	origin := Origin{Topic: batch.Topic, Partition: batch.Partition, Offset: a.Offset}
	if size := a.size(); size > mostRecord {
		return g.tooLarge(route, origin, a, size, now), true
	}
	problem := a.Problem
	to := route.Destination(batch.Topic, a.Instruction.To)
	if problem == nil {
		problem = g.cfg.Config.Refuse(route, to, a.Instruction.DueAt, now)
	}
	if problem != nil {
		topic := g.cfg.Config.DeadLetterTopic(route)
		return deadLetterEntry(topic, now, origin, a.Key, a.Value, a.Headers, *problem), true
	}
	due := max(a.Instruction.DueAt, 0) // the wheel counts from 1970
	message := Message{
		ID:          a.Instruction.ID,
		Origin:      origin,
		PlannedFor:  a.Instruction.DueAt,
		Overdue:     max(now-due, 0),
		Partition:   a.Instruction.Partition,
		Partitioner: route.Partitioner,
		Key:         a.Key,
		Value:       a.Value,
		Headers:     a.Headers,
	}
	return storage.Entry{Due: due, Target: to.Topic, Body: message.AppendBody(nil)}, false
}

// tooLarge returns the dead letter of a record of that many bytes, which goes without
// the value, and without key and headers if they are large by themselves.
func (g *ingest) tooLarge(route Route, origin Origin, a *Arrival, size int, now int64) storage.Entry {
	problem := Problem{CodeTooLarge, fmt.Sprintf("record of %d bytes, uncompressed: send %d at most", size, mostRecord)}
	key, headers := a.Key, a.Headers
	if size-len(a.Value) > mostKept {
		key, headers = nil, nil
		problem.Message += "; key and headers are left out here"
	}
	headers = append(slices.Clip(headers), Header{headerValueDropped, strconv.AppendInt(nil, int64(len(a.Value)), 10)})
	return deadLetterEntry(g.cfg.Config.DeadLetterTopic(route), now, origin, key, nil, headers, problem)
}

// size returns the bytes of key, value and headers.
func (a *Arrival) size() int {
	size := len(a.Key) + len(a.Value)
	for _, h := range a.Headers {
		size += h.size()
	}
	return size
}
