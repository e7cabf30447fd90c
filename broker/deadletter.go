package broker

import (
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

// mostDeadLetter is the batch, in bytes, that a dead-letter topic takes if we create
// it: the largest record that is scheduled, what a dead letter adds, and Kafka's frame.
const mostDeadLetter = mostRecord + 1<<20

// deadLetterEntry returns what takes a message's place in the schedule when it
// cannot be delivered: a message for the dead-letter topic, due now (epoch
// milliseconds), with the key, value and headers given, unchanged, and the problem
// added. Any partition of the dead-letter topic will do.
func deadLetterEntry(topic string, now int64, origin Origin, key, value []byte, headers []Header, problem Problem) storage.Entry {
	m := Message{
		Origin:     origin,
		PlannedFor: now,
		Partition:  -1,
		Key:        key,
		Value:      value,
		Headers: append(slices.Clip(headers),
			Header{headerErrorCode, []byte(problem.Code)},
			Header{headerErrorMessage, []byte(problem.Message)},
			Header{headerErrorTopic, []byte(origin.Topic)},
			Header{headerErrorPartition, strconv.AppendInt(nil, int64(origin.Partition), 10)},
			Header{headerErrorOffset, strconv.AppendInt(nil, origin.Offset, 10)}),
	}
	return storage.Entry{Due: now, Target: topic, Body: m.AppendBody(nil)}
}

// isDeadLetter reports whether a message for the target is one: the topic is the
// dead-letter topic of its origin, and the message says what was wrong.
func (p *publisher) isDeadLetter(m *Message, target string) bool {
	return p.cfg.DeadLetterFor(m.Origin.Topic) == target &&
		slices.ContainsFunc(m.Headers, func(h Header) bool { return h.Key == headerErrorCode })
}
