package broker

import (
	"encoding/base64"
	"encoding/hex"
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
	headerKeyBase64     = "deliver-key-base64"
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
	err        error // of the last try
	sent       time.Time
	answered   bool      // the last try has its outcome
	unplaced   time.Time // when its partition was not there
	missed     time.Time // when Kafka first said so, asked after that
	nowhere    bool      // Kafka has said so for long enough
}

// delivery returns the record as it goes out.
func (p *publisher) delivery(o *outgoing, target string, partition int32) Delivery {
	m := &o.message
	if o.deadLetter { // as the record came, so that a corrected one can be produced from it
		return Delivery{Topic: target, Partition: partition, Key: m.Key, Value: m.Value, Headers: m.Headers}
	}
	d := Delivery{Topic: target, Partition: partition, Key: targetKey(m), Value: m.Value}
	d.Headers = make([]Header, 0, len(m.Headers)+4)
	for _, h := range m.Headers {
		if !strings.HasPrefix(h.Key, instructionPrefix) {
			d.Headers = append(d.Headers, h)
		}
	}
	// The added values are parts of one allocation.
	text := make([]byte, 0, len(m.ID)+2*(len(m.Origin.Topic)+originDigits)+mostDigits+seqLength)
	add := func(name string, value func(b []byte) []byte) {
		start := len(text)
		text = value(text)
		d.Headers = append(d.Headers, Header{name, text[start:len(text):len(text)]})
	}
	add(headerDeliveredID, m.appendName)
	add(headerDeliveredFor, func(b []byte) []byte { return strconv.AppendInt(b, m.PlannedFor, 10) })
	add(headerDeliveredFrom, m.Origin.append)
	add(headerDeliveredSeq, func(b []byte) []byte { return appendSeq(b, p.cfg.ClusterID, o.ref.Seq) })
	return d
}

// targetKey returns the key of the delivered record: that of deliver-key or
// deliver-key-base64, if the message has one of these headers, else its own.
func targetKey(m *Message) []byte {
	for _, h := range m.Headers {
		switch h.Key {
		case headerKey:
			return h.Value
		case headerKeyBase64:
			if key, err := base64.StdEncoding.DecodeString(string(h.Value)); err == nil { // ingest takes no other
				return key
			}
		}
	}
	return m.Key
}

// appendSeq names a message for ever, in this cluster and any other: a consumer
// deduplicates by it, since ids can be used again.
//
//	cluster id (32 hex digits) "/" seq (decimal)
func appendSeq(b []byte, cluster [16]byte, seq uint64) []byte {
	return strconv.AppendUint(append(hex.AppendEncode(b, cluster[:]), '/'), seq, 10)
}

const (
	mostDigits = len("-9223372036854775808")
	seqLength  = 2*16 + 1 + mostDigits
)
