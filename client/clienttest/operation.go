package clienttest

import (
	"fmt"

	"github.com/carillonmq/carillon/client"
)

// A verb is what an operation does.
type verb int

const (
	schedule verb = iota // accepts the message; one that waits under its id gives way to it
	cancel               // ends the one that waits
	change               // puts the message into the place of the one that waits
)

// An operation is what a record or a request asks for. Of a cancel only topic and id of the message count.
type operation struct {
	verb      verb
	condition client.Condition
	seq       uint64 // with Exactly
	message
}

// A standing is what an id stands for.
type standing struct {
	waits *message        // neither claimed nor expired; nil: none
	onWay *message        // the newest, if it is claimed
	ended *client.Outcome // the newest, if it has ended
}

func (s *Server) standing(n name) (now standing) {
	var newest uint64
	for _, m := range s.pending {
		if m.name() == n && m.seq > newest {
			newest = m.seq
			now = standing{waits: m}
		}
	}
	if m := now.waits; m != nil && s.isExpired(m) {
		now = standing{ended: &client.Outcome{Kind: client.OutcomeExpired, Seq: m.seq, Due: m.due, At: m.expires, Target: m.target}}
	} else if m != nil && m.claimed {
		now = standing{onWay: m}
	}
	for _, o := range s.outcomes[n] {
		if o.Seq > newest {
			newest = o.Seq
			now = standing{ended: &o, onWay: now.onWay}
		}
	}
	return now
}

func (s standing) holds(op operation) bool {
	switch op.condition {
	case client.Absent:
		return s.waits == nil
	case client.Present:
		return s.waits != nil
	case client.Exactly:
		return s.waits != nil && s.waits.seq == op.seq
	}
	return true
}

// carryOut does what is asked, or says why not:
//
//	verb      condition  one waits    one is on its way  the newest has ended          nothing is known
//	schedule  holds      replaced     scheduled          scheduled                     scheduled
//	          does not   conflict     conflict           conflict                      conflict
//	cancel    holds      cancelled    too late           already cancelled / too late  not found
//	          does not   conflict     too late           already cancelled / too late  not found
//	change    holds      replaced     too late           too late                      not found
//	          does not   conflict     too late           too late                      not found
func (s *Server) carryOut(op operation) (client.Answer, *client.Problem) {
	n := op.name()
	was := s.standing(n)
	answer := client.Answer{Topic: op.topic, ID: op.id}
	switch holds := was.holds(op); {
	case !holds && (was.waits != nil || op.verb == schedule):
		return answer, s.refuse(op, was)
	case was.waits != nil && op.verb == cancel:
		answer.Code, answer.Seq = client.AnswerCancelled, was.waits.seq
		s.end(was.waits, s.ending(client.OutcomeCancelled, was.waits))
	case was.waits != nil:
		answer.Code, answer.Before = client.AnswerReplaced, was.waits.seq
		answer.Seq = s.seq + 1
		ended := s.ending(client.OutcomeReplaced, was.waits)
		ended.By = answer.Seq
		s.end(was.waits, ended)
		s.accept(op.message)
	case op.verb == schedule:
		answer.Code = client.AnswerScheduled
		if was.onWay != nil && op.chosen {
			answer.Before = was.onWay.seq
		}
		answer.Seq = s.accept(op.message)
	case was.ended != nil && was.ended.Kind == client.OutcomeCancelled && op.verb == cancel:
		answer.Code, answer.Seq, answer.Outcome = client.AnswerAlreadyCancelled, was.ended.Seq, was.ended
	case was.ended != nil:
		return answer, &client.Problem{Code: client.CodeTooLate, Seq: was.ended.Seq, Outcome: was.ended, Detail: fmt.Sprintf("too late: message %d has ended: %s", was.ended.Seq, was.ended.Kind)}
	case was.onWay != nil:
		return answer, &client.Problem{Code: client.CodeTooLate, Seq: was.onWay.seq, Detail: fmt.Sprintf("too late: message %d is on its way to its target", was.onWay.seq)}
	default:
		return answer, &client.Problem{Code: client.CodeNotFound, Detail: fmt.Sprintf("no message of %s has or had the id %q", op.topic, op.id)}
	}
	s.settle()
	return answer, nil
}

// refuse keeps that a condition did not hold.
func (s *Server) refuse(op operation, was standing) *client.Problem {
	s.index++
	p := &client.Problem{Code: client.CodeConflict, Detail: fmt.Sprintf("the condition does not hold, nothing was done: no message waits under %q of %s", op.id, op.topic)}
	if was.waits != nil {
		p.Seq = was.waits.seq
		p.Detail = fmt.Sprintf("the condition does not hold, nothing was done: message %d waits under %q of %s", p.Seq, op.id, op.topic)
	}
	if op.chosen {
		s.outcomes[op.name()] = append(s.outcomes[op.name()], client.Outcome{Kind: client.OutcomeRefused, Due: op.due, At: s.now, Target: op.target})
	}
	return p
}

// ending is the outcome of a message that ends now.
func (s *Server) ending(kind string, m *message) client.Outcome {
	return client.Outcome{Kind: kind, Seq: m.seq, Due: m.due, At: s.now, Target: m.target}
}

// accept has a message wait, and returns its seq.
func (s *Server) accept(m message) uint64 {
	s.seq++
	m.seq = s.seq
	if m.from == "" {
		m.from = fmt.Sprintf("api/%d", m.seq)
	}
	s.pending[m.seq] = &m
	return m.seq
}
