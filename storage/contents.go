package storage

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// contents is what one manifest commit names. It is never changed once it is
// the manifest's: a commit replaces it.
type contents struct {
	number     uint64 // of the commit
	generation uint64 // raised by a received snapshot
	meta       SnapshotMeta
	state      []byte            // encodeValues
	alive      *roaring64.Bitmap // at meta.Index
	segments   []*segment        // sorted by seq
}

func emptyContents() contents {
	v := newValues()
	return contents{state: encodeValues(&v), alive: roaring64.New()}
}

// values decodes the state and puts the applied index to it.
func (c *contents) values() (values, error) {
	v, err := decodeValues(c.state)
	v.appliedIndex = c.meta.Index
	return v, err
}

// encodeHead writes | number uvarint | generation uvarint | meta |.
func (c *contents) encodeHead() []byte {
	b := binary.AppendUvarint(nil, c.number)
	b = binary.AppendUvarint(b, c.generation)
	return c.meta.append(b)
}

func (c *contents) decodeHead(b []byte) error {
	d := decoder{b: b}
	c.number, c.generation, c.meta = d.uvarint(), d.uvarint(), d.meta()
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

// encodeAlive writes the set in roaring's portable 64-bit format.
func encodeAlive(alive *roaring64.Bitmap) ([]byte, error) {
	b, err := alive.ToBytes()
	if err != nil {
		return nil, fmt.Errorf("encode alive-set: %w", err)
	}
	return b, nil
}

func decodeAlive(b []byte) (*roaring64.Bitmap, error) {
	alive := roaring64.New()
	if err := alive.UnmarshalBinary(b); err != nil {
		return nil, fmt.Errorf("%w: alive-set: %w", ErrCorrupt, err)
	}
	return alive, nil
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

// countAlive returns how many of the seqs first to last are in alive.
func countAlive(alive *roaring64.Bitmap, first, last uint64) uint64 {
	return alive.Rank(last) - alive.Rank(first-1)
}
