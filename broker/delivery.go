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
	d.Headers = append(d.Headers,
		Header{headerDeliveredID, []byte(m.Name())},
		Header{headerDeliveredFor, strconv.AppendInt(nil, m.PlannedFor, 10)},
		Header{headerDeliveredFrom, []byte(m.Origin.String())},
		Header{headerDeliveredSeq, []byte(deliveredSeq(p.cfg.ClusterID, o.ref.Seq))})
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

// deliveredSeq names a message for ever, in this cluster and any other: a consumer
// deduplicates by it, since ids can be used again.
//
//	cluster id (32 hex digits) "/" seq (decimal)
func deliveredSeq(cluster [16]byte, seq uint64) string {
	return hex.EncodeToString(cluster[:]) + "/" + strconv.FormatUint(seq, 10)
}
