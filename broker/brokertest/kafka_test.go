package brokertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
)

// begin has a node and topics, and a message of each second for a minute.
const begin = `
at 0s create orders.delay partitions=2
at 0s create orders
at 0s create bills
at 0s start all
`

// What a script says of itself shows that a verb does something: each would fail without it.
func TestVerbs_ofTopics(t *testing.T) {
	for name, text := range map[string]string{
		"create count": `
at 9s create t% count=20
at 10s produce orders.delay count=40 deliver-to=t% targets=20 deliver-after=1s
at 13s expect delivered t0 count=2
at 13s expect delivered t19 count=2`,
		"bytes": `
at 10s produce orders.delay bytes=200000 deliver-after=1s
at 13s expect delivered orders`,
		"abort": `
at 10s produce orders.delay count=10 abort deliver-after=1s value=a%
at 10s produce orders.delay count=10 deliver-after=1s value=b%
at 15s expect delivered orders count=10`,
		"transactional": `
on acked after=9s expect delivered orders count=1
at 9s produce orders.delay deliver-after=4500ms
at 10s produce orders.delay count=5 every=1s transactional deliver-after=1s
at 20s expect delivered orders count=6`,
		"transaction open": `
on taken nth=2 after=9s expect pending count=12
at 10s produce orders.delay count=2 deliver-after=1h
at 11s produce orders.delay count=10 every=100ms transactional deliver-after=1h`,
		"recreate": `
at 10s produce orders.delay count=10 deliver-after=5s value=a%
at 12s recreate orders.delay
at 13s produce orders.delay count=10 deliver-after=2s value=b%
at 20s expect delivered orders count=20`,
		"recreate a target": `
at 10s produce orders.delay count=40 every=100ms deliver-after=2s
at 14s recreate orders
at 30s expect delivered orders count=40`,
		"delete a target": `
at 10s produce orders.delay count=40 every=100ms deliver-after=2s
at 14s delete orders
at 20s create orders
at 2m expect delivered orders count=40`,
		"trim": `
at 10s cut n1 from=kafka
at 11s produce orders.delay count=10 deliver-after=1s value=a%
at 12s trim orders.delay
at 13s heal
at 30s produce orders.delay count=10 deliver-after=1s value=b%
at 40s expect delivered orders count=10`,
		"limit": `
at 10s limit orders bytes=1000
at 11s produce orders.delay count=2 bytes=2000 deliver-after=1s
at 11s produce orders.delay count=3 deliver-after=1s
at 20s expect delivered orders count=3
at 20s expect delivered carillon.dead-letter count=2
at 21s well orders
at 22s produce orders.delay count=2 bytes=2000 deliver-after=1s
at 30s expect delivered orders count=5`,
		"limit of dead letters": `
at 10s limit carillon.dead-letter bytes=400
at 11s produce orders.delay count=3 bytes=2000
at 11s produce orders.delay count=3 value=small-%
at 20s expect delivered carillon.dead-letter count=3
at 21s well carillon.dead-letter
at 30s expect delivered carillon.dead-letter count=6`,
		"delete target": `
at 10s delete bills
at 11s produce orders.delay deliver-to=bills deliver-after=1s
at 20s expect pending count=1`,
		"skipped": `
at 8s create orders
at 8s allow orders
at 8s well orders
at 8s delete nothing
at 8s trim nothing
at 8s partitions orders.delay 1
at 8s produce nothing.delay
at 8s heal
at 8s thaw all
at 8s start all
at 8s clock n1 well
at 10s produce orders.delay deliver-after=1s`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := played(t, "cluster nodes=1\n"+begin+text, nil)
			if name == "skipped" && (report.Counters["skipped"] != 11 || len(report.Faults) != 3) {
				t.Errorf("%d steps were skipped, and carried out were %v", report.Counters["skipped"], report.Faults)
			}
		})
	}
}

// Several brokers share the partitions. Which one leads each is drawn.
func TestVerbs_ofSeveralBrokers(t *testing.T) {
	played(t, `
cluster nodes=1 brokers=3
at 0s create orders.delay partitions=6
at 0s create orders partitions=30
at 0s start all
at 10s produce orders.delay count=60 key=k% deliver-after=5s
at 20s expect delivered orders count=60
`, func(p *player) {
		led := make(map[int32]bool)
		for _, partition := range p.kafka.PartitionInfos("orders") {
			led[partition.Leader] = true
		}
		if len(led) < 2 {
			t.Errorf("30 partitions are led by %d brokers", len(led))
		}
	})
}

// Every request can be answered with an error, and the nodes get it.
func TestError_isWhatNodesGet(t *testing.T) {
	for _, line := range []string{
		"error Produce err=NOT_LEADER_FOR_PARTITION count=3 topic=orders",
		"error Produce err=REQUEST_TIMED_OUT count=2",
		"error Fetch err=UNKNOWN_SERVER_ERROR count=2 topic=orders.delay",
		"error Metadata err=LEADER_NOT_AVAILABLE count=2",
		"error ListOffsets err=NOT_LEADER_FOR_PARTITION",
		"error InitProducerID err=COORDINATOR_LOAD_IN_PROGRESS",
		"error CreateTopics err=TOPIC_AUTHORIZATION_FAILED",
		"error ApiVersions err=UNSUPPORTED_VERSION",
	} {
		t.Run(strings.Fields(line)[1]+" "+strings.Fields(line)[2], func(t *testing.T) {
			t.Parallel()
			played(t, "cluster nodes=1\n"+begin+"at 5s "+line+`
at 6s stop all
at 7s start all
at 20s produce orders.delay count=10 every=1s deliver-after=1s
`, func(p *player) {
				p.observer.sampleErrors()
				if !slices.ContainsFunc(p.observer.ledger.Faults, func(f ledger.Fault) bool { return f.Kind == "error" || f.Kind == "unread" }) {
					t.Errorf("no request was answered with an error")
				}
			})
		})
	}
}

// Users of the script do not get the errors that are for the nodes.
func TestError_isNotForUsers(t *testing.T) {
	played(t, "cluster nodes=1\n"+begin+`
at 10s error Produce err=TOPIC_AUTHORIZATION_FAILED count=1000
at 10s error Metadata err=TOPIC_AUTHORIZATION_FAILED count=1000
at 10s error InitProducerID err=CLUSTER_AUTHORIZATION_FAILED count=1000
at 10s error ListOffsets err=TOPIC_AUTHORIZATION_FAILED count=1000
at 11s produce orders.delay count=10 deliver-after=1s
at 20s expect delivered orders count=0
`, nil)
}

// asNode returns a client that Kafka takes for one of the nodes.
func (p *player) asNode() *kadm.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(p.network.dial(userHost)), kgo.MetadataMinAge(10*time.Millisecond))
	p.must(err)
	return kadm.NewClient(client)
}

// What was true when the step was carried out is told to the nodes for a while, and to nobody else.
func TestStale_isToldForAWhile(t *testing.T) {
	played(t, "cluster nodes=1\n"+begin+`
at 10s produce orders.delay count=10 deliver-after=1s
at 12s stale metadata lasts=10s
at 12s stale offsets lasts=20s
at 13s create late
at 13s produce orders.delay count=10 deliver-after=1s
`, func(p *player) {
		told := func() (topics int, offset int64) {
			admin := p.asNode()
			defer admin.Close()
			list, err := admin.ListTopics(context.Background())
			p.must(err)
			for _, partition := range []int32{0, 1} {
				ends, err := admin.ListEndOffsets(context.Background(), "orders.delay")
				p.must(err)
				end, _ := ends.Lookup("orders.delay", partition)
				offset += end.Offset
			}
			return len(list.Names()), offset
		}
		var got []int64
		for range 3 {
			topics, offset := told()
			got = append(got, int64(topics), offset)
			p.pause(9500 * time.Millisecond)
		}
		if want := []int64{4, 10, 5, 10, 5, 20}; !slices.Equal(got, want) {
			t.Errorf("topics and records are told to be %v, want %v", got, want)
		}
		user, admin := p.user()
		defer user.Close()
		if list, err := admin.ListTopics(context.Background()); err != nil || !list.Has("late") {
			t.Errorf("a user is told of %v, error %v", list.Names(), err)
		}
	})
}

// A leader that lacks the newest records tells its own end for a while, each time the same, and does
// not lead again before nodes were told the truth.
func TestElect_oneThatIsBehind(t *testing.T) {
	played(t, "cluster nodes=1\n"+begin+`
at 10s produce orders.delay count=10 deliver-after=1s
at 12s elect orders.delay behind=2 lasts=2s
`, func(p *player) {
		ends := func() (sum int64) {
			admin := p.asNode()
			defer admin.Close()
			ends, err := admin.ListEndOffsets(context.Background(), "orders.delay")
			p.must(err)
			ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
			return sum
		}
		elect := func() {
			p.must(p.elect("orders.delay", arguments{values: map[string]string{"behind": "2", "lasts": "2s"}}))
		}
		told := []int64{ends()}
		p.pause(5 * time.Second)
		told = append(told, ends())
		p.must(p.produce("orders.delay", parseArguments([]string{"count=10", "deliver-after=1s"})))
		elect()
		told = append(told, ends())
		elect() // before nodes know better
		p.pause(2100 * time.Millisecond)
		told = append(told, ends())
		if want := []int64{6, 10, 6, 20}; !slices.Equal(told, want) {
			t.Errorf("ends that are told: %v, want %v", told, want)
		}
		if epoch := p.kafka.PartitionInfos("orders.delay")[0].Epoch; epoch != 3 {
			t.Errorf("epoch %d after three elections", epoch)
		}
	})
}
