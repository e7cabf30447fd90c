package query

import (
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// messageOf decodes what storage has listed. aside is what is aside, by seq.
func messageOf(l *storage.Listed, aside map[uint64]int64) (client.Message, message.Message, error) {
	told := client.Message{
		Topic: l.Topic, ID: l.ID, Chosen: l.ID != "", Seq: l.Seq, Due: l.Due, Expires: l.Expires,
		Target: l.Target, State: l.Standing.String(), Size: l.Size,
	}
	if _, is := aside[l.Seq]; is {
		told.State = client.StateAside
	}
	entry := l.Entry()
	decoded, err := message.FromEntry(&entry)
	if err != nil {
		told.Unreadable = true
		return told, decoded, err
	}
	told.Topic, told.ID, told.Chosen, told.From = decoded.Origin.Topic, decoded.Name(), decoded.ID != "", decoded.Origin.String()
	return told, decoded, nil
}

func payloadOf(m *message.Message) *client.Payload {
	p := &client.Payload{Key: m.Key, Value: m.Value, Headers: make([]client.PayloadHeader, len(m.Headers))}
	for i, h := range m.Headers {
		p.Headers[i] = client.PayloadHeader(h)
	}
	return p
}

// OutcomeOf returns an outcome as it is told.
func OutcomeOf(o outcomes.Outcome) client.Outcome {
	told := client.Outcome{Kind: kindOf(o.Kind), Seq: o.Seq, By: o.By, Due: o.Due, At: o.At, Target: o.Target}
	if o.Kind == outcomes.Delivered || o.Kind == outcomes.DeadLettered || o.Kind == outcomes.RefusedRecord {
		told.Partition = &o.Partition
		if o.Offset >= 0 {
			told.Offset = &o.Offset
		}
	}
	return told
}

func kindOf(k outcomes.Kind) string {
	switch k {
	case outcomes.Delivered:
		return client.OutcomeDelivered
	case outcomes.DeadLettered:
		return client.OutcomeDeadLettered
	case outcomes.Expired:
		return client.OutcomeExpired
	case outcomes.Cancelled:
		return client.OutcomeCancelled
	case outcomes.Replaced:
		return client.OutcomeReplaced
	case outcomes.Refused, outcomes.RefusedRecord:
		return client.OutcomeRefused
	}
	return "unknown"
}
