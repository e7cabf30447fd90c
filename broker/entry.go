package broker

import (
	"fmt"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// entry returns what one record becomes in the schedule: a message for its target,
// or, when it cannot be one, a dead letter. Both go the same way from here on.
func (g *ingest) entry(route Route, batch Batch, a *Arrival, now int64) (entry storage.Entry, poison bool) {
	origin := Origin{Topic: batch.Topic, Partition: batch.Partition, Offset: a.Offset}
	problem := a.Problem
	target := a.Instruction.To
	if target == "" {
		target = route.Target(batch.Topic)
	}
	if problem == nil {
		problem = g.refuse(route, batch.Topic, target, a.Instruction.DueAt, now)
	}
	if problem != nil {
		topic := g.cfg.Config.DeadLetterTopic(route)
		return deadLetterEntry(topic, now, origin, a.Key, a.Value, a.Headers, *problem), true
	}
	message := Message{
		ID:          a.Instruction.ID,
		Origin:      origin,
		PlannedFor:  a.Instruction.DueAt,
		Partition:   a.Instruction.Partition,
		Partitioner: route.Partitioner,
		Key:         a.Key,
		Value:       a.Value,
		Headers:     a.Headers,
	}
	due := max(a.Instruction.DueAt, 0) // the wheel counts from 1970
	return storage.Entry{Due: due, Target: target, Body: message.AppendBody(nil)}, false
}

// refuse returns why the configuration does not let the message wait, or nil.
func (g *ingest) refuse(route Route, source, target string, dueAt, now int64) *Problem {
	if target == source {
		return &Problem{CodeTargetInvalid, fmt.Sprintf("no deliver-to, and the delay topic %q gives no target: add the header deliver-to, or set routes[].to for %q", source, route.From)}
	}
	if err := CheckTopicName(target); err != nil {
		return &Problem{CodeTargetInvalid, "deliver-to: " + err.Error()}
	}
	if !g.cfg.Config.Targets.Allows(target) {
		return &Problem{CodeTargetDenied, fmt.Sprintf("deliver-to: topic %q is not among the targets: extend targets.allow or targets.deny of the node's configuration, or choose another topic", target)}
	}
	if latest := now + route.MaxDelay.Milliseconds(); dueAt > latest {
		return &Problem{CodeBeyondMaxDelay, fmt.Sprintf("due at %s, later than routes[].max_delay %v allows: choose an earlier time or raise max_delay for %q",
			time.UnixMilli(dueAt).UTC().Format(time.RFC3339), route.MaxDelay, route.From)}
	}
	return nil
}
