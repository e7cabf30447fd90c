package storage

import (
	"encoding/binary"
	"slices"
)

// contents is what one manifest commit names. It is never changed once it is
// the manifest's: a commit replaces it.
type contents struct {
	number     uint64 // of the commit
	generation uint64 // raised by a received snapshot
	meta       SnapshotMeta
	state      record     // encodeValues
	stored     aliveFile  // where alive is on disk; LevelOne has it in the manifest
	alive      *aliveSet  // at meta.Index
	segments   []*segment // sorted by seq
}

func emptyContents() contents {
	v := newValues()
	return contents{state: encodeValues(&v), alive: newAliveSet()}
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
	if c.state.version < 2 {
		return LevelOne
	}
	d := decoder{b: c.state.payload}
	return d.level()
}

// encodeHead writes | number uvarint | generation uvarint | meta |, and above
// LevelOne version 2, which ends with the file of the alive-set.
func (c *contents) encodeHead() record {
	b := binary.AppendUvarint(nil, c.number)
	b = binary.AppendUvarint(b, c.generation)
	b = c.meta.append(b)
	if c.stored.id == 0 {
		return record{version: 1, payload: b}
	}
	return record{version: 2, payload: c.stored.append(b)}
}

func (c *contents) decodeHead(r record) error {
	d := decoder{b: r.payload}
	c.number, c.generation, c.meta = d.uvarint(), d.uvarint(), d.meta()
	if r.version >= 2 {
		c.stored = d.aliveFile()
	}
	return d.finish("manifest head")
}

// append writes | index uvarint | term uvarint | configuration | its index uvarint |.
func (m *SnapshotMeta) append(b []byte) []byte {
	b = binary.AppendUvarint(b, m.Index)
	b = binary.AppendUvarint(b, m.Term)
	b = appendBytes(b, m.Configuration)
	return binary.AppendUvarint(b, m.ConfigurationIndex)
}

func (d *decoder) meta() SnapshotMeta {
	return SnapshotMeta{Index: d.uvarint(), Term: d.uvarint(), Configuration: d.bytes(), ConfigurationIndex: d.uvarint()}
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

func (c *contents) infos() []segmentInfo {
	infos := make([]segmentInfo, len(c.segments))
	for i, s := range c.segments {
		infos[i] = s.info
	}
	return infos
}
