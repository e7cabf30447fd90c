package raftfsm

import (
	"fmt"
	"math"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/codec"
)

// decodeCommand reads what append wrote. Bodies are slices of b. It returns
// ErrUnknownCommand for a version or kind of another binary, ErrCommand for
// anything else that append cannot have written; it never panics, and never
// allocates more than a small multiple of len(b).
func decodeCommand(b []byte) (Command, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: %d bytes", ErrCommand, len(b))
	}
	version, kind := b[0], b[1]
	if levelOf(version, kind) == 0 {
		return nil, fmt.Errorf("%w: version %d of kind %d, of a feature level above %d, which is what this binary understands",
			ErrUnknownCommand, version, kind, storage.NewestLevel)
	}
	d := decoder{Decoder: codec.NewDecoder(b[2:])}
	time := d.Varint()
	var c Command
	switch kind {
	case kindFound:
		c = Found{Time: time, ClusterID: d.ID(), Mode: d.text()}
	case kindIngest:
		c = Ingest{Time: time, ClaimThrough: d.Varint(), Parts: d.parts()}
	case kindSetPositions:
		c = SetPositions{Time: time, Surveyed: d.Bool(), Sets: d.positionSets()}
	case kindClaim:
		if version == 1 {
			c = ClaimCommand{Time: time, Claim: storage.Claim{Through: d.Varint(), Mark: d.mark(), Holds: d.holds()}}
		} else {
			c = ChangeClaim{Time: time, ClaimChange: storage.ClaimChange{Through: d.Varint(), Mark: d.mark(), Set: d.holds(), Lift: d.texts()}}
		}
	case kindAck:
		c = Ack{Time: time, Runs: d.runs()}
	case kindReplace:
		c = Replace{Time: time, Kills: d.seqs(), Entries: d.entries()}
		if r := c.(Replace); len(r.Kills) != len(r.Entries) {
			d.Fail("kills and entries differ in number")
		}
	case kindRaiseLevel:
		c = RaiseLevel{Time: time, Level: d.level()}
	}
	if d.Left() > 0 {
		d.Fail("bytes after its end")
	}
	if d.Failed() {
		return nil, fmt.Errorf("%w: kind %d: %s", ErrCommand, kind, d.Problem())
	}
	return c, nil
}

// CheckCommand returns the error that would stop a node which applies b.
func CheckCommand(b []byte) error {
	_, err := decodeCommand(b)
	return err
}

// A decoder reads what several commands are made of.
type decoder struct {
	codec.Decoder
	target string // the last text read: neighbours often have the same
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

func (d *decoder) parts() []Part {
	parts := make([]Part, d.CountOf(16+6))
	for i := range parts {
		parts[i] = Part{TopicID: d.ID(), Topic: d.text(), Partition: d.Int32(), From: d.Varint(),
			Next: d.Varint(), Epoch: d.Int32(), Entries: d.entries()}
	}
	return parts
}

func (d *decoder) entries() []storage.Entry {
	es := make([]storage.Entry, d.CountOf(3))
	for i := range es {
		es[i] = storage.Entry{Due: d.Varint(), Target: d.text(), Body: d.BytesView()}
	}
	return es
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
