package broker

import (
	"encoding/hex"
	"strconv"

	"github.com/carillonmq/carillon/storage"
)

// What is added to every record on delivery. The names are those of package
// client, which the broker does not import; a test holds them equal.
const (
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
}

// delivery returns the record as it goes out. A dead letter says what was wrong
// and is not marked as delivered.
func (p *publisher) delivery(o *outgoing, target string, partition int32) Delivery {
	m := &o.message
	d := Delivery{Topic: target, Partition: partition, Key: m.Key, Value: m.Value}
	d.Headers = append(make([]Header, 0, len(m.Headers)+4), m.Headers...)
	switch {
	case o.stripped:
		d.Value = nil
		d.Headers = append(d.Headers, Header{headerValueDropped, strconv.AppendInt(nil, int64(len(m.Value)), 10)})
	case !o.deadLetter:
		d.Headers = append(d.Headers,
			Header{headerDeliveredID, []byte(m.Name())},
			Header{headerDeliveredFor, strconv.AppendInt(nil, m.PlannedFor, 10)},
			Header{headerDeliveredFrom, []byte(m.Origin.String())},
			Header{headerDeliveredSeq, []byte(deliveredSeq(p.cfg.ClusterID, o.ref.Seq))})
	}
	return d
}

// deliveredSeq names a message for ever, in this cluster and any other: a consumer
// deduplicates by it, since ids can be used again.
//
//	cluster id (32 hex digits) "/" seq (decimal)
func deliveredSeq(cluster [16]byte, seq uint64) string {
	return hex.EncodeToString(cluster[:]) + "/" + strconv.FormatUint(seq, 10)
}
