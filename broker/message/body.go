package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/carillonmq/carillon/storage"
)

// The first byte of every stored body.
const (
	bodyVersion        = 1
	bodyVersionOverdue = 2
	bodyVersionMarked  = 3 // at storage.LevelTwo and above
)

// What the marks of a body tell, by bit.
const (
	markDeadLetter   = 1 << 0
	markValueDropped = 1 << 1
)

var (
	errBody      = errors.New("message body is damaged")
	errBodyNewer = errors.New("message body is of a newer version of Carillon: upgrade this node")
)

// AppendBody appends the message's stored form at the feature level, which Apply and
// storage carry without looking into it:
//
//	version      1 byte: 3, below LevelTwo 1 or 2
//	partitioner  1 byte
//	marks        1 byte, from version 3 on: 1 a dead letter, 2 its value was left out
//	planned for  varint
//	partition    varint, -1: by partitioner
//	overdue      varint, from version 2 on
//	id           bytes
//	origin       bytes topic | varint partition | varint offset
//	key, value   nullable
//	headers      uvarint count | (bytes key | nullable value) ...
//
//	bytes    = uvarint length | that many bytes
//	nullable = uvarint 0 for null, else length + 1 | that many bytes
//
// Versions 1 and 2 have no marks: a dead letter is told by its headers there.
//
// A nil b costs one allocation, of the very size: bodies stay in memory for a while.
func (m *Message) AppendBody(b []byte, level storage.Level) []byte {
	version := m.bodyVersion(level)
	if b == nil {
		b = make([]byte, 0, m.bodySize(version))
	}
	b = append(b, version, byte(m.Partitioner))
	if version >= bodyVersionMarked {
		b = append(b, m.marks())
	}
	b = binary.AppendVarint(b, m.PlannedFor)
	b = binary.AppendVarint(b, int64(m.Partition))
	if version >= bodyVersionOverdue {
		b = binary.AppendVarint(b, m.Overdue)
	}
	b = appendBytes(b, m.ID)
	b = appendBytes(b, m.Origin.Topic)
	b = binary.AppendVarint(b, int64(m.Origin.Partition))
	b = binary.AppendVarint(b, m.Origin.Offset)
	b = appendNullable(b, m.Key)
	b = appendNullable(b, m.Value)
	b = binary.AppendUvarint(b, uint64(len(m.Headers)))
	for _, h := range m.Headers {
		b = appendBytes(b, h.Key)
		b = appendNullable(b, h.Value)
	}
	return b
}

func (m *Message) bodyVersion(level storage.Level) byte {
	switch {
	case level >= storage.LevelTwo:
		return bodyVersionMarked
	case m.Overdue != 0:
		return bodyVersionOverdue
	}
	return bodyVersion
}

// bodySize is what AppendBody appends, in bytes.
func (m *Message) bodySize(version byte) int {
	size := 2 + varintSize(m.PlannedFor) + varintSize(int64(m.Partition))
	if version >= bodyVersionMarked {
		size++
	}
	if version >= bodyVersionOverdue {
		size += varintSize(m.Overdue)
	}
	size += bytesSize(len(m.ID)) + bytesSize(len(m.Origin.Topic)) + varintSize(int64(m.Origin.Partition)) + varintSize(m.Origin.Offset)
	size += nullableSize(m.Key) + nullableSize(m.Value) + uvarintSize(uint64(len(m.Headers)))
	for _, h := range m.Headers {
		size += bytesSize(len(h.Key)) + nullableSize(h.Value)
	}
	return size
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
func varintSize(v int64) int   { return uvarintSize(uint64(v)<<1 ^ uint64(v>>63)) } // zigzag
func bytesSize(n int) int      { return uvarintSize(uint64(n)) + n }

func nullableSize(v []byte) int {
	if v == nil {
		return 1
	}
	return uvarintSize(uint64(len(v))+1) + len(v)
}

func (m *Message) marks() (marks byte) {
	if m.DeadLetter {
		marks |= markDeadLetter
	}
	if m.ValueDropped {
		marks |= markValueDropped
	}
	return marks
}

// DecodeBody reads what AppendBody wrote. The message's slices point into b.
func DecodeBody(b []byte) (Message, error) {
	if len(b) < 2 || b[0] < bodyVersion {
		return Message{}, fmt.Errorf("decode message of %d bytes: %w", len(b), errBody)
	}
	if b[0] > bodyVersionMarked {
		return Message{}, fmt.Errorf("decode message of version %d, %d is the newest known: %w", b[0], bodyVersionMarked, errBodyNewer)
	}
	d := bodyDecoder{rest: b[2:]}
	m := Message{Partitioner: Partitioner(b[1])}
	if b[0] >= bodyVersionMarked {
		marks := d.byte()
		m.DeadLetter, m.ValueDropped = marks&markDeadLetter != 0, marks&markValueDropped != 0
		d.damaged = d.damaged || marks > markDeadLetter|markValueDropped
	}
	m.PlannedFor = d.varint()
	m.Partition = d.int32()
	if b[0] >= bodyVersionOverdue {
		m.Overdue = d.varint()
	}
	id, topic := d.bytes(), d.bytes()
	m.Origin.Partition = d.int32()
	m.Origin.Offset = d.varint()
	m.Key = d.nullable()
	m.Value = d.nullable()
	count := d.uvarint()
	if count > uint64(len(d.rest)) { // a header takes two bytes at least
		d.damaged = true
	}
	if d.damaged {
		count = 0
	}
	var text strings.Builder // one allocation for all strings, unless the headers' names are long
	text.Grow(len(id) + len(topic) + min(usualName*int(count), len(d.rest)))
	m.ID, m.Origin.Topic = part(&text, id), part(&text, topic)
	if count > 0 {
		m.Headers = make([]Header, count)
		for i := range m.Headers {
			m.Headers[i] = Header{Key: part(&text, d.bytes()), Value: d.nullable()}
		}
	}
	if d.damaged || len(d.rest) != 0 {
		return Message{}, fmt.Errorf("decode message of %d bytes: %w", len(b), errBody)
	}
	if b[0] < bodyVersionMarked {
		m.readMarks()
	}
	return m, nil
}

func appendBytes(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendNullable(b, v []byte) []byte {
	if v == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(v))+1), v...)
}

// A bodyDecoder reads one field after the other; after the first damage it
// returns zeros, so that only the end has to ask.
type bodyDecoder struct {
	rest    []byte
	damaged bool
}

func (d *bodyDecoder) uvarint() uint64 {
	if len(d.rest) > 0 && d.rest[0] < 0x80 && !d.damaged { // most lengths: one byte
		v := d.rest[0]
		d.rest = d.rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(d.rest)
	return v * d.advance(n)
}

func (d *bodyDecoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	return v * int64(d.advance(n))
}

func (d *bodyDecoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *bodyDecoder) int32() int32 {
	v := d.varint()
	if v != int64(int32(v)) {
		d.damaged = true
	}
	return int32(v)
}

// advance skips n bytes and returns 1, or notes the damage and returns 0.
func (d *bodyDecoder) advance(n int) uint64 {
	if n <= 0 || d.damaged {
		d.damaged = true
		return 0
	}
	d.rest = d.rest[n:]
	return 1
}

// usualName is the length of a header's name, in bytes, that few exceed.
const usualName = 16

// part returns the bytes as a string, a part of the builder's.
func part(b *strings.Builder, text []byte) string {
	start := b.Len()
	b.Write(text)
	return b.String()[start:]
}

func (d *bodyDecoder) bytes() []byte { return d.take(d.uvarint()) }

func (d *bodyDecoder) nullable() []byte {
	n := d.uvarint()
	if n == 0 || d.damaged {
		return nil
	}
	return d.take(n - 1)
}

// take returns the next n bytes, never nil unless there is damage.
func (d *bodyDecoder) take(n uint64) []byte {
	if d.damaged || n > uint64(len(d.rest)) {
		d.damaged = true
		return nil
	}
	v := d.rest[:n:n]
	d.rest = d.rest[n:]
	return v
}
