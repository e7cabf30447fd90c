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
// all count together.
type clientMetrics struct {
	*kprom.Metrics
	register sync.Once
}

func newClientMetrics(registry *prometheus.Registry, subsystem string) *clientMetrics {
	return &clientMetrics{Metrics: kprom.NewMetrics("carillon_kafka", kprom.Registry(registry), kprom.Subsystem(subsystem))}
}

// OnNewClient takes the place of kprom's.
func (m *clientMetrics) OnNewClient(client *kgo.Client) {
	m.register.Do(func() { m.Metrics.OnNewClient(client) })
}

// OnClientClosed takes the place of kprom's, which would take the metrics away.
func (m *clientMetrics) OnClientClosed(*kgo.Client) {}
