// Package codec has what all bytes on disk, in streams and in the log are made of:
// records, each with a version and a checksum, and a decoder that survives any input.
// What a format holds is known where it is drawn.
package codec

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"strings"
	"unsafe"
)

// A Record is what the manifest, a segment's info and a stream's header are
// written as. The checksum is CRC-32C over all before it.
//
//	| version u8 | payload ... | crc u32 |
//
// Integers in payloads are big endian when fixed, else varints; byte strings are
// | length + 1 uvarint | bytes |, where 0 stands for nil. What version a payload
// has is told to its decoder.
type Record struct {
	Version byte
	Payload []byte
}

// Checksum returns the CRC-32C of b.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Seal returns the bytes of a record.
func Seal(r Record) []byte {
	b := append([]byte{r.Version}, r.Payload...)
	return binary.BigEndian.AppendUint32(b, Checksum(b))
}

// Open returns the record called name, of which versions up to newest are known. Its
// payload is a view into b. The error wraps ErrCorrupt or ErrVersion.
func Open(name string, newest byte, b []byte) (Record, error) {
	if len(b) < 5 {
		return Record{}, fmt.Errorf("%w: %s has %d bytes, a record has at least 5", ErrCorrupt, name, len(b))
	}
	body := b[:len(b)-4]
	if want, got := binary.BigEndian.Uint32(b[len(b)-4:]), Checksum(body); want != got {
		return Record{}, fmt.Errorf("%w: %s has checksum %08x, its content %08x", ErrCorrupt, name, want, got)
	}
	r := Record{Version: body[0], Payload: body[1:]}
	return r, r.Check(name, newest)
}

// Check returns ErrVersion for a version that no decoder knows.
func (r *Record) Check(name string, newest byte) error {
	if r.Version == 0 || r.Version > newest {
		return fmt.Errorf("%w: %s has version %d, this program knows versions up to %d: run the program that wrote it, or a newer one", ErrVersion, name, r.Version, newest)
	}
	return nil
}

// AppendBytes writes p, of which nil and empty stay apart.
func AppendBytes(b, p []byte) []byte {
	if p == nil {
		return binary.AppendUvarint(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(p))+1), p...)
}

// AppendString writes s as AppendBytes does.
func AppendString(b []byte, s string) []byte { return AppendBytes(b, []byte(s)) }

// AppendRecord puts a record into another one, whose checksum covers it:
//
//	| version u8 | payload bytes |
func AppendRecord(b []byte, r Record) []byte {
	return AppendBytes(append(b, r.Version), r.Payload)
}

// AppendBool writes one byte, 0 or 1.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// UvarintSize returns how many bytes v takes as an unsigned varint.
func UvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// VarintSize returns how many bytes v takes as a signed varint.
func VarintSize(v int64) int { return UvarintSize(uint64(v)<<1 ^ uint64(v>>63)) } // zigzag

// BytesSize returns how many bytes AppendBytes writes.
func BytesSize(p []byte) int {
	if p == nil {
		return 1
	}
	return UvarintSize(uint64(len(p))+1) + len(p)
}

// Decoder reads a payload front to back. The first malformed value sticks: all
// later ones are zero, and Finish reports it. It belongs to one goroutine.
type Decoder struct {
	b       []byte
	problem string // of the first malformed value, "" if there is none
}

// NewDecoder returns one that reads b, which must not change meanwhile.
func NewDecoder(b []byte) Decoder { return Decoder{b: b} }

// Left returns how many bytes were not read yet; none when a value was malformed.
func (d *Decoder) Left() int { return len(d.b) }

// Failed reports whether a value was malformed.
func (d *Decoder) Failed() bool { return d.problem != "" }

// Problem says what was wrong with the first malformed value, "" if there was none.
func (d *Decoder) Problem() string { return d.problem }

// Uvarint reads an unsigned varint.
func (d *Decoder) Uvarint() uint64 {
	if len(d.b) > 0 && d.b[0] < 0x80 { // most lengths
		v := d.b[0]
		d.b = d.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.Fail("number cut short or too long")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// Varint reads a signed varint.
func (d *Decoder) Varint() int64 {
	v := d.Uvarint()
	return int64(v>>1) ^ -int64(v&1) // zigzag
}

// Int32 reads a signed varint of 32 bits.
func (d *Decoder) Int32() int32 {
	v := d.Varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.Fail("number exceeds 32 bits")
		return 0
	}
	return int32(v)
}

// View returns the next n bytes without copying, nil only when they are not there.
func (d *Decoder) View(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.Fail("length exceeds what is there")
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// TextView is View, as text: what is read must never change.
func (d *Decoder) TextView(n uint64) string {
	p := d.View(n)
	return unsafe.String(unsafe.SliceData(p), len(p))
}

// Uint32 reads four bytes, big endian.
func (d *Decoder) Uint32() uint32 {
	if p := d.View(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// BytesView reads what AppendBytes wrote, without copying.
func (d *Decoder) BytesView() []byte {
	n := d.Uvarint()
	if n == 0 {
		return nil
	}
	return d.View(n - 1)
}

// Bytes reads and copies what AppendBytes wrote.
func (d *Decoder) Bytes() []byte {
	n := d.Uvarint()
	if n == 0 {
		return nil
	}
	return append([]byte{}, d.View(n-1)...)
}

// Text reads and copies what AppendString wrote.
func (d *Decoder) Text() string { return strings.Clone(d.StringView()) }

// StringView is Text without copying: what is read must never change.
func (d *Decoder) StringView() string {
	n := d.Uvarint()
	if n == 0 {
		d.Fail("text is null")
		return ""
	}
	return d.TextView(n - 1)
}

// Bool reads what AppendBool wrote.
func (d *Decoder) Bool() bool {
	v := d.Byte()
	if v > 1 {
		d.Fail("flag is neither 0 nor 1")
	}
	return v == 1
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if p := d.View(1); p != nil {
		return p[0]
	}
	return 0
}

// ID reads the 16 bytes of an id.
func (d *Decoder) ID() (id [16]byte) {
	copy(id[:], d.View(16))
	return id
}

// Record reads what AppendRecord wrote.
func (d *Decoder) Record() (r Record) {
	r.Version = d.Byte()
	r.Payload = d.Bytes()
	return r
}

// Count reads the length of a list whose elements take at least one byte each,
// so that a damaged length cannot ask for memory.
func (d *Decoder) Count() int { return d.CountOf(1) }

// CountOf is Count for elements of least bytes or more.
func (d *Decoder) CountOf(least int) int {
	n := d.Uvarint()
	if n > uint64(len(d.b)/least) {
		d.Fail("count exceeds what is there")
		return 0
	}
	return int(n)
}

// Fail makes what was read last malformed, on the word of who knows what it means.
func (d *Decoder) Fail(problem string) {
	if d.problem == "" {
		d.problem = problem
	}
	d.b = nil
}

// Finish reports whether all of the payload, and no more, was read.
func (d *Decoder) Finish(name string) error {
	if d.Failed() || len(d.b) > 0 {
		return fmt.Errorf("%w: %s does not decode (%d bytes left)", ErrCorrupt, name, len(d.b))
	}
	return nil
}
