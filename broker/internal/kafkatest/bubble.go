// Package kafkatest gives tests a Kafka in virtual time, requests that wait, brokers that freeze, and certificates.
package kafkatest

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kfake"
)

// A Bubble is a Kafka in virtual time, on a network in memory.
type Bubble struct {
	*kfake.Cluster
	Network *kfake.VirtualNetwork
	Gate    *Gate // between the network and Kafka
}

// InBubble runs test with a Kafka of one broker, unless options say otherwise. A goroutine that is left behind fails it.
func InBubble(t *testing.T, test func(t *testing.T, kafka Bubble), options ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := new(kfake.VirtualNetwork)
		gate := NewGate(network.Listen)
		cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(gate.Listen)}, options...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		test(t, Bubble{cluster, network, gate})
	})
}
