// Package codec has what all bytes on disk and in streams are made of: records, each
// with a version and a checksum, and a decoder that survives any input. What a format
// holds is known where it is drawn.
package codec

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
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

// Decoder reads a payload front to back. The first malformed value sticks: all
// later ones are zero, and Finish reports it. It belongs to one goroutine.
type Decoder struct {
	b   []byte
	bad bool
}

// NewDecoder returns one that reads b, which must not change meanwhile.
func NewDecoder(b []byte) Decoder { return Decoder{b: b} }

// Left returns how many bytes were not read yet; none when a value was malformed.
func (d *Decoder) Left() int { return len(d.b) }

// Failed reports whether a value was malformed.
func (d *Decoder) Failed() bool { return d.bad }

// Uvarint reads an unsigned varint.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	return take(d, v, n)
}

// Varint reads a signed varint.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.b)
	return take(d, v, n)
}

func take[T uint64 | int64](d *Decoder, v T, n int) T {
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// View returns the next n bytes without copying.
func (d *Decoder) View(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.Fail()
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// Uint32 reads four bytes, big endian.
func (d *Decoder) Uint32() uint32 {
	if p := d.View(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// Bytes reads and copies what AppendBytes wrote.
func (d *Decoder) Bytes() []byte {
	n := d.Uvarint()
	if n == 0 {
		return nil
	}
	return append([]byte{}, d.View(n-1)...)
}

// Text reads what AppendString wrote.
func (d *Decoder) Text() string {
	n := d.Uvarint()
	if n == 0 {
		d.Fail()
		return ""
	}
	return string(d.View(n - 1))
}

// Bool reads what AppendBool wrote.
func (d *Decoder) Bool() bool {
	p := d.View(1)
	if p == nil || p[0] > 1 {
		d.Fail()
		return false
	}
	return p[0] == 1
}

// ID reads the 16 bytes of an id.
func (d *Decoder) ID() (id [16]byte) {
	copy(id[:], d.View(16))
	return id
}

// Record reads what AppendRecord wrote.
func (d *Decoder) Record() (r Record) {
	if v := d.View(1); v != nil {
		r.Version = v[0]
	}
	r.Payload = d.Bytes()
	return r
}

// Count reads the length of a list whose elements take at least one byte each,
// so that a damaged length cannot ask for memory.
func (d *Decoder) Count() int {
	n := d.Uvarint()
	if n > uint64(len(d.b)) {
		d.Fail()
		return 0
	}
	return int(n)
}

// Fail makes what was read last malformed, on the word of who knows what it means.
func (d *Decoder) Fail() { d.bad, d.b = true, nil }

// Finish reports whether all of the payload, and no more, was read.
func (d *Decoder) Finish(name string) error {
	if d.bad || len(d.b) > 0 {
		return fmt.Errorf("%w: %s does not decode (%d bytes left)", ErrCorrupt, name, len(d.b))
	}
	return nil
}
