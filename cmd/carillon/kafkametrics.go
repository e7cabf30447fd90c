package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// clientMetrics shows what Kafka's clients do as carillon_kafka_source_* and _sink_*.
// kprom registers its metrics with every client that it hooks into, and a second
// registration panics; ours come one after the other, also at the same time, and
// all count together. They count by broker, and not by topic: targets come with the
// messages, and each that was ever written to would be a series for ever.
type clientMetrics struct {
	*kprom.Metrics
	register sync.Once
}

func newClientMetrics(registry prometheus.Registerer, subsystem string) *clientMetrics {
	return &clientMetrics{Metrics: kprom.NewMetrics("carillon_kafka", kprom.Registerer(withoutGauges{registry}), kprom.Subsystem(subsystem),
		kprom.FetchAndProduceDetail(kprom.ByNode, kprom.UncompressedBytes))}
}

// OnNewClient takes the place of kprom's.
func (m *clientMetrics) OnNewClient(client *kgo.Client) {
	m.register.Do(func() { m.Metrics.OnNewClient(client) })
}

// OnClientClosed takes the place of kprom's, which would take the metrics away.
func (m *clientMetrics) OnClientClosed(*kgo.Client) {}

// withoutGauges registers no gauge of kprom's: each tells what the first client holds at the
// moment, which is closed when the first term ends.
type withoutGauges struct{ prometheus.Registerer }

// MustRegister registers all but gauges.
func (r withoutGauges) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if _, isGauge := c.(prometheus.GaugeFunc); !isGauge {
			r.Registerer.MustRegister(c)
		}
	}
}
