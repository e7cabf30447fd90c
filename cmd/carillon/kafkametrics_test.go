package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Each term has a client of its own, and writes to targets that nobody has heard of before.
func TestClientMetrics_countAllClientsAndNoTopics(t *testing.T) {
	registry := prometheus.NewRegistry()
	hook := newClientMetrics(registry, "sink")
	const targets, bytes = 5, 7
	for term := range 2 {
		c, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.WithHooks(hook))
		if err != nil {
			t.Fatal(err)
		}
		for i := range targets {
			hook.OnProduceBatchWritten(kgo.BrokerMetadata{NodeID: 1}, fmt.Sprintf("target-%d-%d", term, i), 0, kgo.ProduceBatchMetrics{UncompressedBytes: bytes})
		}
		c.Close()
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	written := 0.0
	for _, family := range families {
		if strings.Contains(family.GetName(), "buffered") {
			t.Errorf("%s tells of the first client alone", family.GetName())
		}
		if family.GetName() != "carillon_kafka_sink_produce_bytes_total" {
			continue
		}
		if n := len(family.GetMetric()); n != 1 {
			t.Errorf("%s has %d series of one broker", family.GetName(), n)
		}
		for _, series := range family.GetMetric() {
			written += series.GetCounter().GetValue()
		}
	}
	if written != 2*targets*bytes {
		t.Errorf("%v bytes are counted, want %d", written, 2*targets*bytes)
	}
}
