package raftfsm

import (
	"fmt"
	"math"
	"slices"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
)

// decodeCommand reads what append wrote. Bodies, and ids of operations, are
// slices of b, which is never changed. It returns
// ErrUnknownCommand for a version or kind of another binary, ErrCommand for
// anything else that append cannot have written; it never panics, and never
// allocates more than a small multiple of len(b).
func decodeCommand(b []byte) (Command, error) { return new(decoder).command(b) }

// CheckCommand returns the error that would stop a node which applies b.
func CheckCommand(b []byte) error {
	_, err := (&decoder{checks: true}).command(b)
	return err
}

// A decoder reads what several commands are made of.
type decoder struct {
	codec.Decoder
	target string // the last text read: neighbours often have the same
	checks bool   // nobody wants what is read: operations come one after the other into the same place
	// room is where the operations of an Ingest come to lie, one part behind the other. They are large, and
	// a command has thousands: whoever reads one command after the other hands it on, all zero.
	room []Operation
}

// command is decodeCommand.
func (d *decoder) command(b []byte) (Command, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: %d bytes", ErrCommand, len(b))
	}
	version, kind := b[0], b[1]
	if levelOf(version, kind) == 0 {
		return nil, fmt.Errorf("%w: version %d of kind %d, of a feature level above %d, which is what this binary understands",
			ErrUnknownCommand, version, kind, storage.NewestLevel)
	}
	d.Decoder = codec.NewDecoder(b[2:])
	time := d.Varint()
	var c Command
	switch kind {
	case kindFound:
		c = Found{Time: time, ClusterID: d.ID(), Mode: d.text()}
	case kindIngest:
		c = Ingest{Time: time, ClaimThrough: d.Varint(), Parts: d.parts(version)}
	case kindSetPositions:
		c = SetPositions{Time: time, Surveyed: d.Bool(), Sets: d.positionSets()}
	case kindClaim:
		if version == 1 {
			c = ClaimCommand{Time: time, Claim: storage.Claim{Through: d.Varint(), Mark: d.mark(), Holds: d.holds()}}
		} else {
			change := storage.ClaimChange{Through: d.Varint(), Mark: d.mark(), Set: d.holds(), Lift: d.texts()}
			if version > 2 {
				change.Topics, change.LiftTopics = d.topicHolds(), d.texts()
			}
			c = ChangeClaim{Time: time, ClaimChange: change}
		}
	case kindAck:
		ack := Ack{Time: time, Runs: d.runs()}
		if version > 1 {
			ack.Ended = d.ended(time)
		}
		c = ack
	case kindReplace:
		c = d.replace(time, version)
	case kindRaiseLevel:
		c = RaiseLevel{Time: time, Level: d.level()}
	case kindOperate:
		if version == 1 {
			c = Operate{Time: time, Operations: d.operations("", withoutRecord)}
		} else {
			c = Operate{Time: time, Operations: d.withMore()}
		}
	case kindOpenIDs:
		c = OpenIDs{Time: time, UpTo: d.Uvarint(), Named: d.named()}
	case kindPause:
		c = Pause{Time: time, Kind: d.pauseKind(), Name: d.text(), Who: d.ownText(), Why: d.ownText()}
	case kindResume:
		c = Resume{Time: time, Kind: d.pauseKind(), Name: d.text()}
	case kindStartBulk:
		c = d.startBulk(time)
	case kindStepBulk:
		c = d.stepBulk(time)
	case kindStopBulk:
		stop := StopBulk{Time: time, ID: d.Uvarint(), Problem: d.ownText()}
		d.checkTexts("", "", "", stop.Problem)
		c = stop
	case kindKeepOutcomes:
		c = KeepOutcomes{Time: time, Keep: outcomes.Keep{For: d.Varint(), Count: d.Uvarint()}}
	}
	if d.Left() > 0 {
		d.Fail("bytes after its end")
	}
	if d.Failed() {
		return nil, fmt.Errorf("%w: kind %d: %s", ErrCommand, kind, d.Problem())
	}
	return c, nil
}

func (d *decoder) text() string {
	b := d.View(d.Uvarint())
	if string(b) != d.target {
		d.target = string(b)
	}
	return d.target
}

func (d *decoder) mark() storage.Ref {
	return storage.Ref{Due: d.Varint(), Seq: d.Uvarint()}
}

// ownText reads a text that the next one is not expected to equal.
func (d *decoder) ownText() string { return string(d.View(d.Uvarint())) }

// same reads what appendSame wrote after last.
func (d *decoder) same(last string) string {
	n := d.Uvarint()
	if n == 0 {
		return last
	}
	return string(d.View(n - 1))
}

func (d *decoder) parts(version byte) []Part {
	parts := make([]Part, d.CountOf(16+6))
	for i := range parts {
		p := &parts[i]
		*p = Part{TopicID: d.ID(), Topic: d.text(), Partition: d.Int32(), From: d.Varint(),
			Next: d.Varint(), Epoch: d.Int32(), Entries: d.entries()}
		switch version {
		case 2:
			p.Operations = d.operations(p.Topic, withoutRecord)
		case 3:
			p.Operations = d.operations(p.Topic, withoutRecord|hasRecord)
		}
	}
	return parts
}

// withoutRecord is all that an operation may have but a record.
const withoutRecord = hasExpiry | hasID | hasTopic | 15

// operations reads those of a part of that topic, nil for none. They have nothing but what is known.
func (d *decoder) operations(topic string, known byte) []Operation {
	n := d.CountOf(1)
	if n == 0 {
		return nil
	}
	if d.checks {
		for range n {
			if d.operation(new(Operation), topic, known); d.Failed() {
				break
			}
		}
		return nil
	}
	d.room = slices.Grow(d.room, n)
	os := d.room[len(d.room):][:n:n]
	d.room = d.room[:len(d.room)+n]
	for i := range os {
		if d.operation(&os[i], topic, known); d.Failed() {
			return nil
		}
	}
	return os
}

func (d *decoder) operation(o *Operation, topic string, known byte) {
	what := d.Byte()
	o.Verb, o.If = Verb(what&3), Condition(what>>conditionShift&3)
	if o.Verb == 0 || what&^known != 0 || o.Verb == Cancel && what&hasExpiry != 0 {
		d.Fail("no such operation")
		return
	}
	e := &o.Entry
	e.Topic = topic
	if what&hasTopic != 0 {
		if e.Topic = d.ownText(); e.Topic == "" {
			d.Fail("operation of a topic without a name")
		}
	}
	if what&hasID != 0 {
		e.ID = d.TextView(d.Uvarint())
	}
	if o.If == Exactly {
		o.Seq = d.Uvarint()
	}
	if what&hasRecord != 0 {
		if o.Record = d.Uvarint(); o.Record == 0 {
			d.Fail("a record without a number")
		}
	}
	if o.Verb == Cancel {
		return
	}
	e.Due = d.Varint()
	if what&hasExpiry != 0 {
		e.Expires = d.Varint()
	}
	e.Target, e.Body = d.text(), d.BytesView()
}

// withMore reads operations that are followed by more, nil for none.
func (d *decoder) withMore() []Operation {
	n := d.CountOf(2)
	if n == 0 {
		return nil
	}
	os := make([]Operation, n)
	var last storage.Found
	for i := range os {
		d.operation(&os[i], "", withoutRecord)
		if d.more(&os[i], &last); d.Failed() {
			return nil
		}
	}
	return os
}

func (d *decoder) startBulk(time int64) StartBulk {
	c := StartBulk{Time: time, What: d.ownText(), Who: d.ownText(), Once: Once{Key: d.ID(), Content: d.Uvarint()}}
	d.checkTexts(c.What, c.Who, "", "")
	return c
}

func (d *decoder) stepBulk(time int64) StepBulk {
	c := StepBulk{Time: time, ID: d.Uvarint(), From: d.ownText(), Next: d.ownText(), Finished: d.Bool(), Passed: bulk.Counts{TooLate: d.Uvarint(), NotFound: d.Uvarint(), Failed: d.Uvarint()},
		Problem: d.ownText(), Operations: d.withMore()}
	d.checkTexts("", "", c.From, c.Problem)
	d.checkTexts("", "", c.Next, "")
	return c
}

// checkTexts fails at one that is longer than the state may have.
func (d *decoder) checkTexts(what, who, cursor, problem string) {
	if err := bulk.CheckTexts(what, who, cursor, problem); err != nil {
		d.Fail(err.Error())
	}
}

func (d *decoder) more(o *Operation, last *storage.Found) {
	more := d.Byte()
	if more&hasOf != 0 {
		o.Of = &storage.Found{Ref: d.mark(), Target: d.same(last.Target), Topic: d.same(last.Topic), Expires: d.Varint()}
		if *last = *o.Of; o.Of.Seq == 0 || o.Verb == Schedule || o.Entry.ID != "" && o.Verb != Cancel {
			d.Fail("operation on a message that it cannot be on")
		}
	}
	if more&hasOnce != 0 {
		o.Once = &Once{Key: d.ID(), Content: d.Uvarint()}
	}
	if more&replays != 0 {
		at := replayed.Partition{TopicID: d.ID(), Number: int32(d.Varint())}
		o.Replay = &Replay{At: at, Offset: int64(d.Uvarint()), First: int64(d.Uvarint()), Again: more&again != 0}
		if o.Verb != Schedule || o.Replay.Offset < 0 || o.Replay.First < 0 || at.TopicID == [16]byte{} {
			d.Fail("replay of no dead letter")
		}
	}
	if more > hasOf|hasOnce|replays|again || more&(replays|again) == again || o.Once != nil && *o.Once == (Once{}) {
		d.Fail("no such operation")
	}
}

func (d *decoder) replace(time int64, version byte) Replace {
	c := Replace{Time: time, Kills: d.seqs()}
	if version == 1 {
		c.Entries = d.entries()
	} else {
		c.Entries = make([]storage.Entry, d.CountOf(6))
		topic := ""
		for i := range c.Entries {
			e := d.entry()
			e.Topic, e.ID, e.Expires = d.same(topic), d.ownText(), d.Varint()
			c.Entries[i], topic = e, e.Topic
		}
		c.Ended = d.ended(time)
	}
	if len(c.Kills) != len(c.Entries) {
		d.Fail("kills and entries differ in number")
	}
	return c
}

// ended reads what a command of that time has ended, nil for nothing.
func (d *decoder) ended(time int64) []Ended {
	n := d.CountOf(16 + 7)
	if n == 0 {
		return nil
	}
	es := make([]Ended, n)
	var last Ended
	for i := range es {
		e := &es[i]
		e.Name, e.Kind = d.ID(), outcomes.Kind(d.Byte())
		e.Seq, e.At = last.Seq+d.Uvarint(), time+d.Varint()
		e.Due, e.Target = e.At+d.Varint(), d.same(last.Target)
		e.Partition, e.Offset = d.Int32(), d.Varint()
		if e.Kind == 0 || e.Kind > outcomes.Refused {
			d.Fail("no such end")
		}
		last = *e
	}
	return es
}

// named reads what ids are opened with, nil for nothing.
func (d *decoder) named() []storage.Named {
	n := d.CountOf(6)
	if n == 0 {
		return nil
	}
	named := make([]storage.Named, n)
	var last storage.Named
	for i := range named {
		m := &named[i]
		m.Due, m.Seq = d.Varint(), last.Seq+d.Uvarint()
		m.Target, m.Topic = d.same(last.Target), d.same(last.Topic)
		m.ID, m.Expires = d.ownText(), d.Varint()
		last = *m
	}
	return named
}

func (d *decoder) entries() []storage.Entry {
	es := make([]storage.Entry, d.CountOf(3))
	for i := range es {
		es[i] = d.entry()
	}
	return es
}

func (d *decoder) entry() storage.Entry {
	return storage.Entry{Due: d.Varint(), Target: d.text(), Body: d.BytesView()}
}

func (d *decoder) positionSets() []PositionSet {
	sets := make([]PositionSet, d.CountOf(16+5))
	for i := range sets {
		sets[i] = PositionSet{Position: storage.Position{TopicID: d.ID(), Topic: d.text(), Partition: d.Int32(),
			Next: d.Varint(), Epoch: d.Int32()}, From: d.Varint()}
	}
	return sets
}

func (d *decoder) holds() []storage.Hold {
	holds := make([]storage.Hold, d.CountOf(4))
	for i := range holds {
		holds[i] = storage.Hold{Target: d.text(), Through: d.Varint(), Mark: d.mark()}
	}
	return holds
}

func (d *decoder) topicHolds() []storage.TopicHold {
	holds := make([]storage.TopicHold, d.CountOf(4))
	for i := range holds {
		holds[i] = storage.TopicHold{Topic: d.text(), Through: d.Varint(), Mark: d.mark()}
	}
	return holds
}

func (d *decoder) pauseKind() pause.Kind {
	kind := pause.Kind(d.Byte())
	if !kind.Known() {
		d.Fail("no such kind of pause")
	}
	return kind
}

func (d *decoder) texts() []string {
	texts := make([]string, d.Count())
	for i := range texts {
		texts[i] = d.text()
	}
	return texts
}

func (d *decoder) runs() []storage.SeqRun {
	runs := make([]storage.SeqRun, d.CountOf(2))
	end := uint64(0)
	for i := range runs {
		first := end + d.Uvarint()
		end = first + d.Uvarint()
		if end < first {
			d.Fail("run ends before it begins")
			return nil
		}
		runs[i] = storage.SeqRun{First: first, Last: end}
	}
	return runs
}

func (d *decoder) level() storage.Level {
	l := d.Uvarint()
	if l > math.MaxUint32 {
		d.Fail("number exceeds 32 bits")
	}
	return storage.Level(l)
}

func (d *decoder) seqs() []uint64 {
	seqs := make([]uint64, d.Count())
	for i := range seqs {
		seqs[i] = d.Uvarint()
	}
	return seqs
}
