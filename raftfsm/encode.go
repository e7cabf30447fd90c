package raftfsm

import (
	"encoding/binary"
	"fmt"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/codec"
)

// The form of a command. All integers are varints, those that may be negative
// zigzag; text and bytes have their length in front.
//
//	command   version (1 byte, 1 where none is named) | kind (1 byte) | time z | fields of the kind
//	1 Found         cluster id (16 bytes) | mode text
//	2 Ingest        claim through z | n | n parts
//	3 SetPositions  surveyed (1 byte) | n | n x (position | from z)
//	4 Claim         through z | mark | n | n x (target text | through z | mark)
//	  version 2     through z | mark | n | n x (target text | through z | mark) | n | n x target text
//	5 Ack           n | n runs
//	6 Replace       n | n x seq | n | n entries
//	7 RaiseLevel    level
//
//	part      topic id (16 bytes) | topic text | partition z | from z | next z | epoch z | n | n entries
//	position  topic id (16 bytes) | topic text | partition z | next z | epoch z
//	entry     due z | target text | body
//	mark      due z | seq
//	run       gap since the last run's end (first: its first seq) | length - 1
//	text      length | bytes
//	body      0: null, else length + 1 | bytes
//
// A form is never changed: a new one gets a new kind, or a new version of its
// kind, and a level in forms; the old one stays readable, and testdata/*.golden
// hold both.
const (
	kindFound = iota + 1
	kindIngest
	kindSetPositions
	kindClaim
	kindAck
	kindReplace
	kindRaiseLevel
)

// forms holds by kind the feature level from which its versions may be written,
// version 1 first. What is not there was written by a newer binary. RaiseLevel is
// itself of LevelOne: its proposer has asked everybody.
var forms = [...][]storage.Level{
	kindFound:        {storage.LevelOne},
	kindIngest:       {storage.LevelOne},
	kindSetPositions: {storage.LevelOne},
	kindClaim:        {storage.LevelOne, storage.LevelTwo},
	kindAck:          {storage.LevelOne},
	kindReplace:      {storage.LevelOne},
	kindRaiseLevel:   {storage.LevelOne},
}

// levelOf returns the feature level that brought a version of a kind, 0 for one
// that this binary does not know.
func levelOf(version, kind byte) storage.Level {
	if int(kind) >= len(forms) || version == 0 || int(version) > len(forms[kind]) {
		return 0
	}
	return forms[kind][version-1]
}

// AppendCommand appends the binary form of cmd, for a log whose members understand
// level; dst has room for cmd.Size bytes at best. It refuses (ErrLevel) a form above
// level: a member that does not understand it would stop.
func AppendCommand(dst []byte, cmd Command, level storage.Level) ([]byte, error) {
	b := cmd.append(dst)
	version, kind := b[len(dst)], b[len(dst)+1]
	if need := levelOf(version, kind); need > level {
		return nil, fmt.Errorf("%w: version %d of kind %d needs level %d, the cluster is at %d", ErrLevel, version, kind, need, level)
	}
	return b, nil
}

func header(dst []byte, version, kind byte, time int64) []byte {
	return binary.AppendVarint(append(dst, version, kind), time)
}

func (c Found) append(dst []byte) []byte {
	dst = header(dst, 1, kindFound, c.Time)
	dst = append(dst, c.ClusterID[:]...)
	return appendText(dst, c.Mode)
}

func (c Ingest) append(dst []byte) []byte {
	dst = header(dst, 1, kindIngest, c.Time)
	dst = binary.AppendVarint(dst, c.ClaimThrough)
	dst = binary.AppendUvarint(dst, uint64(len(c.Parts)))
	for i := range c.Parts {
		dst = c.Parts[i].append(dst)
	}
	return dst
}

func (p *Part) append(dst []byte) []byte {
	dst = append(dst, p.TopicID[:]...)
	dst = appendText(dst, p.Topic)
	dst = binary.AppendVarint(dst, int64(p.Partition))
	dst = binary.AppendVarint(dst, p.From)
	dst = binary.AppendVarint(dst, p.Next)
	dst = binary.AppendVarint(dst, int64(p.Epoch))
	return appendEntries(dst, p.Entries)
}

func (c SetPositions) append(dst []byte) []byte {
	dst = header(dst, 1, kindSetPositions, c.Time)
	surveyed := byte(0)
	if c.Surveyed {
		surveyed = 1
	}
	dst = append(dst, surveyed)
	dst = binary.AppendUvarint(dst, uint64(len(c.Sets)))
	for i := range c.Sets {
		s := &c.Sets[i]
		dst = append(dst, s.TopicID[:]...)
		dst = appendText(dst, s.Topic)
		dst = binary.AppendVarint(dst, int64(s.Partition))
		dst = binary.AppendVarint(dst, s.Next)
		dst = binary.AppendVarint(dst, int64(s.Epoch))
		dst = binary.AppendVarint(dst, s.From)
	}
	return dst
}

func (c ClaimCommand) append(dst []byte) []byte {
	dst = header(dst, 1, kindClaim, c.Time)
	dst = binary.AppendVarint(dst, c.Claim.Through)
	dst = appendMark(dst, c.Claim.Mark)
	return appendHolds(dst, c.Claim.Holds)
}

func (c ChangeClaim) append(dst []byte) []byte {
	dst = header(dst, 2, kindClaim, c.Time)
	dst = binary.AppendVarint(dst, c.Through)
	dst = appendMark(dst, c.Mark)
	dst = appendHolds(dst, c.Set)
	dst = binary.AppendUvarint(dst, uint64(len(c.Lift)))
	for _, target := range c.Lift {
		dst = appendText(dst, target)
	}
	return dst
}

func appendHolds(dst []byte, holds []storage.Hold) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(holds)))
	for _, h := range holds {
		dst = appendText(dst, h.Target)
		dst = binary.AppendVarint(dst, h.Through)
		dst = appendMark(dst, h.Mark)
	}
	return dst
}

func (c Ack) append(dst []byte) []byte {
	dst = header(dst, 1, kindAck, c.Time)
	dst = binary.AppendUvarint(dst, uint64(len(c.Runs)))
	end := uint64(0)
	for _, r := range c.Runs {
		// Differences wrap around where runs are not ascending, and back when decoded.
		dst = binary.AppendUvarint(dst, r.First-end)
		dst = binary.AppendUvarint(dst, r.Last-r.First)
		end = r.Last
	}
	return dst
}

func (c Replace) append(dst []byte) []byte {
	dst = header(dst, 1, kindReplace, c.Time)
	dst = binary.AppendUvarint(dst, uint64(len(c.Kills)))
	for _, seq := range c.Kills {
		dst = binary.AppendUvarint(dst, seq)
	}
	return appendEntries(dst, c.Entries)
}

func (c RaiseLevel) append(dst []byte) []byte {
	return binary.AppendUvarint(header(dst, 1, kindRaiseLevel, c.Time), uint64(c.Level))
}

func appendEntries(dst []byte, es []storage.Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(es)))
	for i := range es {
		e := &es[i]
		dst = binary.AppendVarint(dst, e.Due)
		dst = appendText(dst, e.Target)
		dst = codec.AppendBytes(dst, e.Body)
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendMark(dst []byte, r storage.Ref) []byte {
	return binary.AppendUvarint(binary.AppendVarint(dst, r.Due), r.Seq)
}

// Size returns the exact number of bytes of the encoded command.
func (c Ingest) Size() int {
	n := 2 + codec.VarintSize(c.Time) + codec.VarintSize(c.ClaimThrough) + codec.UvarintSize(uint64(len(c.Parts)))
	for i := range c.Parts {
		n += c.Parts[i].Size()
	}
	return n
}

// Size returns the exact number of bytes that the part adds to its Ingest.
func (p *Part) Size() int {
	return len(p.TopicID) + textLen(p.Topic) + codec.VarintSize(int64(p.Partition)) + codec.VarintSize(p.From) +
		codec.VarintSize(p.Next) + codec.VarintSize(int64(p.Epoch)) + entriesLen(p.Entries)
}

// EntrySize returns the number of bytes that e adds to its command, for
// builders that stop at ProposalBytes. It does not depend on Seq.
func EntrySize(e *storage.Entry) int {
	return codec.VarintSize(e.Due) + textLen(e.Target) + codec.BytesSize(e.Body)
}

// Size returns the exact number of bytes of the encoded command.
func (c Replace) Size() int {
	n := 2 + codec.VarintSize(c.Time) + codec.UvarintSize(uint64(len(c.Kills)))
	for _, seq := range c.Kills {
		n += codec.UvarintSize(seq)
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
	n := codec.UvarintSize(uint64(len(es)))
	for i := range es {
		n += EntrySize(&es[i])
	}
	return n
}

func textLen(s string) int { return codec.UvarintSize(uint64(len(s))) + len(s) }
