package brokertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm"
)

// expectProblems compares the problems of the leader, of which each must contain its text.
func (p *player) expectProblems(texts ...string) {
	p.t.Helper()
	problems := p.leader().broker.Status().Problems
	if !slices.EqualFunc(problems, texts, strings.Contains) {
		p.t.Errorf("problems %q, want %q", problems, texts)
	}
}

// expectReading compares how many partitions are in a state, and the lag.
func (p *player) expectReading(state string, partitions int, lag int64) {
	p.t.Helper()
	status := p.leader().broker.Status()
	if status.Reading == nil || status.Reading.Partitions[state] != partitions || status.Lag == nil || *status.Lag != lag {
		p.t.Errorf("reading %+v, lag %v, want %d in state %s and a lag of %d", status.Reading, status.Lag, partitions, state, lag)
	}
}

// metric returns a counter of the node without labels.
func (n *node) metric(name string) float64 {
	families, err := n.metrics.Gather()
	n.cluster.must(err)
	for _, family := range families {
		if family.GetName() == name {
			return family.Metric[0].GetCounter().GetValue()
		}
	}
	return -1
}

func TestUnread_accessThatIsWithdrawnIsSeen(t *testing.T) {
	for name, keys := range map[string][]kmsg.Key{
		"read":     {kmsg.Fetch},
		"describe": {kmsg.Fetch, kmsg.Metadata, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch},
	} {
		t.Run(name, func(t *testing.T) {
			inOneTerm(t, func(c *Cluster, p *player) {
				p.expectReading(report.StateRead, 2, 0)
				p.expectProblems()
				p.produceHourly(4)
				fault := c.kafka.Fault(kfake.Fault{Keys: keys, Topic: "orders.delay", Err: kerr.TopicAuthorizationFailed, Count: -1})
				p.pass(20 * time.Second)
				p.expectProblems("source: not read: orders.delay/0,1 (forbidden: access denied: allow Read and Describe")
				if status := p.leader().broker.Status(); status.Reading.Partitions[report.StateForbidden] != 2 {
					t.Errorf("reading %+v", status.Reading)
				}
				fault.Remove()
				p.pass(20 * time.Second)
				p.expectProblems()
				p.expectReading(report.StateRead, 2, 0)
				p.expectTaken(24, 12, 12)
			})
		})
	}
}

// The positions of earlier terms name the topic.
func TestUnread_accessThatWasWithdrawnBeforeTheTermIsSeen(t *testing.T) {
	onOne(t, func(c *Cluster, p *player) {
		c.nodes[0].stop()
		fault := c.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders.delay", Err: kerr.TopicAuthorizationFailed, Count: -1})
		c.nodes[0].start()
		p.pass(20 * time.Second)
		p.expectProblems("source: not read: orders.delay/0,1 (forbidden: access denied: allow Read and Describe")
		p.expectReading(report.StateForbidden, 2, 0)
		fault.Remove()
		p.pass(20 * time.Second)
		p.expectProblems()
		c.nodes[0].stop()
		c.kafka.DeleteTopic("orders.delay") // on purpose: that is no problem
		c.nodes[0].start()
		p.pass(20 * time.Second)
		p.expectProblems()
		p.expectReading(report.StateRead, 0, 0)
	})
}

func TestUnread_lostRecordsAreSeen(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		leader := c.leader()
		behind := leader.raft().Store().State().Positions[0]
		behind.Next = 4
		set := raftfsm.SetPositions{Sets: []raftfsm.PositionSet{{Position: behind, From: 10}}}
		_, err := leader.raft().Propose(context.Background(), set).Wait(context.Background())
		c.must(err)
		c.kafka.DeleteRecords("orders.delay", 0, 8)
		p.produceHourly(2)
		p.pass(3 * time.Second)
		p.expectReading(report.StateDoubtful, 1, 7)
		p.expectProblems("source: not read: orders.delay/0 (doubtful: records seem to have been deleted before they were read")
		p.pass(10 * time.Second)
		p.expectReading(report.StateRead, 2, 0)
		p.expectProblems("lost: 4 records were deleted by Kafka")
		if lost := leader.metric("carillon_source_lost_records_total"); lost != 4 {
			t.Errorf("%v records are counted as lost, want 4", lost)
		}
	})
}

// A partition without leader keeps nobody else from being read.
func TestUnread_partitionThatIsNotToldOfIsSeen(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		p.produceHourly(2)
		c.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders.delay", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
		p.pass(5 * time.Second)
		p.expectReading(report.StateUnavailable, 1, 0)
		p.expectProblems("orders.delay/1 (unavailable: LEADER_NOT_AVAILABLE")
	})
}
