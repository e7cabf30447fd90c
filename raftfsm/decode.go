package raftfsm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/carillonmq/carillon/storage"
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
	d := decoder{rest: b[2:]}
	time := d.varint()
	var c Command
	switch kind {
	case kindFound:
		c = Found{Time: time, ClusterID: d.id(), Mode: d.text()}
	case kindIngest:
		c = Ingest{Time: time, ClaimThrough: d.varint(), Parts: d.parts()}
	case kindSetPositions:
		c = SetPositions{Time: time, Surveyed: d.flag(), Sets: d.positionSets()}
	case kindClaim:
		if version == 1 {
			c = ClaimCommand{Time: time, Claim: storage.Claim{Through: d.varint(), Mark: d.mark(), Holds: d.holds()}}
		} else {
			c = ChangeClaim{Time: time, ClaimChange: storage.ClaimChange{Through: d.varint(), Mark: d.mark(), Set: d.holds(), Lift: d.texts()}}
		}
	case kindAck:
		c = Ack{Time: time, Runs: d.runs()}
	case kindReplace:
		c = Replace{Time: time, Kills: d.seqs(), Entries: d.entries()}
		if r := c.(Replace); len(r.Kills) != len(r.Entries) {
			d.fail("kills and entries differ in number")
		}
	case kindRaiseLevel:
		c = RaiseLevel{Time: time, Level: d.level()}
	}
	if len(d.rest) > 0 {
		d.fail("bytes after its end")
	}
	if d.problem != "" {
		return nil, fmt.Errorf("%w: kind %d: %s", ErrCommand, kind, d.problem)
	}
	return c, nil
}

// A decoder reads from rest until something does not fit; from then on it
// returns zero values and keeps the first problem.
type decoder struct {
	rest    []byte
	problem string
	target  string // the last text read: neighbours often have the same
}

func (d *decoder) fail(problem string) {
	if d.problem == "" {
		d.problem = problem
	}
	d.rest = nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail("number cut short or too long")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail("number cut short or too long")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int32() int32 {
	v := d.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail("number exceeds 32 bits")
		return 0
	}
	return int32(v)
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail("length exceeds what is there")
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) id() (id [16]byte) {
	copy(id[:], d.take(uint64(len(id))))
	return id
}

func (d *decoder) flag() bool {
	b := d.take(1)
	if len(b) == 1 && b[0] > 1 {
		d.fail("flag is neither 0 nor 1")
	}
	return len(b) == 1 && b[0] == 1
}

func (d *decoder) text() string {
	b := d.take(d.uvarint())
	if string(b) != d.target {
		d.target = string(b)
	}
	return d.target
}

func (d *decoder) body() []byte {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	return d.take(n - 1)
}

// count reads the number of elements that follow, each of least bytes or more.
func (d *decoder) count(least int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/least) {
		d.fail("count exceeds what is there")
		return 0
	}
	return int(n)
}

func (d *decoder) mark() storage.Ref {
	return storage.Ref{Due: d.varint(), Seq: d.uvarint()}
}

func (d *decoder) parts() []Part {
	parts := make([]Part, d.count(16+6))
	for i := range parts {
		parts[i] = Part{TopicID: d.id(), Topic: d.text(), Partition: d.int32(), From: d.varint(),
			Next: d.varint(), Epoch: d.int32(), Entries: d.entries()}
	}
	return parts
}

func (d *decoder) entries() []storage.Entry {
	es := make([]storage.Entry, d.count(3))
	for i := range es {
		es[i] = storage.Entry{Due: d.varint(), Target: d.text(), Body: d.body()}
	}
	return es
}

func (d *decoder) positionSets() []PositionSet {
	sets := make([]PositionSet, d.count(16+5))
	for i := range sets {
		sets[i] = PositionSet{Position: storage.Position{TopicID: d.id(), Topic: d.text(), Partition: d.int32(),
			Next: d.varint(), Epoch: d.int32()}, From: d.varint()}
	}
	return sets
}

func (d *decoder) holds() []storage.Hold {
	holds := make([]storage.Hold, d.count(4))
	for i := range holds {
		holds[i] = storage.Hold{Target: d.text(), Through: d.varint(), Mark: d.mark()}
	}
	return holds
}

func (d *decoder) texts() []string {
	texts := make([]string, d.count(1))
	for i := range texts {
		texts[i] = d.text()
	}
	return texts
}

func (d *decoder) runs() []storage.SeqRun {
	runs := make([]storage.SeqRun, d.count(2))
	end := uint64(0)
	for i := range runs {
		first := end + d.uvarint()
		end = first + d.uvarint()
		if end < first {
			d.fail("run ends before it begins")
			return nil
		}
		runs[i] = storage.SeqRun{First: first, Last: end}
	}
	return runs
}

func (d *decoder) level() storage.Level {
	l := d.uvarint()
	if l > math.MaxUint32 {
		d.fail("number exceeds 32 bits")
	}
	return storage.Level(l)
}

func (d *decoder) seqs() []uint64 {
	seqs := make([]uint64, d.count(1))
	for i := range seqs {
		seqs[i] = d.uvarint()
	}
	return seqs
}
