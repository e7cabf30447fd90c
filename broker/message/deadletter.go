package message

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/carillonmq/carillon/storage"
)

// What a dead letter carries besides its own headers, all UTF-8 text. Topic,
// partition and offset name the record of the delay topic. The names are those of
// package client, which the broker does not import; a test holds them equal.
const (
	headerErrorCode      = "__carillon.errors.code"
	headerErrorMessage   = "__carillon.errors.message"
	headerErrorTopic     = "__carillon.errors.topic"
	headerErrorPartition = "__carillon.errors.partition"
	headerErrorOffset    = "__carillon.errors.offset"
	// headerValueDropped gives the bytes of a value that is left out: that of a record
	// above 16 MiB.
	headerValueDropped = "__carillon.errors.value-dropped"
)

const errorHeaderCount = 5

// AsDeadLetter returns what takes the message's place in the schedule when it cannot be
// delivered: a message due now (epoch milliseconds), with key, value and headers as they
// are and the problem added. Any partition of the dead-letter topic will do.
func (m *Message) AsDeadLetter(problem Problem, now int64) Message {
	added := errorHeaders(m.Origin, problem)
	return Message{
		Origin:       m.Origin,
		PlannedFor:   now,
		Partition:    -1,
		DeadLetter:   true,
		ValueDropped: m.ValueDropped,
		Key:          m.Key,
		Value:        m.Value,
		Headers:      append(slices.Clip(m.Headers), added[:]...),
	}
}

// DropValue leaves out the value of a message that becomes a dead letter, since it is too
// large, and notes so in the marks and in a header.
func (m *Message) DropValue() {
	dropped := strconv.AppendInt(nil, int64(len(m.Value)), 10)
	m.Value, m.ValueDropped = nil, true
	m.Headers = append(slices.Clip(m.Headers), Header{headerValueDropped, dropped})
}

// TooNew returns why a message cannot be scheduled at the feature level, or nil: older nodes might
// come to deliver it, who would take it for a dead letter, or not know its headers; or ids are not
// open yet.
func (m *Message) TooNew(level storage.Level, idsOpen bool) *Problem {
	if level < storage.LevelTwo && looksLikeDeadLetter(m.Origin, m.Headers) {
		return &Problem{CodeMalformed, headerErrorOffset + " and the headers before it name this very record, which would be taken for a dead letter: send it without its headers __carillon.errors.*"}
	}
	if level >= storage.LevelThree && idsOpen {
		return nil
	}
	for _, h := range m.Headers {
		need := levelOf(h.Key)
		if need == storage.LevelThree && level >= need {
			return &Problem{CodeUnsupported, h.Key + " is not served yet: the cluster has come to feature level 3 or above a moment ago, and still reads the ids of messages that wait: send the record again in some minutes"}
		}
		if need <= level {
			continue
		}
		remedy := "upgrade all nodes and raise the level"
		if h.Key == headerKeyBase64 {
			remedy += ", or give the record itself the key"
		}
		return &Problem{CodeUnsupported, fmt.Sprintf("%s is known from feature level %d on, and the cluster is at level %d: %s", h.Key, need, level, remedy)}
	}
	return nil
}

// levelOf returns the feature level that brought an instruction of that name.
func levelOf(header string) storage.Level {
	switch header {
	case headerCancel, headerIf, headerExpiresAt, headerExpiresAfter:
		return storage.LevelThree
	case headerKeyBase64:
		return storage.LevelTwo
	}
	return storage.LevelOne
}

// errorHeaders are the last ones of a dead letter.
func errorHeaders(origin Origin, problem Problem) [errorHeaderCount]Header {
	return [errorHeaderCount]Header{
		{headerErrorCode, []byte(problem.Code)},
		{headerErrorMessage, []byte(problem.Message)},
		{headerErrorTopic, []byte(origin.Topic)},
		{headerErrorPartition, strconv.AppendInt(nil, int64(origin.Partition), 10)},
		{headerErrorOffset, strconv.AppendInt(nil, origin.Offset, 10)},
	}
}

// readMarks tells a dead letter by its headers, as it must be told in bodies that have
// no marks. The configuration is not asked: dead letters may wait while it changes.
func (m *Message) readMarks() {
	m.DeadLetter = looksLikeDeadLetter(m.Origin, m.Headers)
	if last := len(m.Headers) - errorHeaderCount - 1; m.DeadLetter && last >= 0 {
		m.ValueDropped = m.Value == nil && m.Headers[last].Key == headerValueDropped
	}
}

// looksLikeDeadLetter reports whether the last headers say what was wrong with the very
// record that they are on. Those of a record that was produced from a dead letter, and
// has its headers still, name another record. A producer who knows the offset to come
// can write such headers: see TooNew.
func looksLikeDeadLetter(origin Origin, headers []Header) bool {
	first := len(headers) - errorHeaderCount
	if first < 0 || headers[first].Key != headerErrorCode {
		return false
	}
	code, message := headers[first].Value, headers[first+1].Value
	own := errorHeaders(origin, Problem{Code: string(code), Message: string(message)})
	return slices.EqualFunc(headers[first:], own[:], func(a, b Header) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value)
	})
}
