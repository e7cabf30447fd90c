package broker

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// What is taken off a record on delivery and what is added. The names are those of
// package client, which the broker does not import; a test holds them equal.
const (
	instructionPrefix   = "deliver-"
	headerKey           = "deliver-key"
	headerDeliveredID   = "delivered-id"
	headerDeliveredFor  = "delivered-for"
	headerDeliveredFrom = "delivered-from"
	headerDeliveredSeq  = "delivered-seq"
)

// An outgoing is a message with its payload, on its way to Kafka.
type outgoing struct {
	ref        storage.Ref
	message    Message
	size       int   // bytes of the stored body
	deadLetter bool  // it goes to the dead-letter topic because something was wrong with it
	stripped   bool  // a dead letter that goes out without its value
	err        error // of the last try
	sent       time.Time
	answered   bool // the last try has its outcome
}

// delivery returns the record as it goes out.
func (p *publisher) delivery(o *outgoing, target string, partition int32) Delivery {
	m := &o.message
	if o.deadLetter {
		return deadLetterDelivery(o, target, partition)
	}
	d := Delivery{Topic: target, Partition: partition, Key: targetKey(m), Value: m.Value}
	d.Headers = make([]Header, 0, len(m.Headers)+4)
	for _, h := range m.Headers {
		if !strings.HasPrefix(h.Key, instructionPrefix) {
			d.Headers = append(d.Headers, h)
		}
	}
	d.Headers = append(d.Headers,
		Header{headerDeliveredID, []byte(m.Name())},
		Header{headerDeliveredFor, strconv.AppendInt(nil, m.PlannedFor, 10)},
		Header{headerDeliveredFrom, []byte(m.Origin.String())},
		Header{headerDeliveredSeq, []byte(deliveredSeq(p.cfg.ClusterID, o.ref.Seq))})
	return d
}

// deadLetterDelivery returns a dead letter as it goes out: the record as it came,
// with what was wrong, so that a corrected one can be produced from it.
func deadLetterDelivery(o *outgoing, target string, partition int32) Delivery {
	m := &o.message
	d := Delivery{Topic: target, Partition: partition, Key: m.Key, Value: m.Value, Headers: m.Headers}
	if o.stripped {
		d.Key, d.Value, d.Headers = stripped(m)
	}
	return d
}

// lacksValue reports whether a dead letter goes out without the value that the record
// came with: its topic did not take it, or it was too large to be scheduled.
func (o *outgoing) lacksValue() bool {
	isDropped := func(h Header) bool { return h.Key == headerValueDropped }
	return o.stripped || slices.ContainsFunc(o.message.Headers, isDropped)
}

// stripped returns what is left of a dead letter that its topic does not take: all
// but the value, and no more than what was wrong when key and headers are large too.
func stripped(m *Message) (key, value []byte, headers []Header) {
	key, headers = m.Key, slices.Clip(m.Headers)
	size := len(key)
	for _, h := range headers {
		size += h.size()
	}
	if size > mostKept {
		key, headers = nil, whatWasWrong(headers)
	}
	isStripped := func(h Header) bool { return h.Key == headerValueDropped }
	if !slices.ContainsFunc(headers, isStripped) { // ingest may have dropped it already
		headers = append(headers, Header{headerValueDropped, strconv.AppendInt(nil, int64(len(m.Value)), 10)})
	}
	return key, nil, headers
}

// whatWasWrong returns the headers at the end that a dead letter adds. The record may
// have come with others of such names, which count only as far as there is room: a
// letter that never fits would block all others.
func whatWasWrong(headers []Header) []Header {
	first, size := len(headers), 0
	for first > 0 && strings.HasPrefix(headers[first-1].Key, errorsPrefix) {
		if size += headers[first-1].size(); size > mostKept {
			break
		}
		first--
	}
	return headers[first:]
}

// targetKey returns the key of the delivered record: deliver-key, if the message
// has that header, else its own.
func targetKey(m *Message) []byte {
	i := slices.IndexFunc(m.Headers, func(h Header) bool { return h.Key == headerKey })
	if i >= 0 {
		return m.Headers[i].Value
	}
	return m.Key
}

// deliveredSeq names a message for ever, in this cluster and any other: a consumer
// deduplicates by it, since ids can be used again.
//
//	cluster id (32 hex digits) "/" seq (decimal)
func deliveredSeq(cluster [16]byte, seq uint64) string {
	return hex.EncodeToString(cluster[:]) + "/" + strconv.FormatUint(seq, 10)
}
