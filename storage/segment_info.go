package storage

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/carillonmq/carillon/storage/codec"
)

// The newest versions that this program reads.
const (
	newestSegmentRecord = 1
	newestSegmentInfo   = 1
)

// segmentInfo describes a segment's content. It is written inside the file and
// again in the manifest: a file that was exchanged or cut back does not match.
//
//	| first uvarint | last uvarint | count uvarint | chunks uvarint | bodies uvarint | min ref | max ref |
type segmentInfo struct {
	first, last uint64 // the seqs it answers for; those of other segments lie wholly below or above
	count       uint64 // entries
	chunks      uint32
	bodies      int64 // bytes
	min, max    Ref
}

func (i *segmentInfo) encode() codec.Record { return codec.Record{Version: 1, Payload: i.append(nil)} }

func decodeSegmentInfo(r codec.Record) (segmentInfo, error) {
	d := codec.NewDecoder(r.Payload)
	info := readSegmentInfo(&d)
	return info, d.Finish("segment info")
}

func (i *segmentInfo) append(b []byte) []byte {
	b = binary.AppendUvarint(b, i.first)
	b = binary.AppendUvarint(b, i.last)
	b = binary.AppendUvarint(b, i.count)
	b = binary.AppendUvarint(b, uint64(i.chunks))
	b = binary.AppendUvarint(b, uint64(i.bodies))
	return appendRef(appendRef(b, i.min), i.max)
}

func readSegmentInfo(d *codec.Decoder) segmentInfo {
	return segmentInfo{
		first: d.Uvarint(), last: d.Uvarint(), count: d.Uvarint(),
		chunks: uint32(d.Uvarint()), bodies: int64(d.Uvarint()),
		min: readRef(d), max: readRef(d),
	}
}

// segmentRecord is how the manifest, and a stream, name a segment. The pages
// that lead to the chunks carry no checksum of bbolt's: the record lists them
// and keeps one.
//
//	| info | size uvarint | n uvarint | n x page id uvarint | crc of those pages u32 |
type segmentRecord struct {
	info     segmentInfo
	size     int64 // of the file
	branches []uint64
	crc      uint32
}

func (r *segmentRecord) encode() codec.Record {
	return codec.Record{Version: 1, Payload: r.append(nil)}
}

func decodeSegmentRecord(sealed codec.Record) (segmentRecord, error) {
	d := codec.NewDecoder(sealed.Payload)
	r := readSegmentRecord(&d)
	if err := d.Finish("segment record"); err != nil {
		return segmentRecord{}, err
	}
	return r, r.validate()
}

func (r *segmentRecord) append(b []byte) []byte {
	b = r.info.append(b)
	b = binary.AppendUvarint(b, uint64(r.size))
	b = binary.AppendUvarint(b, uint64(len(r.branches)))
	for _, id := range r.branches {
		b = binary.AppendUvarint(b, id)
	}
	return binary.BigEndian.AppendUint32(b, r.crc)
}

func readSegmentRecord(d *codec.Decoder) segmentRecord {
	r := segmentRecord{info: readSegmentInfo(d), size: int64(d.Uvarint())}
	for range d.Count() {
		r.branches = append(r.branches, d.Uvarint())
	}
	r.crc = d.Uint32()
	return r
}

// validate refuses what no writer writes.
func (r *segmentRecord) validate() error {
	i := &r.info
	ok := 0 < i.first && i.first <= i.last && i.last < math.MaxUint64 && 0 < i.count && i.count <= i.last-i.first+1 &&
		0 < i.chunks && uint64(i.chunks) <= i.count && i.bodies >= 0 && r.size > i.bodies && !i.max.Less(i.min)
	if !ok {
		return fmt.Errorf("%w: segment of seqs %d to %d with %d entries in %d chunks, %d bytes", ErrCorrupt, i.first, i.last, i.count, i.chunks, r.size)
	}
	return nil
}
