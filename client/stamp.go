package client

import (
	"encoding/base64"
	"strconv"
	"time"
)

// An Option writes one instruction header. Options say when, where and as what a record is
// delivered.
type Option func(headers []Header) []Header

// At asks for delivery at t, rounded up to the next millisecond. It wins over [After]. A time that
// has passed is no error: the record is delivered at once.
func At(t time.Time) Option {
	return text(HeaderAt, t.UTC().Format(time.RFC3339Nano))
}

// After asks for delivery once d has passed since the record's timestamp, rounded up to the next
// millisecond. The timestamp is set when the record is produced, unless the caller has set it.
func After(d time.Duration) Option {
	return text(HeaderAfter, d.String())
}

// To names the target topic. Without it the broker's route decides, which by default is the delay
// topic's name without ".delay".
func To(topic string) Option {
	return text(HeaderTo, topic)
}

// Key has the record delivered with this key, UTF-8 text, in place of its own.
func Key(key string) Option {
	return text(HeaderKey, key)
}

// KeyBytes has the record delivered with this key, any bytes, in place of its own: a number as
// Kafka's LongSerializer writes it, say, or Avro. An empty key is one, too; nil is none and
// refused. The cluster must be at feature level 2.
func KeyBytes(key []byte) Option {
	if key == nil {
		return func(headers []Header) []Header { return append(headers, Header{Key: HeaderKeyBase64}) }
	}
	return text(HeaderKeyBase64, base64.StdEncoding.EncodeToString(key))
}

// Partition has the record delivered to this partition of the target, whatever its key. A partition
// that the target does not have sends the record to the dead-letter topic.
func Partition(partition int32) Option {
	return text(HeaderPartition, strconv.Itoa(int(partition)))
}

// ID names the message, 1 to [MaxIDBytes] bytes of UTF-8, neither of the form topic/number/number nor beginning with
// [OwnPrefix]. It
// comes out as delivered-id. From feature level 3 on the message takes the place of the one that
// waits under this id of the delay topic, if there is one.
func ID(id string) Option {
	return text(HeaderID, id)
}

// Cancel makes the record one that cancels the message that waits under this id of the delay topic,
// in place of one that schedules: no option says when beside it. Give it the key of the record that
// scheduled the message, so that it comes after that one. The cluster must be at feature level 3.
func Cancel(id string) Option {
	return func(headers []Header) []Header {
		return append(headers, Header{Key: HeaderCancel, Value: []byte(cancelTrue)}, Header{Key: HeaderID, Value: []byte(id)})
	}
}

// IfAbsent lets the record take effect only while no message waits under its [ID]. One that is on
// its way to its target does not wait any more. The cluster must be at feature level 3.
func IfAbsent() Option {
	return text(HeaderIf, ifAbsent)
}

// IfPresent lets the record take effect only while a message waits under its [ID]: it replaces, or
// does nothing. The cluster must be at feature level 3.
func IfPresent() Option {
	return text(HeaderIf, ifPresent)
}

// IfSeq lets the record take effect only while this very message waits under its [ID]: seq is its
// number, or what its delivered-seq is going to be, with the cluster in front. The cluster must be at
// feature level 3.
func IfSeq(seq string) Option {
	return text(HeaderIf, seq)
}

// ExpiresAt has the message end, and not delivered any more, from t on, which is after its due time.
// It is rounded up to the next millisecond. The cluster must be at feature level 3.
func ExpiresAt(t time.Time) Option {
	return text(HeaderExpiresAt, t.UTC().Format(time.RFC3339Nano))
}

// ExpiresAfter is [ExpiresAt] once d, which is more than nothing, has passed since the due time.
func ExpiresAfter(d time.Duration) Option {
	return text(HeaderExpiresAfter, d.String())
}

func text(name, value string) Option {
	return func(headers []Header) []Header {
		return append(headers, Header{Key: name, Value: []byte(value)})
	}
}

// Stamp adds the options' headers to the record, which any Kafka client can then produce to its
// delay topic. The error is a *[HeaderError] when the broker would refuse the outcome, for example
// because a header is there already; the record is then as it was.
func Stamp(r *Record, options ...Option) error {
	headers := r.Headers[:len(r.Headers):len(r.Headers)] // the caller's array is not written to
	for _, option := range options {
		headers = option(headers)
	}
	if err := check(headers, r); err != nil {
		return err
	}
	r.Headers = headers
	return nil
}

// check refuses what the broker would send to the dead-letter topic. A record without a timestamp
// gets one from Kafka's client later; until then any will do.
func check(headers []Header, r *Record) error {
	var timestamp int64
	if !r.Timestamp.IsZero() {
		timestamp = r.Timestamp.UnixMilli()
	}
	_, err := Parse(headers, timestamp)
	return err
}
