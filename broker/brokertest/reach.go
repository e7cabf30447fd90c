package brokertest

import (
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
)

// sampleReach looks whether a node leads on that Kafka does not answer, though nothing else is wrong and
// others could lead.
func (o *observer) sampleReach() {
	for _, n := range o.cluster.nodes {
		name := n.member.ID
		if !o.leadsApart(n) {
			delete(o.apart, name)
			continue
		}
		since, known := o.apart[name]
		if !known {
			o.apart[name] = time.Now()
			continue
		}
		if led := time.Since(since); led > o.mostApart(name) {
			o.found("progress", "%s has led for %v without an answer from Kafka, which the other nodes reach", name, led)
			o.apart[name] = time.Now()
		}
	}
}

// leadsApart reports whether the node leads, and that it does not reach Kafka is all that is wrong with
// the cluster, or was a moment ago.
func (o *observer) leadsApart(n *node) bool {
	nodes := o.cluster.nodes
	others := slices.ContainsFunc(nodes, func(other *node) bool { return !other.reachable() || !other.clock.isRight() })
	if len(nodes) == 1 || others || !n.broker.Leading() || !o.cluster.network.isApart(n.member.ID, o.cluster.kafkaHosts()) {
		return false
	}
	for about := range o.open {
		switch kind, _, _ := strings.Cut(about, " "); kind {
		case "slow-disk", "full-disk", "down", "frozen":
			return false
		}
	}
	return !slices.ContainsFunc(o.ledger.Faults, func(f ledger.Fault) bool {
		return f.Topic == "" && f.Kind != "cut" && f.Kind != "silence" && time.Since(f.Until) < time.Minute+20*o.cluster.config.Raft.Heartbeat
	})
}

// mostApart is how long a node may lead on so: it waits before it asks the others, and twice as long each
// time that it gives leadership away, since links may come and go.
func (o *observer) mostApart(name string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	patience := 10 * time.Second
	for _, t := range o.terms {
		if t.Node == name && !t.Over.IsZero() {
			patience = min(2*patience, 5*time.Minute)
		}
	}
	heartbeat := o.cluster.config.Raft.Heartbeat
	return 2*patience + 30*time.Second + 20*heartbeat + 4*min(3*heartbeat, time.Minute)
}
