package ingest

import (
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// A packer gathers entries into ingest commands of at most ProposalBytes, or of one
// entry that is larger by itself.
type packer struct {
	lead     int64 // milliseconds: what is due sooner brings its claim along
	propose  func(command raftfsm.Ingest, parts []packedPart) error
	parts    []raftfsm.Part
	packed   []packedPart // in the order of parts
	bytes    int
	messages int
	soon     bool // something is due before a claim of its own could be committed in time
}

// A packedPart says where a part of a command comes from and what it holds.
type packedPart struct {
	topic       string
	id          partitionID
	round       uint64
	messages    int
	refused     map[string]int // of them, by code; nil: none
	lastRefused refusal
}

// A refusal is why the record at the offset cannot be scheduled.
type refusal struct {
	offset  int64
	problem *message.Problem
}

// begin starts a part at the batch's first offset.
func (p *packer) begin(batch Batch) { p.open(batch, batch.From) }

func (p *packer) open(batch Batch, from int64) {
	part := raftfsm.Part{TopicID: batch.TopicID, Topic: batch.Topic, Partition: batch.Partition, From: from, Next: from, Epoch: batch.Epoch}
	p.parts = append(p.parts, part)
	p.packed = append(p.packed, packedPart{topic: batch.Topic, id: batch.id(), round: batch.Round})
	p.bytes += part.Size()
}

// add appends the entry of the record at offset, proposing what is there if the
// entry does not fit beside it.
func (p *packer) add(batch Batch, offset int64, entry storage.Entry, problem *message.Problem, now int64) error {
	size := raftfsm.EntrySize(&entry)
	if p.messages > 0 && p.bytes+size > raftfsm.ProposalBytes {
		// The gap before the record belongs to this command, so that the next one
		// begins at the record.
		p.parts[len(p.parts)-1].Next = offset
		if err := p.flush(now); err != nil {
			return err
		}
		p.open(batch, offset)
	}
	part := &p.parts[len(p.parts)-1]
	part.Entries = append(part.Entries, entry)
	part.Next = offset + 1
	p.bytes += size
	p.messages++
	packed := &p.packed[len(p.packed)-1]
	packed.messages++
	if problem != nil {
		if packed.refused == nil {
			packed.refused = make(map[string]int)
		}
		packed.refused[problem.Code]++
		packed.lastRefused = refusal{offset, problem}
	}
	p.soon = p.soon || entry.Due <= now+p.lead
	return nil
}

// end takes what follows the last record of the batch, markers and gaps.
func (p *packer) end(batch Batch) {
	p.parts[len(p.parts)-1].Next = batch.Next
}

// flush proposes what was gathered. A command with something that is due soon
// brings its claim, so that a short delay costs no further commit.
func (p *packer) flush(now int64) error {
	if len(p.parts) == 0 {
		return nil
	}
	command := raftfsm.Ingest{Time: now, Parts: p.parts}
	if p.soon {
		command.ClaimThrough = now + p.lead
	}
	err := p.propose(command, p.packed)
	*p = packer{lead: p.lead, propose: p.propose}
	return err
}
