package clienttest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
)

// claimAhead is for how long before its due time a message is on its way, in milliseconds.
const claimAhead = 100

// A message is one that is pending.
type message struct {
	seq       uint64
	topic, id string
	chosen    bool   // else its id is where it came from
	from      string // topic/partition/offset of its record, or api/seq
	due       int64  // epoch milliseconds
	planned   int64  // what it was asked to be due at
	expires   int64  // epoch milliseconds; 0: never
	target    string
	partition int32 // -1: by the key
	record    client.Record
	// key of the delivered record, if the instruction gives it
	key     []byte
	claimed bool // it is on its way, and has given up its id
}

func (m *message) name() name { return name{m.topic, m.id} }

// A problem is why something becomes a dead letter.
type problem struct{ code, detail string }

// inOrder is that of delivery.
func inOrder(a, b *message) int {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq))
}

// sorted returns what is pending in order of delivery.
func (s *Server) sorted() []*message {
	all := make([]*message, 0, len(s.pending))
	for _, m := range s.pending {
		all = append(all, m)
	}
	slices.SortFunc(all, inOrder)
	return all
}

// pass moves time on, and delivers what may go on the way: what is due when it is, and what was held back
// at the moment from which time goes on.
func (s *Server) pass(to int64) {
	from := s.now
	s.now = max(s.now, to)
	s.index++
	for _, m := range s.sorted() {
		if m.due > s.now+claimAhead {
			break
		}
		switch {
		case !m.claimed && s.isPaused(m):
		case m.due <= s.now:
			s.deliver(m, max(m.due, from))
		case !s.isExpired(m):
			m.claimed = true
		}
	}
}

// settle does what the present moment asks for.
func (s *Server) settle() { s.pass(s.now) }

func (s *Server) isExpired(m *message) bool { return m.expires != 0 && m.expires <= s.now }

func (s *Server) isPaused(m *message) bool {
	return slices.ContainsFunc(s.pauses, func(p client.Pause) bool {
		return p.Kind == client.PauseTopic && p.Name == m.topic || p.Kind == client.PauseTarget && p.Name == m.target
	})
}

// deliver ends a message that is due.
func (s *Server) deliver(m *message, at int64) {
	o := client.Outcome{Kind: client.OutcomeDelivered, Seq: m.seq, Due: m.due, At: at, Target: m.target}
	refused, isRefused := s.refused[m.target]
	switch {
	case m.expires != 0 && m.expires <= at:
		o.Kind = client.OutcomeExpired
	case isRefused:
		l := s.bury(m, refused, at)
		o.Kind, o.Target, o.Partition, o.Offset = client.OutcomeDeadLettered, l.Topic, &l.Partition, &l.Offset
	default:
		r := s.asDelivered(m, at)
		s.delivered = append(s.delivered, r)
		o.Partition, o.Offset = &r.Partition, &r.Offset
	}
	s.end(m, o)
}

// end takes a message away and keeps what became of it.
func (s *Server) end(m *message, o client.Outcome) {
	delete(s.pending, m.seq)
	if m.chosen {
		s.outcomes[m.name()] = append(s.outcomes[m.name()], o)
	}
}

// asDelivered returns the record as its target takes it.
func (s *Server) asDelivered(m *message, at int64) *client.Record {
	r := &client.Record{Topic: m.target, Partition: max(m.partition, 0), Key: m.record.Key, Value: m.record.Value, Timestamp: time.UnixMilli(at), Offset: s.nextOffset(m.target + "/" + strconv.Itoa(int(max(m.partition, 0))))}
	if m.key != nil {
		r.Key = m.key
	}
	ours := []string{client.HeaderDeliveredID, client.HeaderDeliveredFor, client.HeaderDeliveredFrom, client.HeaderDeliveredSeq}
	for _, h := range m.record.Headers {
		if !strings.HasPrefix(h.Key, client.InstructionPrefix) && !slices.Contains(ours, h.Key) {
			r.Headers = append(r.Headers, h)
		}
	}
	for i, value := range []string{m.id, strconv.FormatInt(m.planned, 10), m.from, fmt.Sprintf("%s/%d", Cluster, m.seq)} {
		r.Headers = append(r.Headers, client.Header{Key: ours[i], Value: []byte(value)})
	}
	return r
}

// take does what a record from Kafka asks for.
func (s *Server) take(r *client.Record) {
	op, p := s.judge(r)
	if p != nil {
		op.record = *r
		s.bury(&op.message, *p, s.now)
		return
	}
	s.carryOut(op)
}

// origin names a record by where it lies.
func origin(r *client.Record) string { return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset) }

// mostDelay is that of the configuration that ships: a hundred years, in milliseconds.
const mostDelay = 36500 * 24 * 3600 * 1000

// judge returns what a record on a delay topic asks for, or why it becomes a dead letter; then the operation
// has as much as is known.
func (s *Server) judge(r *client.Record) (operation, *problem) {
	op := operation{message: message{topic: r.Topic, id: origin(r), from: origin(r), partition: -1}}
	in, err := client.Parse(r.Headers, r.Timestamp.UnixMilli())
	if err != nil {
		wrong := err.(*client.HeaderError)
		return op, &problem{string(wrong.Code), wrong.Error()}
	}
	op.id, op.chosen, op.condition, op.seq = cmp.Or(in.ID, op.id), in.ID != "", in.If, in.Seq
	if in.Cluster != "" && in.Cluster != Cluster {
		op.seq = 0 // of no message: it never holds
	}
	if in.Verb == client.VerbCancel {
		op.verb = cancel
		return op, nil
	}
	op.due, op.planned, op.expires = in.DueAt, in.DueAt, in.Expires
	op.target, op.partition, op.record = cmp.Or(in.To, routed(r.Topic)), in.Partition, *r
	if in.HasKey {
		op.key = []byte(in.Key)
	}
	return op, s.check(&op.message)
}

// check returns why a message may not wait, or nil.
func (s *Server) check(m *message) *problem {
	switch {
	case isDelayTopic(m.target):
		return &problem{codeTargetInvalid, fmt.Sprintf("topic %q is a delay topic: choose a topic that no route reads", m.target)}
	case m.target == deadLetterTopic:
		return &problem{codeTargetInvalid, fmt.Sprintf("topic %q is for dead letters: choose another topic", m.target)}
	case m.due > s.now+mostDelay:
		return &problem{codeBeyondMaxDelay, fmt.Sprintf("due at %d, which is more than a hundred years ahead: choose an earlier time", m.due)}
	}
	return nil
}

// Codes of dead letters, besides those of headers.
const (
	codeTargetInvalid  = "target-invalid"
	codeBeyondMaxDelay = "beyond-max-delay"
)
