package raftfsm

import (
	"math/bits"

	"github.com/carillonmq/carillon/storage"
)

// Size returns the exact number of bytes of the encoded command.
func (c Ingest) Size() int {
	n := 2 + zigzagLen(c.Time) + zigzagLen(c.ClaimThrough) + varintLen(uint64(len(c.Parts)))
	for i := range c.Parts {
		n += c.Parts[i].Size()
	}
	return n
}

// Size returns the exact number of bytes that the part adds to its Ingest.
func (p *Part) Size() int {
	return len(p.TopicID) + textLen(p.Topic) + zigzagLen(int64(p.Partition)) + zigzagLen(p.From) +
		zigzagLen(p.Next) + zigzagLen(int64(p.Epoch)) + entriesLen(p.Entries)
}

// EntrySize returns the number of bytes that e adds to its command, for
// builders that stop at ProposalBytes. It does not depend on Seq.
func EntrySize(e *storage.Entry) int {
	body := 1
	if e.Body != nil {
		body = varintLen(uint64(len(e.Body))+1) + len(e.Body)
	}
	return zigzagLen(e.Due) + textLen(e.Target) + body
}

// Size returns the exact number of bytes of the encoded command.
func (c Replace) Size() int {
	n := 2 + zigzagLen(c.Time) + varintLen(uint64(len(c.Kills)))
	for _, seq := range c.Kills {
		n += varintLen(seq)
	}
	return n + entriesLen(c.Entries)
}

// The other commands are small, and rarely asked: they are measured by encoding them.

// Size returns the exact number of bytes of the encoded command.
func (c Found) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c SetPositions) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c ClaimCommand) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c RaiseLevel) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c ChangeClaim) Size() int { return len(c.append(nil)) }

// Size returns the exact number of bytes of the encoded command.
func (c Ack) Size() int { return len(c.append(nil)) }

func entriesLen(es []storage.Entry) int {
	n := varintLen(uint64(len(es)))
	for i := range es {
		n += EntrySize(&es[i])
	}
	return n
}

func textLen(s string) int { return varintLen(uint64(len(s))) + len(s) }

func varintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func zigzagLen(v int64) int { return varintLen(uint64(v)<<1 ^ uint64(v>>63)) }
