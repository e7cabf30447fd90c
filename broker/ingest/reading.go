package ingest

import (
	"encoding/hex"
	"fmt"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A form says what may be written now.
type form struct {
	level storage.Level
	// open: ids are. Below, an entry has none, and the message in it tells its own.
	open bool
}

func (g *Ingest) form() form { return form{g.cfg.Store.Level(), g.cfg.Store.IDsOpen()} }

// moments are the times by which a record is judged, in epoch milliseconds.
type moments struct {
	now     int64 // by this node's clock
	due     int64 // by which messages are due (clock.Clock.Due): a dead letter is due then at the latest
	reached int64 // the schedule's time: where it is later, this node's clock is behind, or another one was ahead
}

func (g *Ingest) moments() moments {
	return moments{now: g.now(), due: g.cfg.Due().UnixMilli(), reached: g.cfg.Store.Time()}
}

// written is the level at which messages are stored: before ids are open, as below LevelThree,
// since what is accepted then is among what the opening has yet to find.
func (f form) written() storage.Level {
	if f.open {
		return f.level
	}
	return min(f.level, storage.LevelTwo)
}

// A reading is what one record becomes.
type reading struct {
	offset    int64
	operation raftfsm.Operation
	open      bool             // it is carried out as an operation; else its entry is accepted
	told      bool             // the log is told which record it is, for a refusal to name
	named     string           // the id that its entry does not tell, while ids are opened; empty: none
	foreign   string           // its condition names a message of this other cluster; empty: it does not
	problem   *message.Problem // it is a dead letter, and why
}

// size returns the bytes that it adds to its command.
func (r *reading) size(topic string) int {
	if r.open {
		return raftfsm.OperationSize(&r.operation, topic)
	}
	return raftfsm.EntrySize(&r.operation.Entry)
}

// pack turns the batch into operations, or below LevelThree into entries.
func (g *Ingest) pack(pack *packer, batch *Batch) error {
	route, ok := g.cfg.Config.Route(batch.Topic)
	if !ok {
		return fmt.Errorf("pack records of %s: no route matches the topic", batch.Topic)
	}
	form, at := g.form(), g.moments()
	pack.begin(batch, at.due, g.logsAnswers())
	to := g.judge.destination(route, batch.Topic, "")
	for i := range batch.Arrivals {
		arrival := &batch.Arrivals[i]
		if arrival.Instruction.To != to.deliverTo {
			to = g.judge.destination(route, batch.Topic, arrival.Instruction.To)
		}
		from := message.Origin{Topic: batch.Topic, Partition: batch.Partition, Offset: arrival.Offset}
		r := g.judge.read(&to, from, arrival, form, at)
		if err := pack.add(batch, &r, at.now); err != nil {
			return err
		}
	}
	pack.end(batch)
	return nil
}

// A destination is where messages with the same deliver-to go, all of one delay topic, and what
// speaks against it. It is judged once for a run of them: patterns cost more than the rest of an
// entry.
type destination struct {
	route     config.Route
	deliverTo string
	target    string
	problem   *message.Problem
}

func (j *Judge) destination(route config.Route, topic, deliverTo string) destination {
	target, problem := j.config.Destination(route, topic, deliverTo)
	return destination{route, deliverTo, target, problem}
}

// A Judge decides what a record comes to, whichever way it came. Any goroutine may use it.
type Judge struct {
	config  config.Config
	cluster string // as delivered-seq has it
}

// NewJudge returns the judge of the cluster with that id.
func NewJudge(c config.Config, cluster [16]byte) *Judge { return &Judge{c, clusterText(cluster)} }

// Operation returns what a record asks of a schedule whose ids are open, at the feature level, in
// epoch milliseconds now: with the origin given, which is not the record's if it did not come from
// Kafka. The problem is the one for which a producer's record becomes a dead letter; then there is no
// operation. A route must have the origin's topic.
func (j *Judge) Operation(route config.Route, origin message.Origin, a *Arrival, level storage.Level, now int64) (raftfsm.Operation, *message.Problem) {
	to := j.destination(route, origin.Topic, a.Instruction.To)
	r := j.read(&to, origin, a, form{level, true}, moments{now: now, due: now})
	if r.problem != nil {
		return raftfsm.Operation{}, r.problem
	}
	return r.operation, nil
}

// read returns what one record becomes: what it asks for, or, when that cannot be, a dead letter and why. Both go the same
// way from here on.
func (j *Judge) read(to *destination, origin message.Origin, a *Arrival, form form, at moments) reading {
	in := &a.Instruction
	due := max(in.DueAt, 0) // the wheel counts from 1970
	m := message.Message{
		ID:          in.ID,
		Origin:      origin,
		PlannedFor:  in.DueAt,
		Expires:     in.Expires,
		Overdue:     max(at.now-due, 0),
		Partition:   in.Partition,
		Partitioner: to.route.Partitioner,
		Key:         a.Key,
		Value:       a.Value,
		Headers:     a.Headers,
	}
	r := reading{offset: a.Offset, open: form.open, operation: raftfsm.Operation{Verb: raftfsm.Schedule}}
	if r.problem = objection(&m, to, a, form, at); r.problem != nil {
		letterDue := at.due
		if a.Time > 0 { // this leader's clock may be found to be ahead, before the letter is written
			letterDue = min(letterDue, a.Time)
		}
		letterDue = max(letterDue, 0) // the wheel counts from 1970
		letter := m.AsDeadLetter(*r.problem, letterDue)
		letter.Overdue = max(at.now-letterDue, 0)
		r.operation.Entry = letter.Entry(letterDue, j.config.DeadLetterTopic(to.route), form.written())
		return r
	}
	if in.Cancel {
		r.operation.Verb = raftfsm.Cancel
		r.operation.Entry = storage.Entry{Topic: origin.Topic, ID: in.ID}
	} else {
		r.operation.Entry = m.Entry(due, to.target, form.written())
		if !form.open && form.level >= storage.LevelThree {
			r.named = in.ID
		}
	}
	r.operation.If, r.operation.Seq = in.If, in.Seq
	r.told = form.open && form.level >= storage.LevelFour && in.If != raftfsm.Always && in.ID != ""
	if in.Cluster != "" && in.Cluster != j.cluster {
		r.foreign, r.operation.Seq = in.Cluster, noSeq
	}
	return r
}

// noSeq is the seq of no message: they are counted from 1.
const noSeq = 0

// objection returns why what the record asks for cannot be, or nil. A cancel goes nowhere and at
// no time, and nothing of it is stored. How far ahead a message may be due counts from the later time: by a clock that
// is years behind, each would be due too late.
func objection(m *message.Message, to *destination, a *Arrival, form form, at moments) *message.Problem {
	tooNew := m.TooNew(form.level, form.open)
	size := a.size()
	switch {
	case a.Instruction.Cancel && tooNew == nil:
		return nil
	case size > MostRecord:
		return shorten(m, size)
	case len(a.Headers) > MostHeaders:
		m.Headers = nil
		return &message.Problem{Code: message.CodeTooLarge, Message: fmt.Sprintf("record with %d headers: send %d at most; they are left out here", len(a.Headers), MostHeaders)}
	case a.Problem != nil:
		return a.Problem
	case to.problem != nil:
		return to.problem
	}
	if problem := to.route.RefuseDue(a.Instruction.DueAt, max(at.now, at.reached)); problem != nil {
		return problem
	}
	return tooNew
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

// clusterText is the cluster's id as delivered-seq has it.
func clusterText(id [16]byte) string { return hex.EncodeToString(id[:]) }
