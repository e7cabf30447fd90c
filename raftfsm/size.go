package raftfsm

import (
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/codec"
)

// How many bytes commands take: who proposes asks before it encodes, and who gathers a batch asks
// for each thing that it adds.

func (c Ingest) version() byte {
	version := byte(1)
	for i := range c.Parts {
		for j := range c.Parts[i].Operations {
			if version = 2; c.Parts[i].Operations[j].Record > 0 {
				return 3
			}
		}
	}
	return version
}

// Size returns the exact number of bytes of the encoded command.
func (c Ingest) Size() int {
	n := 2 + codec.VarintSize(c.Time) + codec.VarintSize(c.ClaimThrough) + codec.UvarintSize(uint64(len(c.Parts)))
	withOperations := c.version() > 1
	for i := range c.Parts {
		n += c.Parts[i].Size()
		if withOperations && len(c.Parts[i].Operations) == 0 {
			n++ // says that there are none
		}
	}
	return n
}

// Size returns the number of bytes that the part adds to its Ingest: exact, but for one more
// where it has no operations and another part has.
func (p *Part) Size() int {
	n := len(p.TopicID) + textLen(p.Topic) + codec.VarintSize(int64(p.Partition)) + codec.VarintSize(p.From) +
		codec.VarintSize(p.Next) + codec.VarintSize(int64(p.Epoch)) + entriesLen(p.Entries)
	if len(p.Operations) > 0 {
		n += operationsLen(p.Operations, p.Topic)
	}
	return n
}

// EntrySize returns the number of bytes that e adds to its command, for
// builders that stop at ProposalBytes. It does not depend on Seq.
func EntrySize(e *storage.Entry) int {
	return codec.VarintSize(e.Due) + textLen(e.Target) + codec.BytesSize(e.Body)
}

// OperationSize returns the number of bytes that o adds to its Part of that topic, or with ""
// to its Operate, for builders that stop at ProposalBytes. With Of, Once or Replay it is what o adds at most, and
// each other operation beside it adds one byte more.
func OperationSize(o *Operation, topic string) int {
	n := operationLen(o, topic)
	if o.more() != 0 {
		n += o.moreLen(new(storage.Found))
	}
	return n
}

func operationLen(o *Operation, topic string) int {
	e := &o.Entry
	n := 1
	if e.Topic != "" && e.Topic != topic {
		n += textLen(e.Topic)
	}
	if e.ID != "" {
		n += textLen(e.ID)
	}
	if o.If == Exactly {
		n += codec.UvarintSize(o.Seq)
	}
	if o.Record > 0 {
		n += codec.UvarintSize(o.Record)
	}
	if o.Verb == Cancel {
		return n
	}
	if e.Expires != 0 {
		n += codec.VarintSize(e.Expires)
	}
	return n + EntrySize(e)
}

// Size returns the exact number of bytes of the encoded command.
func (c Operate) Size() int {
	n := 2 + codec.VarintSize(c.Time)
	if c.version() == 1 {
		return n + operationsLen(c.Operations, "")
	}
	return n + withMoreLen(c.Operations)
}

func withMoreLen(os []Operation) int {
	n := operationsLen(os, "")
	var last storage.Found
	for i := range os {
		n += os[i].moreLen(&last)
	}
	return n
}

// Size returns the exact number of bytes of the encoded command.
func (c StepBulk) Size() int {
	return 2 + codec.VarintSize(c.Time) + codec.UvarintSize(c.ID) + textLen(c.From) + textLen(c.Next) + 1 +
		codec.UvarintSize(c.Passed.TooLate) + codec.UvarintSize(c.Passed.NotFound) + codec.UvarintSize(c.Passed.Failed) + textLen(c.Problem) + withMoreLen(c.Operations)
}

// moreLen is what appendMore appends, in bytes.
func (o *Operation) moreLen(last *storage.Found) int {
	more, n := o.more(), 1
	if of := o.Of; more&hasOf != 0 {
		n += codec.VarintSize(of.Due) + codec.UvarintSize(of.Seq) + sameLen(of.Target, last.Target) + sameLen(of.Topic, last.Topic) + codec.VarintSize(of.Expires)
		*last = *of
	}
	if more&hasOnce != 0 {
		n += len(o.Once.Key) + codec.UvarintSize(o.Once.Content)
	}
	if r := o.Replay; more&replays != 0 {
		n += len(r.At.TopicID) + codec.VarintSize(int64(r.At.Number)) + codec.UvarintSize(uint64(r.Offset)) + codec.UvarintSize(uint64(r.First))
	}
	return n
}

// Size returns the exact number of bytes of the encoded command.
func (c Replace) Size() int {
	n := 2 + codec.VarintSize(c.Time) + codec.UvarintSize(uint64(len(c.Kills)))
	for _, seq := range c.Kills {
		n += codec.UvarintSize(seq)
	}
	n += entriesLen(c.Entries)
	if c.version() == 1 {
		return n
	}
	topic := ""
	for i := range c.Entries {
		e := &c.Entries[i]
		n += sameLen(e.Topic, topic) + textLen(e.ID) + codec.VarintSize(e.Expires)
		topic = e.Topic
	}
	return n + endedLen(c.Ended, c.Time)
}

// Size returns the exact number of bytes of the encoded command.
func (c Ack) Size() int {
	n := 2 + codec.VarintSize(c.Time) + codec.UvarintSize(uint64(len(c.Runs)))
	end := uint64(0)
	for _, r := range c.Runs {
		n += codec.UvarintSize(r.First-end) + codec.UvarintSize(r.Last-r.First)
		end = r.Last
	}
	if len(c.Ended) > 0 {
		n += endedLen(c.Ended, c.Time)
	}
	return n
}

// Size returns the exact number of bytes of the encoded command.
func (c OpenIDs) Size() int {
	n := 2 + codec.VarintSize(c.Time) + codec.UvarintSize(c.UpTo) + codec.UvarintSize(uint64(len(c.Named)))
	var last storage.Named
	for i := range c.Named {
		m := &c.Named[i]
		n += codec.VarintSize(m.Due) + codec.UvarintSize(m.Seq-last.Seq) + sameLen(m.Target, last.Target) +
			sameLen(m.Topic, last.Topic) + textLen(m.ID) + codec.VarintSize(m.Expires)
		last = *m
	}
	return n
}

// The other commands are small, and rarely asked: they are measured by encoding them.

// Size returns the exact number of bytes of the encoded command.
func (c Found) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c SetPositions) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c ClaimCommand) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c Pause) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c Resume) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c StartBulk) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c StopBulk) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c RaiseLevel) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c ChangeClaim) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c KeepOutcomes) Size() int { return len(c.append(nil)) }

func entriesLen(es []storage.Entry) int {
	n := codec.UvarintSize(uint64(len(es)))
	for i := range es {
		n += EntrySize(&es[i])
	}
	return n
}

func operationsLen(os []Operation, topic string) int {
	n := codec.UvarintSize(uint64(len(os)))
	for i := range os {
		n += operationLen(&os[i], topic)
	}
	return n
}

func endedLen(es []Ended, time int64) int {
	n := codec.UvarintSize(uint64(len(es)))
	var last Ended
	for i := range es {
		e := &es[i]
		n += len(e.Name) + 1 + codec.UvarintSize(e.Seq-last.Seq) + codec.VarintSize(e.At-time) + codec.VarintSize(e.Due-e.At) +
			sameLen(e.Target, last.Target) + codec.VarintSize(int64(e.Partition)) + codec.VarintSize(e.Offset)
		last = *e
	}
	return n
}

func sameLen(s, last string) int {
	if s == last {
		return 1
	}
	return codec.UvarintSize(uint64(len(s))+1) + len(s)
}

func textLen(s string) int { return codec.UvarintSize(uint64(len(s))) + len(s) }
