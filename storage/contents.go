package storage

import (
	"encoding/binary"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/segment"
)

// The newest versions of what the manifest holds that this program reads. Which one
// is written, the level of what is written decides (see contents.level): version 1
// of all is what LevelOne has.
const (
	newestHead  = 2
	newestState = 2
)

// contents is what one manifest commit names. It is never changed once it is
// the manifest's: a commit replaces it.
type contents struct {
	number     uint64 // of the commit
	generation uint64 // raised by a received snapshot
	meta       SnapshotMeta
	state      codec.Record       // encodeValues
	stored     alive.File         // where alive is on disk; LevelOne has it in the manifest
	alive      *alive.Set         // at meta.Index
	segments   []*segment.Segment // sorted by seq
}

func emptyContents() contents {
	v := newValues()
	return contents{state: encodeValues(&v), alive: alive.NewSet()}
}

// values decodes the state and puts the applied index to it.
func (c *contents) values() (values, error) {
	v, err := decodeValues(c.state)
	v.appliedIndex = c.meta.Index
	return v, err
}

// level is what the state says. All that is written with it, to disk and into
// streams, has the forms of this level: it may be behind Store.Level, which a
// restart forgets until the log is replayed.
func (c *contents) level() Level {
	if c.state.Version < 2 {
		return LevelOne
	}
	d := codec.NewDecoder(c.state.Payload)
	return readLevel(&d)
}

// encodeHead writes | number uvarint | generation uvarint | meta |, and above
// LevelOne version 2, which ends with the file of the alive-set.
func (c *contents) encodeHead() codec.Record {
	b := binary.AppendUvarint(nil, c.number)
	b = binary.AppendUvarint(b, c.generation)
	b = c.meta.append(b)
	if c.stored.ID == 0 {
		return codec.Record{Version: 1, Payload: b}
	}
	return codec.Record{Version: 2, Payload: c.stored.Append(b)}
}

func (c *contents) decodeHead(r codec.Record) error {
	d := codec.NewDecoder(r.Payload)
	c.number, c.generation, c.meta = d.Uvarint(), d.Uvarint(), readMeta(&d)
	if r.Version >= 2 {
		c.stored = alive.ReadFile(&d)
	}
	return d.Finish("manifest head")
}

// append writes | index uvarint | term uvarint | configuration | its index uvarint |.
func (m *SnapshotMeta) append(b []byte) []byte {
	b = binary.AppendUvarint(b, m.Index)
	b = binary.AppendUvarint(b, m.Term)
	b = codec.AppendBytes(b, m.Configuration)
	return binary.AppendUvarint(b, m.ConfigurationIndex)
}

func readMeta(d *codec.Decoder) SnapshotMeta {
	return SnapshotMeta{Index: d.Uvarint(), Term: d.Uvarint(), Configuration: d.Bytes(), ConfigurationIndex: d.Uvarint()}
}

// check compares what is named with each other: segments answer for disjoint
// seqs, in order, below the next seq, and every alive seq has one.
func (c *contents) check() error {
	v, err := c.values()
	if err != nil {
		return err
	}
	return checkRanges(c.alive, v.nextSeq, slices.Values(c.infos()))
}

func (c *contents) infos() []segment.Info {
	infos := make([]segment.Info, len(c.segments))
	for i, s := range c.segments {
		infos[i] = s.Info
	}
	return infos
}
