package broker

import (
	"bytes"
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

// mostDeadLetter is the batch, in bytes, that a dead-letter topic takes if we create
// it: the largest record that is scheduled, what a dead letter adds, and Kafka's frame.
const mostDeadLetter = mostRecord + 1<<20

// deadLetterEntry returns what takes a message's place in the schedule when it
// cannot be delivered: a message for the dead-letter topic, due now (epoch
// milliseconds), with the key, value and headers given, unchanged, and the problem
// added. Any partition of the dead-letter topic will do.
func deadLetterEntry(topic string, now int64, origin Origin, key, value []byte, headers []Header, problem Problem) storage.Entry {
	added := errorHeaders(origin, problem)
	m := Message{
		Origin:     origin,
		PlannedFor: now,
		Partition:  -1,
		Key:        key,
		Value:      value,
		Headers:    append(slices.Clip(headers), added[:]...),
	}
	return storage.Entry{Due: now, Target: topic, Body: m.AppendBody(nil)}
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

// isDeadLetter reports whether a message is one: it says what was wrong with the very
// record that it comes from. One that was produced from a dead letter, and has its
// headers still, names another record. The configuration is not asked: dead letters
// may wait while it changes.
func isDeadLetter(m *Message) bool {
	first := len(m.Headers) - errorHeaderCount
	if first < 0 || m.Headers[first].Key != headerErrorCode {
		return false
	}
	code, message := m.Headers[first].Value, m.Headers[first+1].Value
	own := errorHeaders(m.Origin, Problem{Code: string(code), Message: string(message)})
	return slices.EqualFunc(m.Headers[first:], own[:], func(a, b Header) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value)
	})
}
