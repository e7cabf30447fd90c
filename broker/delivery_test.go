package broker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

func TestHeaders_areThoseOfTheContract(t *testing.T) {
	for ours, theirs := range map[string]string{
		instructionPrefix:    client.InstructionPrefix,
		headerKey:            client.HeaderKey,
		headerKeyBase64:      client.HeaderKeyBase64,
		headerDeliveredID:    client.HeaderDeliveredID,
		headerDeliveredFor:   client.HeaderDeliveredFor,
		headerDeliveredFrom:  client.HeaderDeliveredFrom,
		headerDeliveredSeq:   client.HeaderDeliveredSeq,
		headerErrorCode:      client.HeaderErrorCode,
		headerErrorMessage:   client.HeaderErrorMessage,
		headerErrorTopic:     client.HeaderErrorTopic,
		headerErrorPartition: client.HeaderErrorPartition,
		headerErrorOffset:    client.HeaderErrorOffset,
		headerValueDropped:   client.HeaderErrorValueDropped,
	} {
		if ours != theirs {
			t.Errorf("the broker says %q, the contract %q", ours, theirs)
		}
	}
}

func TestDelivery_stripsInstructionsButADeadLetterKeepsThem(t *testing.T) {
	p := &publisher{cfg: publisherConfig{ClusterID: [16]byte{0xc1}}}
	o := &outgoing{ref: storage.Ref{Due: 1000, Seq: 7}, message: Message{
		Origin: Origin{"orders.delay", 2, 40}, PlannedFor: 1000, Partition: -1, Key: []byte("own"), Value: []byte{},
		Headers: []Header{{"a", nil}, {"deliver-after", []byte("1s")}, {"a", []byte{}}, {"deliver-key", []byte("other")}},
	}}
	want := Delivery{Topic: "orders", Partition: 1, Key: []byte("other"), Value: []byte{}, Headers: []Header{
		{"a", nil}, {"a", []byte{}},
		{"delivered-id", []byte("orders.delay/2/40")}, {"delivered-for", []byte("1000")}, {"delivered-from", []byte("orders.delay/2/40")},
		{"delivered-seq", []byte("c1000000000000000000000000000000/7")},
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

func TestTargetKey_isWhatAHeaderSays(t *testing.T) {
	for want, headers := range map[string][]Header{
		"own":          {{"a", []byte("b")}},
		"other":        {{"a", nil}, {"deliver-key", []byte("other")}},
		"\x00\x00\xff": {{"deliver-key-base64", []byte("AAD/")}},
		"":             {{"deliver-key-base64", []byte{}}},
		"base64:AAD/":  {{"deliver-key", []byte("base64:AAD/")}},
	} {
		m := Message{Key: []byte("own"), Headers: headers}
		if got := targetKey(&m); got == nil || string(got) != want { // an empty key is not null
			t.Errorf("headers %v: key %#v, want %q", headers, got, want)
		}
	}
}
