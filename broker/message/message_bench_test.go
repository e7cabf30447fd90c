package message

import (
	"testing"

	"github.com/carillonmq/carillon/storage"
)

// ordinary is a message as many are: 1 KB, with an id of its own and five headers.
func ordinary() Message {
	return Message{
		ID: "order-123456", Origin: Origin{"orders.delay", 3, 123456789}, PlannedFor: 1790000000000, Partition: -1,
		Key: []byte("customer-1"), Value: make([]byte, 1000),
		Headers: []Header{
			{"deliver-at", []byte("1790000000000")}, {"deliver-to", []byte("orders")}, {"deliver-id", []byte("order-123456")},
			{"traceparent", make([]byte, 55)}, {"content-type", []byte("application/json")},
		},
	}
}

// What a message costs from the log to Kafka's client.
func BenchmarkMessage(b *testing.B) {
	m := ordinary()
	entry := m.Entry(m.PlannedFor, "orders", storage.LevelThree)
	var headers []Header // reused, as a lane does
	deliver := func() { m.DeliveredKey(); headers = m.AppendDeliveredHeaders(headers[:0], [16]byte{}, 12345678) }
	for _, bench := range []struct {
		name string
		do   func()
	}{
		{"append", func() { m.AppendBody(nil, storage.LevelThree) }},
		{"decode", func() { _, _ = FromEntry(&entry) }},
		{"deliver", deliver},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bench.do()
			}
		})
	}
}

func TestMessage_allocatesLittle(t *testing.T) {
	m := ordinary()
	entry := m.Entry(m.PlannedFor, "orders", storage.LevelThree)
	var headers []Header // reused, as a lane does
	deliver := func() { m.DeliveredKey(); headers = m.AppendDeliveredHeaders(headers[:0], [16]byte{}, 12345678) }
	for name, test := range map[string]struct {
		most float64
		do   func()
	}{
		"append":  {1, func() { m.AppendBody(nil, storage.LevelThree) }},
		"decode":  {1, func() { _, _ = FromEntry(&entry) }},
		"deliver": {1, deliver},
	} {
		if got := testing.AllocsPerRun(100, test.do); got > test.most {
			t.Errorf("%s: %v allocations, %v at most", name, got, test.most)
		}
	}
	for _, m := range append(someMessages, m) {
		for _, level := range []storage.Level{storage.LevelOne, storage.LevelTwo, storage.LevelThree} {
			if size := m.bodySize(m.bodyVersion(level)); size != len(m.AppendBody(nil, level)) {
				t.Errorf("body of %d bytes, counted as %d: %+v", len(m.AppendBody(nil, level)), size, m)
			}
		}
	}
}
