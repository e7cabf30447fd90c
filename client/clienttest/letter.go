package clienttest

import (
	"fmt"
	"strconv"

	"github.com/carillonmq/carillon/client"
)

const deadLetterTopic = "carillon.dead-letter"

// A letter is a dead letter, with the message that it was.
type letter struct {
	client.DeadLetter
	message message
}

func (l *letter) position() client.Position {
	return client.Position{Topic: l.Topic, Partition: l.Partition, Offset: l.Offset}
}

// bury makes a dead letter of a message.
func (s *Server) bury(m *message, p problem, at int64) *letter {
	l := &letter{message: *m, DeadLetter: client.DeadLetter{
		Topic: deadLetterTopic, Offset: s.nextOffset(deadLetterTopic), Code: p.code, Detail: p.detail, Target: m.target, Origin: m.from, DelayTopic: m.topic, Time: at,
	}}
	for _, h := range m.record.Headers { // of one that could not be read nothing else tells it
		if !m.chosen && h.Key == client.HeaderID && len(h.Value) > 0 {
			l.message.id, l.message.chosen = string(h.Value), true
		}
	}
	if l.message.chosen {
		l.ID = l.message.id
	}
	r := m.record
	r.Headers = append(r.Headers[:len(r.Headers):len(r.Headers)],
		client.Header{Key: client.HeaderErrorCode, Value: []byte(p.code)}, client.Header{Key: client.HeaderErrorMessage, Value: []byte(p.detail)},
		client.Header{Key: client.HeaderErrorTopic, Value: []byte(r.Topic)}, client.Header{Key: client.HeaderErrorPartition, Value: []byte(strconv.Itoa(int(r.Partition)))},
		client.Header{Key: client.HeaderErrorOffset, Value: []byte(strconv.FormatInt(r.Offset, 10))})
	l.Payload = payloadOf(&r)
	l.Size = sizeOf(&r)
	s.letters = append(s.letters, l)
	s.index++
	return l
}

func payloadOf(r *client.Record) *client.Payload {
	p := &client.Payload{Key: r.Key, Value: r.Value, Headers: []client.PayloadHeader{}}
	for _, h := range r.Headers {
		p.Headers = append(p.Headers, client.PayloadHeader(h))
	}
	return p
}

func sizeOf(r *client.Record) int {
	size := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return size
}

// letterAt returns the dead letter that lies there, or nil.
func (s *Server) letterAt(p client.Position) *letter {
	for _, l := range s.letters {
		if l.position() == p {
			return l
		}
	}
	return nil
}

// replay schedules a dead letter anew: at once, to its target, unless the request says otherwise.
func (s *Server) replay(l *letter, r client.ReplayRequest) (client.Answer, *client.Problem) {
	if l.Replayed && !r.Again {
		return client.Answer{}, &client.Problem{Code: client.CodeReplayed, Detail: "the dead letter " + l.position().String() + " was replayed before: say again to do so once more"}
	}
	full := client.ScheduleRequest{DeliverAt: r.DeliverAt, DeliverAfter: r.DeliverAfter, DeliverTo: r.DeliverTo}
	if full.DeliverAt == "" && full.DeliverAfter == "" {
		full.DeliverAfter = "0"
	}
	in, p := parse(full.Instructions(), s.now)
	if p != nil {
		return client.Answer{}, p
	}
	m := l.message
	m.due, m.planned, m.expires, m.claimed = in.DueAt, in.DueAt, 0, false
	if !m.chosen {
		m.id, m.chosen = fmt.Sprintf("%s%026d", client.OwnPrefix, s.seq+1), true
	}
	if in.To != "" {
		m.target = in.To
	}
	if m.target == "" {
		m.target = routed(m.topic)
	}
	if p := s.check(&m); p != nil {
		return client.Answer{}, p.asked(&full)
	}
	answer, p := s.carryOut(operation{verb: schedule, condition: client.Absent, message: m}) // one that waits does not give way
	if p == nil {
		l.Replayed = true
	}
	return answer, p
}
