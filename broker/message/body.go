package message

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/codec"
)

// The first byte of every stored body.
const (
	bodyVersion        = 1
	bodyVersionOverdue = 2
	bodyVersionMarked  = 3 // at storage.LevelTwo
	bodyVersionNamed   = 4 // at storage.LevelThree and above: the entry tells id and topic
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
//	version      1 byte: 4, at LevelTwo 3, below it 1 or 2
//	partitioner  1 byte
//	marks        1 byte, from version 3 on: 1 a dead letter, 2 its value was left out
//	planned for  varint
//	partition    varint, -1: by partitioner
//	overdue      varint, from version 2 on
//	id           bytes, up to version 3
//	origin       bytes topic, up to version 3 | varint partition | varint offset
//	key, value   nullable
//	headers      uvarint count | (bytes key | nullable value) ...
//
//	bytes    = uvarint length | that many bytes
//	nullable = uvarint 0 for null, else length + 1 | that many bytes
//
// Versions 1 and 2 have no marks: a dead letter is told by its headers there. From version 4 on
// the entry has the id and the origin's topic, which the schedule looks into: see FromEntry. From
// LevelFour on partition and offset may be -1 and a seq, see Origin.
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
	if version < bodyVersionNamed {
		b = appendText(b, m.ID)
		b = appendText(b, m.Origin.Topic)
	}
	b = binary.AppendVarint(b, int64(m.Origin.Partition))
	b = binary.AppendVarint(b, m.Origin.Offset)
	b = codec.AppendBytes(b, m.Key)
	b = codec.AppendBytes(b, m.Value)
	b = binary.AppendUvarint(b, uint64(len(m.Headers)))
	for _, h := range m.Headers {
		b = appendText(b, h.Key)
		b = codec.AppendBytes(b, h.Value)
	}
	return b
}

func (m *Message) bodyVersion(level storage.Level) byte {
	switch {
	case level >= storage.LevelThree:
		return bodyVersionNamed
	case level == storage.LevelTwo:
		return bodyVersionMarked
	case m.Overdue != 0:
		return bodyVersionOverdue
	}
	return bodyVersion
}

// bodySize is what AppendBody appends, in bytes.
func (m *Message) bodySize(version byte) int {
	size := 2 + codec.VarintSize(m.PlannedFor) + codec.VarintSize(int64(m.Partition))
	if version >= bodyVersionMarked {
		size++
	}
	if version >= bodyVersionOverdue {
		size += codec.VarintSize(m.Overdue)
	}
	if version < bodyVersionNamed {
		size += textSize(m.ID) + textSize(m.Origin.Topic)
	}
	size += codec.VarintSize(int64(m.Origin.Partition)) + codec.VarintSize(m.Origin.Offset)
	size += codec.BytesSize(m.Key) + codec.BytesSize(m.Value) + codec.UvarintSize(uint64(len(m.Headers)))
	for _, h := range m.Headers {
		size += textSize(h.Key) + codec.BytesSize(h.Value)
	}
	return size
}

func textSize(s string) int { return codec.UvarintSize(uint64(len(s))) + len(s) }

func (m *Message) marks() (marks byte) {
	if m.DeadLetter {
		marks |= markDeadLetter
	}
	if m.ValueDropped {
		marks |= markValueDropped
	}
	return marks
}

// FromEntry returns the message that an entry of the schedule holds. Its slices and strings
// are parts of the entry's body, which must never change.
func FromEntry(e *storage.Entry) (Message, error) {
	b := e.Body
	if len(b) < 2 || b[0] < bodyVersion {
		return Message{}, fmt.Errorf("decode message of %d bytes: %w", len(b), errBody)
	}
	if b[0] > bodyVersionNamed {
		return Message{}, fmt.Errorf("decode message of version %d, %d is the newest known: %w", b[0], bodyVersionNamed, errBodyNewer)
	}
	d := codec.NewDecoder(b[2:])
	m := Message{Partitioner: Partitioner(b[1]), Expires: e.Expires}
	if b[0] >= bodyVersionMarked {
		marks := d.Byte()
		m.DeadLetter, m.ValueDropped = marks&markDeadLetter != 0, marks&markValueDropped != 0
		if marks > markDeadLetter|markValueDropped {
			d.Fail("unknown marks")
		}
	}
	m.PlannedFor = d.Varint()
	m.Partition = d.Int32()
	if b[0] >= bodyVersionOverdue {
		m.Overdue = d.Varint()
	}
	if b[0] < bodyVersionNamed {
		m.ID, m.Origin.Topic = d.TextView(d.Uvarint()), d.TextView(d.Uvarint())
	}
	m.Origin.Partition = d.Int32()
	m.Origin.Offset = d.Varint()
	m.Key = d.BytesView()
	m.Value = d.BytesView()
	if count := d.Count(); count > 0 {
		m.Headers = make([]Header, count)
		for i := range m.Headers {
			m.Headers[i] = Header{Key: d.TextView(d.Uvarint()), Value: d.BytesView()}
		}
	}
	if d.Failed() || d.Left() != 0 {
		return Message{}, fmt.Errorf("decode message of %d bytes: %w", len(b), errBody)
	}
	switch {
	case b[0] < bodyVersionMarked:
		m.readMarks()
	case b[0] >= bodyVersionNamed:
		m.ID, m.Origin.Topic = e.ID, e.Topic
		if m.Origin.NoRecord() && m.Origin.Offset == 0 {
			m.Origin.Offset = int64(e.Seq)
		}
	}
	return m, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
