package segment

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/carillonmq/carillon/storage/codec"
)

// The newest versions that this program reads: NewestRecord of what names a segment.
const (
	NewestRecord = 1
	newestInfo   = 1
)

// Info describes a segment's content. It is written inside the file and again in the
// manifest: a file that was exchanged or cut back does not match.
//
//	| first uvarint | last uvarint | count uvarint | chunks uvarint | bodies uvarint | min ref | max ref |
type Info struct {
	First, Last uint64 // the seqs it answers for; those of other segments lie wholly below or above
	Count       uint64 // entries
	Chunks      uint32
	Bodies      int64 // bytes
	Min, Max    Ref
}

func (i *Info) encode() codec.Record { return codec.Record{Version: 1, Payload: i.append(nil)} }

func decodeInfo(r codec.Record) (Info, error) {
	d := codec.NewDecoder(r.Payload)
	info := readInfo(&d)
	return info, d.Finish("segment info")
}

func (i *Info) append(b []byte) []byte {
	b = binary.AppendUvarint(b, i.First)
	b = binary.AppendUvarint(b, i.Last)
	b = binary.AppendUvarint(b, i.Count)
	b = binary.AppendUvarint(b, uint64(i.Chunks))
	b = binary.AppendUvarint(b, uint64(i.Bodies))
	return AppendRef(AppendRef(b, i.Min), i.Max)
}

func readInfo(d *codec.Decoder) Info {
	return Info{
		First: d.Uvarint(), Last: d.Uvarint(), Count: d.Uvarint(),
		Chunks: uint32(d.Uvarint()), Bodies: int64(d.Uvarint()),
		Min: ReadRef(d), Max: ReadRef(d),
	}
}

// Record is how the manifest, and a stream, name a segment. The pages that lead to the
// chunks carry no checksum of bbolt's: the record lists them and keeps one.
//
//	| info | size uvarint | n uvarint | n x page id uvarint | crc of those pages u32 |
type Record struct {
	Info     Info
	Size     int64    // of the file
	Branches []uint64 // ids of those pages
	CRC      uint32   // of those pages
}

// Encode returns the record as the manifest, and a stream above LevelOne, have it.
func (r *Record) Encode() codec.Record {
	return codec.Record{Version: 1, Payload: r.Append(nil)}
}

// DecodeRecord reads what Encode wrote, and validates it.
func DecodeRecord(sealed codec.Record) (Record, error) {
	d := codec.NewDecoder(sealed.Payload)
	r := ReadRecord(&d)
	if err := d.Finish("segment record"); err != nil {
		return Record{}, err
	}
	return r, r.Validate()
}

// Append writes the payload alone.
func (r *Record) Append(b []byte) []byte {
	b = r.Info.append(b)
	b = binary.AppendUvarint(b, uint64(r.Size))
	b = binary.AppendUvarint(b, uint64(len(r.Branches)))
	for _, id := range r.Branches {
		b = binary.AppendUvarint(b, id)
	}
	return binary.BigEndian.AppendUint32(b, r.CRC)
}

// ReadRecord reads what Append wrote. It does not validate it.
func ReadRecord(d *codec.Decoder) Record {
	r := Record{Info: readInfo(d), Size: int64(d.Uvarint())}
	for range d.Count() {
		r.Branches = append(r.Branches, d.Uvarint())
	}
	r.CRC = d.Uint32()
	return r
}

// Validate returns codec.ErrCorrupt for what no writer writes.
func (r *Record) Validate() error {
	i := &r.Info
	ok := 0 < i.First && i.First <= i.Last && i.Last < math.MaxUint64 && 0 < i.Count && i.Count <= i.Last-i.First+1 &&
		0 < i.Chunks && uint64(i.Chunks) <= i.Count && i.Bodies >= 0 && r.Size > i.Bodies && !i.Max.Less(i.Min)
	if !ok {
		return fmt.Errorf("%w: segment of seqs %d to %d with %d entries in %d chunks, %d bytes", codec.ErrCorrupt, i.First, i.Last, i.Count, i.Chunks, r.Size)
	}
	return nil
}
