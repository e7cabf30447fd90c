package brokertest

import (
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
)

// lookAtLinks notes whom bad links hinder, since that time, if it was not noted before. Who that is may change with the
// leader.
func (o *observer) lookAtLinks(verb string, since time.Time) {
	kind := "cut" // whatever it is that is seen now
	if slices.Contains([]string{"silence", "isolate"}, verb) {
		kind = verb
	}
	hindered := o.cluster.network.hindered(o.cluster.nodeHosts(), o.cluster.kafkaHosts(), o.leader())
	for _, n := range o.cluster.nodes {
		about := "links " + n.member.ID
		if slices.Contains(hindered, n.member.ID) {
			o.began(about, ledger.Fault{Kind: kind, Node: n.member.ID, From: since})
		} else {
			o.ended(about)
		}
	}
}

// leader returns who began to lead last, and leads; "": nobody.
func (o *observer) leader() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range slices.Backward(o.terms) {
		if t.Over.IsZero() {
			return t.Node
		}
	}
	return ""
}

// mostUnused is how long a node need not use a connection to a Kafka broker, and so does not know that it gets no answer.
const mostUnused = 5 * time.Minute

// sampleReach looks whether a node leads on that Kafka, or some of its brokers, do not answer, or whose disk is full, though
// nothing else is wrong and others could lead.
func (o *observer) sampleReach() {
	hosts := o.cluster.kafkaHosts()
	for _, n := range o.cluster.nodes {
		apart := o.leadsApart(n, hosts)
		o.sampleLeader(n, "without an answer from Kafka, which the other nodes reach", apart == len(hosts), 0)
		o.sampleLeader(n, "without an answer from some Kafka brokers, which the other nodes reach", apart > 0, mostUnused)
		o.sampleLeader(n, "with a full disk, while those of the others have room", o.leadsCramped(n), 0)
	}
}

// sampleLeader notes since when a node leads so, and tells when that is for too long after it has noticed.
func (o *observer) sampleLeader(n *node, how string, is bool, noticed time.Duration) {
	name := n.member.ID
	about := name + " " + how
	if !is {
		delete(o.apart, about)
		return
	}
	since, known := o.apart[about]
	if !known {
		o.apart[about] = time.Now()
		return
	}
	if led := time.Since(since); led > noticed+o.mostApart(name) {
		o.found("progress", "%s has led for %v %s", name, led, how)
		o.apart[about] = time.Now()
	}
}

// leadsApart returns how many Kafka brokers the node does not reach if it leads, and that is all that is wrong with
// the cluster, or was a moment ago; else 0.
func (o *observer) leadsApart(n *node, hosts []string) int {
	if !o.couldBeRelieved(n, "cut", "silence") {
		return 0
	}
	return o.cluster.network.apart(n.member.ID, hosts)
}

// leadsCramped reports whether the node leads, and that its disk is full is all that is wrong with the
// cluster, or was a moment ago.
func (o *observer) leadsCramped(n *node) bool {
	return n.files.isFull() && o.couldBeRelieved(n, "full-disk") && o.cluster.network.whole()
}

// couldBeRelieved reports whether the node leads and the others are well, and were but for faults of those kinds.
func (o *observer) couldBeRelieved(n *node, kinds ...string) bool {
	nodes := o.cluster.nodes
	others := slices.ContainsFunc(nodes, func(other *node) bool { return !other.reachable() || !other.clock.isRight() })
	if len(nodes) == 1 || others || !n.broker.Leading() {
		return false
	}
	for about := range o.open {
		switch kind, whose, _ := strings.Cut(about, " "); kind {
		case "slow-disk", "full-disk", "down", "frozen":
			if !slices.Contains(kinds, kind) || whose != n.member.ID {
				return false
			}
		}
	}
	return !slices.ContainsFunc(o.ledger.Faults, func(f ledger.Fault) bool {
		return f.Topic == "" && !slices.Contains(kinds, f.Kind) && time.Since(f.Until) < time.Minute+20*o.cluster.config.Raft.Heartbeat
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
