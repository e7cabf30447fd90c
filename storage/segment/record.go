package segment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/carillonmq/carillon/storage/codec"
)

// The newest versions that this program reads: NewestRecord of what names a segment.
const (
	NewestRecord = 2
	newestInfo   = 2
)

// Info describes a segment's content. It is written inside the file and again in the
// manifest: a file that was exchanged or cut back does not match.
//
//	| first uvarint | last uvarint | count uvarint | chunks uvarint | bodies uvarint | min ref | max ref |
//
// Of a segment WithIDs this is version 2, and goes on
//
//	| rows uvarint | foreign uvarint | chunks of rows uvarint | filters uvarint |
//
// Such a segment may have no entries, but foreign rows: they are of messages accepted before,
// and its range of seqs may then be empty, last being one less than first.
type Info struct {
	First, Last uint64 // the seqs it answers for; those of other segments lie wholly below or above
	Count       uint64 // entries
	Chunks      uint32
	Bodies      int64 // bytes
	Min, Max    Ref

	Form Form
	// Of a segment WithIDs; zero in others.
	Rows      uint64 // of ids
	Foreign   uint64 // those of them whose entry does not tell its id, and lies in whatever segment
	RowChunks uint32
	Filters   uint32
}

// Compare orders segments by the seqs that they answer for; one of none comes before that which
// begins there.
func (i *Info) Compare(other *Info) int {
	return cmp.Or(cmp.Compare(i.First, other.First), cmp.Compare(i.Last, other.Last))
}

func (i *Info) encode() codec.Record {
	return codec.Record{Version: i.Form.version(), Payload: i.append(nil)}
}

// version is that of the info and the record of a segment.
func (f Form) version() byte { return byte(f) + 1 }

func decodeInfo(r codec.Record) (Info, error) {
	d := codec.NewDecoder(r.Payload)
	info := readInfo(&d, Form(r.Version-1))
	return info, d.Finish("segment info")
}

func (i *Info) append(b []byte) []byte {
	b = binary.AppendUvarint(b, i.First)
	b = binary.AppendUvarint(b, i.Last)
	b = binary.AppendUvarint(b, i.Count)
	b = binary.AppendUvarint(b, uint64(i.Chunks))
	b = binary.AppendUvarint(b, uint64(i.Bodies))
	b = AppendRef(AppendRef(b, i.Min), i.Max)
	if i.Form == Plain {
		return b
	}
	b = binary.AppendUvarint(b, i.Rows)
	b = binary.AppendUvarint(b, i.Foreign)
	b = binary.AppendUvarint(b, uint64(i.RowChunks))
	return binary.AppendUvarint(b, uint64(i.Filters))
}

func readInfo(d *codec.Decoder, form Form) Info {
	i := Info{
		First: d.Uvarint(), Last: d.Uvarint(), Count: d.Uvarint(),
		Chunks: uint32(d.Uvarint()), Bodies: int64(d.Uvarint()),
		Min: ReadRef(d), Max: ReadRef(d),
		Form: form,
	}
	if form == WithIDs {
		i.Rows, i.Foreign = d.Uvarint(), d.Uvarint()
		i.RowChunks, i.Filters = uint32(d.Uvarint()), uint32(d.Uvarint())
	}
	return i
}

// Record is how the manifest, and a stream, name a segment. The pages that lead to the
// chunks, the rows and the filters carry no checksum of bbolt's: the record lists them and keeps
// one. It has the version of its info.
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
	return codec.Record{Version: r.Info.Form.version(), Payload: r.Append(nil)}
}

// DecodeRecord reads what Encode wrote, and validates it.
func DecodeRecord(sealed codec.Record) (Record, error) {
	d := codec.NewDecoder(sealed.Payload)
	r := ReadRecord(&d, Form(sealed.Version-1))
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

// ReadRecord reads what Append wrote of a segment of this form. It does not validate it.
func ReadRecord(d *codec.Decoder, form Form) Record {
	r := Record{Info: readInfo(d, form), Size: int64(d.Uvarint())}
	for range d.Count() {
		r.Branches = append(r.Branches, d.Uvarint())
	}
	r.CRC = d.Uint32()
	return r
}

// Validate returns codec.ErrCorrupt for what no writer writes.
func (r *Record) Validate() error {
	i := &r.Info
	ok := 0 < i.First && i.First <= i.Last+1 && i.Last < math.MaxUint64 && i.Count <= i.Last+1-i.First && i.Count+i.Rows > 0 &&
		(0 < i.Chunks) == (0 < i.Count) && uint64(i.Chunks) <= i.Count && i.Bodies >= 0 && r.Size > i.Bodies && !i.Max.Less(i.Min) &&
		(0 < i.RowChunks) == (0 < i.Rows) && uint64(i.RowChunks) <= i.Rows && (0 < i.Filters) == (0 < i.Rows) && i.Filters <= i.RowChunks &&
		i.Foreign <= i.Rows && i.Rows-i.Foreign <= i.Count
	if !ok {
		return fmt.Errorf("%w: segment of seqs %d to %d with %d entries in %d chunks, %d rows in %d, %d bytes", codec.ErrCorrupt, i.First, i.Last, i.Count, i.Chunks, i.Rows, i.RowChunks, r.Size)
	}
	return nil
}
