package name

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/FastFilter/xorfilter"
	"github.com/carillonmq/carillon/storage/codec"
)

// A filter says of which names a segment has no row, but for four in a thousand. It is a binary
// fuse filter (github.com/FastFilter/xorfilter) over the first eight bytes of hashes, and covers
// the names between two of them. Rows come in order, so building one takes the memory of
// filterNames names, however many a segment has:
//
//	| crc u32 | ordinal u32 | first u64 | last u64 | seed u64 | segment length u32 | segments u32 | fingerprints |
//
//	crc    CRC-32C of all after it
//	first  0 for the segment's first filter, then one more than the last of the one before
//	last   the highest there is, for the last one
//
// There are two segments more of fingerprints, a byte each, than the number tells.
const (
	filterNames  = 1 << 18
	filterHeader = 40
)

// A Filter is one part of a segment's names.
type Filter struct {
	first, last uint64
	fuse        xorfilter.BinaryFuse8
}

// A FilterBuilder gathers names, which come in order. The zero value is empty.
type FilterBuilder struct {
	builder xorfilter.BinaryFuseBuilder
	first   uint64
	names   []uint64
}

// Full reports whether the filter must be finished before h is added.
func (b *FilterBuilder) Full(h *Hash) bool {
	return len(b.names) >= filterNames && b.names[len(b.names)-1] != h.Head()
}

// Add takes a name; that of the row before may come again.
func (b *FilterBuilder) Add(h *Hash) {
	if n := len(b.names); n == 0 || b.names[n-1] != h.Head() {
		b.names = append(b.names, h.Head())
	}
}

// Finish returns the value of the filter, and begins the next one. It covers all that is below
// next; nil: all there is.
func (b *FilterBuilder) Finish(ordinal uint32, next *Hash) ([]byte, error) {
	last := uint64(math.MaxUint64)
	if next != nil {
		last = next.Head() - 1
	}
	fuse, err := xorfilter.BuildBinaryFuse[uint8](&b.builder, b.names)
	if err != nil {
		return nil, fmt.Errorf("build filter of %d names: %w", len(b.names), err)
	}
	value := binary.BigEndian.AppendUint32(make([]byte, 4, filterHeader+len(fuse.Fingerprints)), ordinal)
	for _, v := range []uint64{b.first, last, fuse.Seed} {
		value = binary.BigEndian.AppendUint64(value, v)
	}
	value = binary.BigEndian.AppendUint32(value, fuse.SegmentLength)
	value = binary.BigEndian.AppendUint32(value, fuse.SegmentCount)
	value = append(value, fuse.Fingerprints...)
	binary.BigEndian.PutUint32(value, codec.Checksum(value[4:]))
	b.names, b.first = b.names[:0], last+1
	return value, nil
}

// Filters are those of all names of a segment.
type Filters []Filter

// Add reads the next filter, and copies it. The error wraps codec.ErrCorrupt.
func (f Filters) Add(value []byte) (Filters, error) {
	if len(value) < filterHeader {
		return f, fmt.Errorf("%w: filter has %d bytes, one has at least %d", codec.ErrCorrupt, len(value), filterHeader)
	}
	if want, got := binary.BigEndian.Uint32(value), codec.Checksum(value[4:]); want != got {
		return f, fmt.Errorf("%w: filter has checksum %08x, its content %08x", codec.ErrCorrupt, want, got)
	}
	next := Filter{
		first: binary.BigEndian.Uint64(value[8:]),
		last:  binary.BigEndian.Uint64(value[16:]),
		fuse: xorfilter.BinaryFuse8{
			Seed:          binary.BigEndian.Uint64(value[24:]),
			SegmentLength: binary.BigEndian.Uint32(value[32:]),
			SegmentCount:  binary.BigEndian.Uint32(value[36:]),
		},
	}
	first := uint64(0)
	if len(f) > 0 {
		first = f[len(f)-1].last + 1
	}
	// Two filters are not needed for what one covers, and none follows the last one.
	ordinal := binary.BigEndian.Uint32(value[4:])
	if ordinal != uint32(len(f)) || next.first != first || next.last < first || len(f) > 0 && first == 0 {
		return f, fmt.Errorf("%w: filter %d of names %016x to %016x after %d, up to %016x", codec.ErrCorrupt, ordinal, next.first, next.last, len(f), first-1)
	}
	if err := next.take(value[filterHeader:]); err != nil {
		return f, err
	}
	return append(f, next), nil
}

// take copies the fingerprints; all that the filter may look at is there.
func (f *Filter) take(fingerprints []byte) error {
	fuse := &f.fuse
	segments := uint64(fuse.SegmentCount) + 2
	if bits.OnesCount32(fuse.SegmentLength) != 1 || fuse.SegmentCount == 0 || segments*uint64(fuse.SegmentLength) != uint64(len(fingerprints)) || len(fingerprints) > math.MaxInt32 {
		return fmt.Errorf("%w: filter of %d segments of %d has %d fingerprints", codec.ErrCorrupt, segments, fuse.SegmentLength, len(fingerprints))
	}
	fuse.SegmentLengthMask = fuse.SegmentLength - 1
	fuse.SegmentCountLength = fuse.SegmentCount * fuse.SegmentLength
	fuse.Fingerprints = slices.Clone(fingerprints)
	return nil
}

// Whole reports whether every name is covered.
func (f Filters) Whole() bool { return len(f) > 0 && f[len(f)-1].last == math.MaxUint64 }

// May reports whether the segment may have a row of the name; false is certain.
func (f Filters) May(h *Hash) bool {
	key := h.Head()
	at := sort.Search(len(f), func(i int) bool { return f[i].last >= key })
	return at < len(f) && f[at].fuse.Contains(key)
}
