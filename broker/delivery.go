package broker

import (
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
)

// An outgoing is a message with its payload, on its way to Kafka.
type outgoing struct {
	ref        storage.Ref
	message    message.Message
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
	return Delivery{Topic: target, Partition: partition, Key: m.DeliveredKey(), Value: m.Value, Headers: m.DeliveredHeaders(p.cfg.ClusterID, o.ref.Seq)}
}
