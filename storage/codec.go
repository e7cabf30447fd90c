package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// A record is what the manifest, a segment's info and a stream's header are
// written as. The checksum is CRC-32C over all before it.
//
//	| version u8 | payload ... | crc u32 |
//
// Integers in payloads are big endian when fixed, else varints; byte strings are
// | length + 1 uvarint | bytes |, where 0 stands for nil. What version a payload
// has is told to its decoder.
type record struct {
	version byte
	payload []byte
}

// The newest version of each format that this program reads. Which one is
// written, the level of what is written decides (see contents.level): version 1
// of all is what LevelOne has.
const (
	newestHead          = 2
	newestState         = 2
	newestAlive         = 2
	newestSegmentRecord = 1
	newestSegmentInfo   = 1
	newestStreamHeader  = 2
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func sealRecord(r record) []byte {
	b := append([]byte{r.version}, r.payload...)
	return binary.BigEndian.AppendUint32(b, checksum(b))
}

// openRecord returns the record called name, of which versions up to newest are
// known.
func openRecord(name string, newest byte, b []byte) (record, error) {
	if len(b) < 5 {
		return record{}, fmt.Errorf("%w: %s has %d bytes, a record has at least 5", ErrCorrupt, name, len(b))
	}
	body := b[:len(b)-4]
	if want, got := binary.BigEndian.Uint32(b[len(b)-4:]), checksum(body); want != got {
		return record{}, fmt.Errorf("%w: %s has checksum %08x, its content %08x", ErrCorrupt, name, want, got)
	}
	r := record{version: body[0], payload: body[1:]}
	return r, r.check(name, newest)
}

// check refuses a version that no decoder knows.
func (r *record) check(name string, newest byte) error {
	if r.version == 0 || r.version > newest {
		return fmt.Errorf("%w: %s has version %d, this program knows versions up to %d: run the program that wrote it, or a newer one", ErrVersion, name, r.version, newest)
	}
	return nil
}

func appendBytes(b, p []byte) []byte {
	if p == nil {
		return binary.AppendUvarint(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(p))+1), p...)
}

func appendString(b []byte, s string) []byte { return appendBytes(b, []byte(s)) }

// appendRecord puts a record into another one, whose checksum covers it:
//
//	| version u8 | payload bytes |
func appendRecord(b []byte, r record) []byte {
	return appendBytes(append(b, r.version), r.payload)
}

func appendRef(b []byte, r Ref) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, r.Due), r.Seq)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// decoder reads a payload front to back. The first malformed value sticks: all
// later ones are zero, and finish reports it.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	return take(d, v, n)
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	return take(d, v, n)
}

func take[T uint64 | int64](d *decoder, v T, n int) T {
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// view returns the next n bytes without copying.
func (d *decoder) view(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) uint32() uint32 {
	if p := d.view(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	return append([]byte{}, d.view(n-1)...)
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n == 0 {
		d.fail()
		return ""
	}
	return string(d.view(n - 1))
}

func (d *decoder) ref() Ref { return Ref{Due: d.varint(), Seq: d.uvarint()} }

func (d *decoder) bool() bool {
	p := d.view(1)
	if p == nil || p[0] > 1 {
		d.fail()
		return false
	}
	return p[0] == 1
}

func (d *decoder) id() (id [16]byte) {
	copy(id[:], d.view(16))
	return id
}

// record reads what appendRecord wrote.
func (d *decoder) record() (r record) {
	if v := d.view(1); v != nil {
		r.version = v[0]
	}
	r.payload = d.bytes()
	return r
}

// count reads the length of a list whose elements take at least one byte each,
// so that a damaged length cannot ask for memory.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) fail() { d.failed, d.b = true, nil }

// finish reports whether all of the payload, and no more, was read.
func (d *decoder) finish(name string) error {
	if d.failed || len(d.b) > 0 {
		return fmt.Errorf("%w: %s does not decode (%d bytes left)", ErrCorrupt, name, len(d.b))
	}
	return nil
}

// encodeValues writes the replicated values without the applied index, which
// belongs to the node and not to the content:
//
//	| cluster id 16 | mode | time varint | next seq uvarint | surveyed u8 |
//	| through varint | mark | fresh mark | n | n x (target, through varint, mark) |
//	| n | n x (topic, topic id 16, partition varint, next varint, epoch varint) |
//
// where a mark is | due varint | seq uvarint | and n a uvarint.
//
// Above LevelOne this is version 2, which begins with | level uvarint |.
func encodeValues(v *values) record {
	r := record{version: 1}
	if v.level > LevelOne {
		r = record{version: 2, payload: binary.AppendUvarint(nil, uint64(v.level))}
	}
	r.payload = v.append(r.payload)
	return r
}

func (v *values) append(b []byte) []byte {
	b = append(b, v.clusterID[:]...)
	b = appendString(b, v.mode)
	b = binary.AppendVarint(b, v.time)
	b = binary.AppendUvarint(b, v.nextSeq)
	b = appendBool(b, v.surveyed)
	b = binary.AppendVarint(b, v.claim.Through)
	b = appendRef(b, v.claim.Mark)
	b = appendRef(b, v.claim.Fresh)
	b = binary.AppendUvarint(b, uint64(v.holds.len()))
	for h := range v.holds.each {
		b = appendString(b, h.Target)
		b = binary.AppendVarint(b, h.Through)
		b = appendRef(b, h.Mark)
	}
	b = binary.AppendUvarint(b, uint64(len(v.positions)))
	for _, p := range v.sortedPositions() {
		b = appendString(b, p.Topic)
		b = append(b, p.TopicID[:]...)
		b = binary.AppendVarint(b, int64(p.Partition))
		b = binary.AppendVarint(b, p.Next)
		b = binary.AppendVarint(b, int64(p.Epoch))
	}
	return b
}

func decodeValues(r record) (values, error) {
	v := newValues()
	d := decoder{b: r.payload}
	if r.version >= 2 {
		if v.level = d.level(); v.level > NewestLevel {
			return v, fmt.Errorf("%w: the cluster is at feature level %d, this program understands %d: run the program of the other nodes", ErrVersion, v.level, NewestLevel)
		}
	}
	v.clusterID = d.id()
	v.mode = d.string()
	v.time = d.varint()
	v.nextSeq = d.uvarint()
	v.surveyed = d.bool()
	v.claim.Through = d.varint()
	v.claim.Mark = d.ref()
	v.claim.Fresh = d.ref()
	for range d.count() {
		v.holds.set(Hold{Target: d.string(), Through: d.varint(), Mark: d.ref()})
	}
	for range d.count() {
		p := Position{Topic: d.string(), TopicID: d.id(), Partition: int32(d.varint()), Next: d.varint(), Epoch: int32(d.varint())}
		v.positions[partitionKey{p.TopicID, p.Partition}] = p
	}
	return v, d.finish("state")
}

// level reads one above LevelOne, which no record names.
func (d *decoder) level() Level {
	l := d.uvarint()
	if l <= uint64(LevelOne) || l > math.MaxUint32 {
		d.fail()
		return LevelOne
	}
	return Level(l)
}
