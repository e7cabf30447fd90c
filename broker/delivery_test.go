package broker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
)

func TestDelivery_stripsInstructionsButADeadLetterKeepsThem(t *testing.T) {
	p := &publisher{cfg: publisherConfig{ClusterID: [16]byte{0xc1}}}
	o := &outgoing{ref: storage.Ref{Due: 1000, Seq: 7}, message: message.Message{
		Origin: message.Origin{Topic: "orders.delay", Partition: 2, Offset: 40}, PlannedFor: 1000, Partition: -1, Key: []byte("own"), Value: []byte{},
		Headers: []message.Header{{Key: "a", Value: nil}, {Key: "deliver-after", Value: []byte("1s")}, {Key: "a", Value: []byte{}}, {Key: "deliver-key", Value: []byte("other")}},
	}}
	want := Delivery{Topic: "orders", Partition: 1, Key: []byte("other"), Value: []byte{}, Headers: []message.Header{
		{Key: "a", Value: nil}, {Key: "a", Value: []byte{}},
		{Key: "delivered-id", Value: []byte("orders.delay/2/40")}, {Key: "delivered-for", Value: []byte("1000")}, {Key: "delivered-from", Value: []byte("orders.delay/2/40")},
		{Key: "delivered-seq", Value: []byte("c1000000000000000000000000000000/7")},
	}}
	if diff := cmp.Diff(want, p.delivery(o, "orders", 1)); diff != "" {
		t.Errorf("delivery (-want +got):\n%s", diff)
	}
	o.deadLetter = true
	want = Delivery{Topic: "dead", Partition: 1, Key: []byte("own"), Value: []byte{}, Headers: o.message.Headers}
	if diff := cmp.Diff(want, p.delivery(o, "dead", 1)); diff != "" {
		t.Errorf("dead letter (-want +got):\n%s", diff)
	}
}
