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
//	  version 2     claim through z | n | n x (part | n | n operations)
//	  version 3     as version 2, and operations may have a record
//	3 SetPositions  surveyed (1 byte) | n | n x (position | from z)
//	4 Claim         through z | mark | n | n x (target text | through z | mark)
//	  version 2     through z | mark | n | n x (target text | through z | mark) | n | n x target text
//	  version 3     as version 2, then n | n x (topic text | through z | mark) | n | n x topic text
//	5 Ack           n | n runs
//	  version 2     n | n runs | n | n ended
//	6 Replace       n | n x seq | n | n entries
//	  version 2     n | n x seq | n | n x (entry | topic same | id text | expires z) | n | n ended
//	7 RaiseLevel    level
//	8 Operate       n | n operations
//	  version 2     n | n x (operation | more)
//	9 OpenIDs       up to | n | n named
//	10 KeepOutcomes milliseconds z | count
//	11 Pause        kind of pause (1 byte) | name text | who text | why text
//	12 Resume       kind of pause (1 byte) | name text
//	13 StartBulk    what text | who text | key (16 bytes) | content
//	14 StepBulk     id | from text | next text | finished (1 byte) | passed | problem text | n | n x (operation | more)
//	15 StopBulk     id | problem text
//
//	part      topic id (16 bytes) | topic text | partition z | from z | next z | epoch z | n | n entries
//	passed    too late | not found | failed
//	position  topic id (16 bytes) | topic text | partition z | next z | epoch z
//	entry     due z | target text | body
//	mark      due z | seq
//	run       gap since the last run's end (first: its first seq) | length - 1
//	operation what (1 byte) | topic text if 16 | id text if 32 | seq if Exactly | record if 128, and unless it is a Cancel:
//	          due z | expires z if 64 | target text | body
//	more      1: has of | 2: has once | 4: replays | 8: also again (1 byte) | of if 1 | key (16 bytes), content if 2 |
//	          topic id (16 bytes), partition z, offset, first offset if 4
//	of        due z | seq | target same | topic same | expires z
//	what      verb | condition << 2 | 16: has a topic other than its part's | 32: has an id | 64: expires |
//	          128: has a record
//	ended     name (16 bytes) | kind (1 byte) | seq less the last one's | at z less the command's time |
//	          due z less at | target same | partition z | offset z
//	named     due z | seq less the last one's | target same | topic same | id text | expires z
//	same      0: as the last one has it (the first: empty), else length + 1 | bytes
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
	kindOperate
	kindOpenIDs
	kindKeepOutcomes
	kindPause
	kindResume
	kindStartBulk
	kindStepBulk
	kindStopBulk
)

// What an operation has beside its verb (bits 0 and 1) and its condition (bits 2 and 3).
const (
	conditionShift = 2
	hasTopic       = 1 << 4
	hasID          = 1 << 5
	hasExpiry      = 1 << 6
	hasRecord      = 1 << 7 // in an Ingest of version 3
)

// What it has in an Operate of version 2 besides.
const (
	hasOf   = 1 << 0
	hasOnce = 1 << 1
	replays = 1 << 2
	again   = 1 << 3 // with replays
)

// forms holds by kind the feature level from which its versions may be written,
// version 1 first. What is not there was written by a newer binary. RaiseLevel is
// itself of LevelOne: its proposer has asked everybody.
var forms = [...][]storage.Level{
	kindFound:        {storage.LevelOne},
	kindIngest:       {storage.LevelOne, storage.LevelThree, storage.LevelFour},
	kindSetPositions: {storage.LevelOne},
	kindClaim:        {storage.LevelOne, storage.LevelTwo, storage.LevelThree},
	kindAck:          {storage.LevelOne, storage.LevelThree},
	kindReplace:      {storage.LevelOne, storage.LevelThree},
	kindRaiseLevel:   {storage.LevelOne},
	kindOperate:      {storage.LevelThree, storage.LevelFour},
	kindOpenIDs:      {storage.LevelThree},
	kindKeepOutcomes: {storage.LevelThree},
	kindPause:        {storage.LevelThree},
	kindResume:       {storage.LevelThree},
	kindStartBulk:    {storage.LevelFour},
	kindStepBulk:     {storage.LevelFour},
	kindStopBulk:     {storage.LevelFour},
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
	version := c.version()
	dst = header(dst, version, kindIngest, c.Time)
	dst = binary.AppendVarint(dst, c.ClaimThrough)
	dst = binary.AppendUvarint(dst, uint64(len(c.Parts)))
	for i := range c.Parts {
		p := &c.Parts[i]
		dst = p.append(dst)
		if version > 1 {
			dst = appendOperations(dst, p.Operations, p.Topic)
		}
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
	version := byte(2)
	if len(c.Topics) > 0 || len(c.LiftTopics) > 0 {
		version = 3
	}
	dst = header(dst, version, kindClaim, c.Time)
	dst = binary.AppendVarint(dst, c.Through)
	dst = appendMark(dst, c.Mark)
	dst = appendHolds(dst, c.Set)
	dst = appendTexts(dst, c.Lift)
	if version == 2 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Topics)))
	for _, h := range c.Topics {
		dst = appendHold(dst, h.Topic, h.Through, h.Mark)
	}
	return appendTexts(dst, c.LiftTopics)
}

func appendHolds(dst []byte, holds []storage.Hold) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(holds)))
	for _, h := range holds {
		dst = appendHold(dst, h.Target, h.Through, h.Mark)
	}
	return dst
}

func appendHold(dst []byte, name string, through int64, mark storage.Ref) []byte {
	dst = appendText(dst, name)
	dst = binary.AppendVarint(dst, through)
	return appendMark(dst, mark)
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(texts)))
	for _, text := range texts {
		dst = appendText(dst, text)
	}
	return dst
}

func (c Ack) append(dst []byte) []byte {
	version := byte(1)
	if len(c.Ended) > 0 {
		version = 2
	}
	dst = header(dst, version, kindAck, c.Time)
	dst = binary.AppendUvarint(dst, uint64(len(c.Runs)))
	end := uint64(0)
	for _, r := range c.Runs {
		// Differences wrap around where runs are not ascending, and back when decoded.
		dst = binary.AppendUvarint(dst, r.First-end)
		dst = binary.AppendUvarint(dst, r.Last-r.First)
		end = r.Last
	}
	if version > 1 {
		dst = appendEnded(dst, c.Ended, c.Time)
	}
	return dst
}

func (c Replace) append(dst []byte) []byte {
	version := c.version()
	dst = header(dst, version, kindReplace, c.Time)
	dst = binary.AppendUvarint(dst, uint64(len(c.Kills)))
	for _, seq := range c.Kills {
		dst = binary.AppendUvarint(dst, seq)
	}
	if version == 1 {
		return appendEntries(dst, c.Entries)
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Entries)))
	topic := ""
	for i := range c.Entries {
		e := &c.Entries[i]
		dst = appendEntry(dst, e)
		dst = appendSame(dst, e.Topic, topic)
		dst = appendText(dst, e.ID)
		dst = binary.AppendVarint(dst, e.Expires)
		topic = e.Topic
	}
	return appendEnded(dst, c.Ended, c.Time)
}

func (c Replace) version() byte {
	if len(c.Ended) > 0 {
		return 2
	}
	for i := range c.Entries {
		if e := &c.Entries[i]; e.Topic != "" || e.ID != "" || e.Expires != 0 {
			return 2
		}
	}
	return 1
}

func (c Pause) append(dst []byte) []byte {
	dst = append(header(dst, 1, kindPause, c.Time), byte(c.Kind))
	return appendText(appendText(appendText(dst, c.Name), c.Who), c.Why)
}

func (c Resume) append(dst []byte) []byte {
	return appendText(append(header(dst, 1, kindResume, c.Time), byte(c.Kind)), c.Name)
}

func (c RaiseLevel) append(dst []byte) []byte {
	return binary.AppendUvarint(header(dst, 1, kindRaiseLevel, c.Time), uint64(c.Level))
}

func appendEntries(dst []byte, es []storage.Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(es)))
	for i := range es {
		dst = appendEntry(dst, &es[i])
	}
	return dst
}

func appendEntry(dst []byte, e *storage.Entry) []byte {
	dst = binary.AppendVarint(dst, e.Due)
	dst = appendText(dst, e.Target)
	return codec.AppendBytes(dst, e.Body)
}

func (c Operate) append(dst []byte) []byte {
	if c.version() == 1 {
		return appendOperations(header(dst, 1, kindOperate, c.Time), c.Operations, "")
	}
	return appendWithMore(header(dst, 2, kindOperate, c.Time), c.Operations)
}

func appendWithMore(dst []byte, os []Operation) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(os)))
	var last storage.Found
	for i := range os {
		dst = os[i].appendMore(os[i].append(dst, ""), &last)
	}
	return dst
}

func (c Operate) version() byte {
	for i := range c.Operations {
		if c.Operations[i].more() != 0 {
			return 2
		}
	}
	return 1
}

// more says what the operation has that only an Operate of version 2 carries.
func (o *Operation) more() (more byte) {
	if o.Of != nil {
		more |= hasOf
	}
	if o.Once != nil {
		more |= hasOnce
	}
	if o.Replay != nil {
		more |= replays
		if o.Replay.Again {
			more |= again
		}
	}
	return more
}

// appendMore encodes that behind an operation; last is the Of before.
func (o *Operation) appendMore(dst []byte, last *storage.Found) []byte {
	more := o.more()
	dst = append(dst, more)
	if of := o.Of; more&hasOf != 0 {
		dst = appendMark(dst, of.Ref)
		dst = appendSame(dst, of.Target, last.Target)
		dst = appendSame(dst, of.Topic, last.Topic)
		dst = binary.AppendVarint(dst, of.Expires)
		*last = *of
	}
	if more&hasOnce != 0 {
		dst = binary.AppendUvarint(append(dst, o.Once.Key[:]...), o.Once.Content)
	}
	if r := o.Replay; more&replays != 0 {
		dst = binary.AppendVarint(append(dst, r.At.TopicID[:]...), int64(r.At.Number))
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.Offset)), uint64(r.First))
	}
	return dst
}

func appendOperations(dst []byte, os []Operation, topic string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(os)))
	for i := range os {
		dst = os[i].append(dst, topic)
	}
	return dst
}

// append encodes the operation as one of a part of that topic.
func (o *Operation) append(dst []byte, topic string) []byte {
	e := &o.Entry
	what := byte(o.Verb) | byte(o.If)<<conditionShift
	if e.Topic != "" && e.Topic != topic {
		what |= hasTopic
	}
	if e.ID != "" {
		what |= hasID
	}
	if e.Expires != 0 && o.Verb != Cancel {
		what |= hasExpiry
	}
	if o.Record > 0 {
		what |= hasRecord
	}
	dst = append(dst, what)
	if what&hasTopic != 0 {
		dst = appendText(dst, e.Topic)
	}
	if what&hasID != 0 {
		dst = appendText(dst, e.ID)
	}
	if o.If == Exactly {
		dst = binary.AppendUvarint(dst, o.Seq)
	}
	if what&hasRecord != 0 {
		dst = binary.AppendUvarint(dst, o.Record)
	}
	if o.Verb == Cancel {
		return dst
	}
	dst = binary.AppendVarint(dst, e.Due)
	if what&hasExpiry != 0 {
		dst = binary.AppendVarint(dst, e.Expires)
	}
	dst = appendText(dst, e.Target)
	return codec.AppendBytes(dst, e.Body)
}

// appendEnded encodes what ended by a command of that time. Differences wrap around, as those
// of runs do.
func appendEnded(dst []byte, es []Ended, time int64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(es)))
	var last Ended
	for i := range es {
		e := &es[i]
		dst = append(append(dst, e.Name[:]...), byte(e.Kind))
		dst = binary.AppendUvarint(dst, e.Seq-last.Seq)
		dst = binary.AppendVarint(dst, e.At-time)
		dst = binary.AppendVarint(dst, e.Due-e.At)
		dst = appendSame(dst, e.Target, last.Target)
		dst = binary.AppendVarint(dst, int64(e.Partition))
		dst = binary.AppendVarint(dst, e.Offset)
		last = *e
	}
	return dst
}

func (c OpenIDs) append(dst []byte) []byte {
	dst = header(dst, 1, kindOpenIDs, c.Time)
	dst = binary.AppendUvarint(dst, c.UpTo)
	dst = binary.AppendUvarint(dst, uint64(len(c.Named)))
	var last storage.Named
	for i := range c.Named {
		n := &c.Named[i]
		dst = binary.AppendVarint(dst, n.Due)
		dst = binary.AppendUvarint(dst, n.Seq-last.Seq)
		dst = appendSame(dst, n.Target, last.Target)
		dst = appendSame(dst, n.Topic, last.Topic)
		dst = appendText(dst, n.ID)
		dst = binary.AppendVarint(dst, n.Expires)
		last = *n
	}
	return dst
}

func (c KeepOutcomes) append(dst []byte) []byte {
	dst = header(dst, 1, kindKeepOutcomes, c.Time)
	dst = binary.AppendVarint(dst, c.Keep.For)
	return binary.AppendUvarint(dst, c.Keep.Count)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendSame encodes s where the last one was last.
func appendSame(dst []byte, s, last string) []byte {
	if s == last {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(s))+1), s...)
}

func appendMark(dst []byte, r storage.Ref) []byte {
	return binary.AppendUvarint(binary.AppendVarint(dst, r.Due), r.Seq)
}
