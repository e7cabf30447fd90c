package brokertest

import (
	"slices"
	"testing"
)

// Whom a bad link harms is what excuses ends of terms, copies and delays: as few as account for it.
func TestNetwork_tellsWhomBadLinksHarm(t *testing.T) {
	nodes, kafka := []string{"n1", "n2", "n3"}, []string{kafkaHost, kafkaHost + "2"}
	for name, test := range map[string]struct {
		leader string
		change func(n *network)
		want   []string
	}{
		"none is bad":                      {"n1", func(*network) {}, nil},
		"a follower apart from its leader": {"n1", func(n *network) { n.set(cut, "n3", "n1") }, []string{"n3"}},
		"a follower that hears nothing":    {"n1", func(n *network) { n.setOneway(silent, "n3", "n1", "n2", kafkaHost) }, []string{"n3"}},
		"two followers apart":              {"n1", func(n *network) { n.set(cut, "n3", "n2") }, []string{"n2"}},
		"the leader apart from both":       {"n1", func(n *network) { n.set(silent, "n1", nodes...) }, []string{"n1"}},
		"a follower apart from both":       {"n1", func(n *network) { n.set(silent, "n3", nodes...) }, []string{"n3"}},
		"all apart":                        {"n1", func(n *network) { n.set(cut, "n3", nodes...); n.set(cut, "n1", "n2") }, []string{"n1", "n2"}},
		"nobody leads":                     {"", func(n *network) { n.set(cut, "n3", nodes...) }, []string{"n3"}},
		"a follower apart from a broker":   {"n1", func(n *network) { n.set(cut, "n2", kafkaHost+"2") }, []string{"n2"}},
		"the leader apart from Kafka, and a follower from it": {"n2", func(n *network) {
			n.set(cut, "n2", kafkaHost)
			n.set(cut, "n2", "n1")
		}, []string{"n1", "n2"}},
		"a host that is down": {"n1", func(n *network) { n.setHost(cut, "n2") }, nil},
	} {
		n := newNetwork()
		test.change(n)
		got := n.hindered(nodes, kafka, test.leader)
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: harms %v, want %v", name, got, test.want)
		}
	}
}
