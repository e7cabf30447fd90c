package ingest

import (
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// mostAsked is how many operations with an id a command has at most: each is looked up while it is applied, in
// files if not in memory, and nothing else is applied meanwhile. Short cancels would come by the ten thousand;
// messages of a hundred bytes and more are bounded by their bytes.
const mostAsked = 4096

// mostRoom is how many operations a packer keeps room for from one command to the next: as many as a full one
// of messages of 100 bytes has, and some 2 MB.
const mostRoom = 8192

// A packer gathers operations into ingest commands of at most so many bytes, or of one
// operation that is larger by itself, and of mostAsked that have an id.
type packer struct {
	most    int   // bytes of a command
	lead    int64 // milliseconds: what is due sooner brings its claim along
	due     int64 // by which messages were due when the last batch came, epoch milliseconds
	propose func(command raftfsm.Ingest, parts []packedPart) error
	parts   []raftfsm.Part
	packed  []packedPart // in the order of parts
	bytes   int
	records int
	asked   int  // operations with an id
	logged  bool // each answer is logged
	soon    bool // something is due before a claim of its own could be committed in time

	operations []raftfsm.Operation // of all parts, one behind the other; reused
	partBegins int                 // where those of the last part begin
}

// A packedPart says where a part of a command comes from and what it holds.
type packedPart struct {
	topic       string
	id          partitionID
	round       uint64
	records     int
	refused     map[string]int // of them, by code; nil: none
	lastRefused refusal
	plain       int             // operations without an id; the others are answered
	logged      bool            // each answer is logged
	asked       []asked         // of those that are answered, the ones that are told one by one, in order
	named       []storage.Named // those that the opening of ids must know; Seq is the place in the part
}

// An asked is an operation with an id of which more is told than a count: one with a condition, that may not hold, or
// each while all answers are logged.
type asked struct {
	place   int   // among the operations of its part
	offset  int64 // of its record
	id      string
	foreign string // the other cluster whose message it names; empty: none
}

// A refusal is why the record at the offset cannot be scheduled.
type refusal struct {
	offset  int64
	problem *message.Problem
}

// begin starts a part at the batch's first offset. due is the time by which messages are due, logged says that each
// answer will be logged.
func (p *packer) begin(batch *Batch, due int64, logged bool) {
	p.due, p.logged = due, logged
	p.open(batch, batch.From)
}

func (p *packer) open(batch *Batch, from int64) {
	part := raftfsm.Part{TopicID: batch.TopicID, Topic: batch.Topic, Partition: batch.Partition, From: from, Next: from, Epoch: batch.Epoch}
	p.parts = append(p.parts, part)
	p.packed = append(p.packed, packedPart{topic: batch.Topic, id: batch.id(), round: batch.Round, logged: p.logged})
	p.partBegins = len(p.operations)
	p.bytes += part.Size()
}

// add appends what a record asks for, proposing what is there if it does not fit beside it.
func (p *packer) add(batch *Batch, r *reading, now int64) error {
	p.tell(r)
	size := r.size(batch.Topic)
	if p.records > 0 && p.bytes+size > p.most {
		// The gap before the record belongs to this command, so that the next one
		// begins at the record.
		p.parts[len(p.parts)-1].Next = r.offset
		if err := p.flush(now); err != nil {
			return err
		}
		p.open(batch, r.offset)
		p.tell(r)
		size = r.size(batch.Topic)
	}
	part := &p.parts[len(p.parts)-1]
	packed := &p.packed[len(p.packed)-1]
	switch {
	case !r.open:
		if e := &r.operation.Entry; r.named != "" {
			at := storage.Ref{Due: e.Due, Seq: uint64(len(part.Entries))}
			packed.named = append(packed.named, storage.Named{Ref: at, Target: e.Target, Topic: batch.Topic, ID: r.named})
		}
		part.Entries = append(part.Entries, r.operation.Entry)
	default:
		switch {
		case r.operation.Entry.ID == "":
			packed.plain++
		case packed.logged || r.operation.If != raftfsm.Always:
			packed.asked = append(packed.asked, asked{len(part.Operations), r.offset, r.operation.Entry.ID, r.foreign})
		}
		p.operations = append(p.operations, r.operation)
		part.Operations = p.operations[p.partBegins:]
	}
	part.Next = r.offset + 1
	p.bytes += size
	p.records++
	packed.records++
	if r.open && r.operation.Entry.ID != "" {
		if p.asked++; p.asked == mostAsked {
			p.bytes = max(p.bytes, p.most) // nothing fits beside it
		}
	}
	if r.problem != nil {
		if packed.refused == nil {
			packed.refused = make(map[string]int)
		}
		packed.refused[r.problem.Code]++
		packed.lastRefused = refusal{r.offset, r.problem}
	}
	p.soon = p.soon || r.operation.Verb == raftfsm.Schedule && r.operation.Entry.Due <= p.due+p.lead
	return nil
}

// tell has the operation say which record of the part that is open asks for it.
func (p *packer) tell(r *reading) {
	if r.told {
		r.operation.Record = uint64(r.offset-p.parts[len(p.parts)-1].From) + 1
	}
}

// end takes what follows the last record of the batch, markers and gaps.
func (p *packer) end(batch *Batch) {
	p.parts[len(p.parts)-1].Next = batch.Next
}

// flush proposes what was gathered. A command with something that is due soon
// brings its claim, so that a short delay costs no further commit. While firing is stopped
// the claim stands still, too: what is claimed cannot be cancelled any more.
func (p *packer) flush(now int64) error {
	if len(p.parts) == 0 {
		return nil
	}
	command := raftfsm.Ingest{Time: now, Parts: p.parts}
	if p.soon {
		command.ClaimThrough = p.due + p.lead
	}
	err := p.propose(command, p.packed)
	clear(p.operations) // bodies
	room := p.operations[:0]
	if cap(room) > mostRoom {
		room = nil
	}
	*p = packer{most: p.most, lead: p.lead, propose: p.propose, due: p.due, logged: p.logged, operations: room}
	return err
}
