package brokertest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// onOne runs one node that has taken in 20 messages, due in an hour, from two partitions.
func onOne(t *testing.T, play func(c *Cluster, p *player)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=1"}))
		defer c.stop()
		p := &player{Cluster: c, start: time.Now()}
		c.must(p.createTopic("orders.delay", parseArguments([]string{"partitions=2"})))
		c.must(p.createTopic("orders", arguments{}))
		c.nodes[0].start()
		time.Sleep(10 * time.Second)
		p.produceHourly(20)
		time.Sleep(3 * time.Second)
		p.expectTaken(20, 10, 10)
		play(c, p)
	})
}

// inOneTerm is onOne, and what is played must not end the term.
func inOneTerm(t *testing.T, play func(c *Cluster, p *player)) {
	t.Helper()
	onOne(t, func(c *Cluster, p *player) {
		term := c.nodes[0].broker.Status().Term
		play(c, p)
		if c.leader().broker.Status().Term != term {
			t.Error("the term has ended")
		}
	})
}

// pass lets virtual time go by.
func (p *player) pass(d time.Duration) { time.Sleep(d) }

func (p *player) produceHourly(count int) {
	p.t.Helper()
	p.must(p.produce("orders.delay", parseArguments([]string{fmt.Sprintf("count=%d", count), "deliver-after=1h"})))
}

// expectTaken compares how many messages wait and where reading stands in each partition.
func (p *player) expectTaken(pending uint64, next ...int64) {
	p.t.Helper()
	state := p.leader().raft().Store().State()
	var got []int64
	for _, position := range state.Positions {
		got = append(got, position.Next)
	}
	if state.Pending != pending || !slices.Equal(got, next) {
		p.t.Errorf("%d messages wait, positions %v, want %d and %v", state.Pending, got, pending, next)
	}
}

// lieAbout has Kafka answer one kind of request otherwise for a while; an answer of nil is the truth.
func lieAbout[Q kmsg.Request](c *Cluster, span time.Duration, answer func(Q) kmsg.Response) {
	var q Q
	until := time.Now().Add(span)
	c.kafka.ControlKey(q.Key(), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.kafka.KeepControl()
		if time.Now().After(until) {
			return nil, nil, false
		}
		response := answer(request.(Q))
		return response, nil, response != nil
	})
}

const always = 365 * 24 * time.Hour

// aLook is less than lies between two looks, so that one of them is deceived.
const aLook = 900 * time.Millisecond

// offsetsOf answers ListOffsets with one offset for partition 0; other partitions are not told of.
func offsetsOf(q *kmsg.ListOffsetsRequest, timestamp, offset int64, epoch int32) kmsg.Response {
	if q.Topics[0].Partitions[0].Timestamp != timestamp {
		return nil
	}
	response := q.ResponseKind().(*kmsg.ListOffsetsResponse)
	p := kmsg.NewListOffsetsResponseTopicPartition()
	p.Offset, p.LeaderEpoch = offset, epoch
	response.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: q.Topics[0].Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}}}
	return response
}

// A broker that was frozen, or has lost its controller, tells an end from before.
func TestStale_endTakesNothingInTwice(t *testing.T) {
	for name, span := range map[string]time.Duration{"once": aLook, "for ever": always} {
		t.Run(name, func(t *testing.T) {
			inOneTerm(t, func(c *Cluster, p *player) {
				lieAbout(c, span, func(q *kmsg.ListOffsetsRequest) kmsg.Response { return offsetsOf(q, -1, 5, 0) })
				time.Sleep(20 * time.Second)
				p.produceHourly(2)
				time.Sleep(3 * time.Second)
				p.expectTaken(22, 11, 11)
			})
		})
	}
}

// The same broker may have deleted what the one that leads still has.
func TestStale_beginningSkipsNothing(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		lieAbout(c, 2*aLook, func(q *kmsg.ListOffsetsRequest) kmsg.Response { return offsetsOf(q, -2, 15, 0) })
		time.Sleep(10 * time.Second)
		p.produceHourly(20)
		time.Sleep(3 * time.Second)
		p.expectTaken(40, 20, 20)
	})
}

// epochEnd answers OffsetForLeaderEpoch: in partition 0, records of the epoch end at offset.
func epochEnd(q *kmsg.OffsetForLeaderEpochRequest, offset int64) kmsg.Response {
	if q.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	response := q.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	p.LeaderEpoch, p.EndOffset = q.Topics[0].Partitions[0].LeaderEpoch, offset
	response.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: q.Topics[0].Topic, Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{p}}}
	return response
}

// After an election a broker says once that what was read is not in its log.
func TestStale_epochEndTakesNothingInTwice(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		lieAbout(c, 2*aLook, func(q *kmsg.OffsetForLeaderEpochRequest) kmsg.Response { return epochEnd(q, 5) })
		c.must(c.kafka.MoveTopicPartition("orders.delay", 0, 0))
		time.Sleep(10 * time.Second)
		p.produceHourly(2)
		time.Sleep(3 * time.Second)
		p.expectTaken(22, 11, 11)
	})
}

// After an unclean election the records in place of those that were read are taken in, though
// the log has grown past the position when it is looked at. Meanwhile the other partition is read.
func TestReplacedRecords_areTakenInOnceKafkaIsSure(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		lieAbout(c, always, func(q *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
			if q.Topics[0].Partitions[0].LeaderEpoch > 0 {
				return nil // the end of the log
			}
			return epochEnd(q, 5)
		})
		c.must(c.kafka.MoveTopicPartition("orders.delay", 0, 0))
		p.produceHourly(2)
		time.Sleep(2 * time.Second)
		p.expectTaken(21, 10, 11)
		time.Sleep(8 * time.Second)
		p.expectTaken(27, 11, 11)
	})
}

// Records that retention deleted before they were read are passed over, by their partition alone.
func TestDeletedRecords_arePassedOverOnceKafkaIsSure(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		leader := c.leader()
		behind := leader.raft().Store().State().Positions[0]
		behind.Next = 4
		_, err := leader.raft().Propose(context.Background(), raftfsm.SetPositions{Sets: []raftfsm.PositionSet{{Position: behind, From: 10}}}).Wait(context.Background())
		c.must(err)
		c.kafka.DeleteRecords("orders.delay", 0, 8)
		p.produceHourly(2) // one does not fit, and its partition is read anew
		time.Sleep(2 * time.Second)
		p.expectTaken(21, 4, 11)
		time.Sleep(8 * time.Second)
		p.expectTaken(24, 11, 11)
	})
}

// A command has parts of both partitions: the one that does not fit harms no other.
func TestMovedPosition_concernsItsPartitionAlone(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		leader := c.leader()
		moved := leader.raft().Store().State().Positions[0]
		moved.Next = 12
		set := raftfsm.SetPositions{Sets: []raftfsm.PositionSet{{Position: moved, From: 10}}}
		_, err := leader.raft().Propose(context.Background(), set).Wait(context.Background())
		c.must(err)
		p.produceHourly(10)
		time.Sleep(3 * time.Second)
		p.expectTaken(28, 15, 15)
	})
}

// nothing is what a broker lists that has just started: itself.
func (c *Cluster) nothing(q *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	host, _, err := net.SplitHostPort(c.kafka.ListenAddrs()[0])
	c.must(err)
	response := q.ResponseKind().(*kmsg.MetadataResponse)
	rack := "krack" // as kfake has it: a broker that differs is another one
	response.Brokers = []kmsg.MetadataResponseBroker{{Host: host, Port: kafkaPort, Rack: &rack}}
	for _, topic := range q.Topics {
		response.Topics = append(response.Topics, kmsg.MetadataResponseTopic{Topic: topic.Topic, ErrorCode: 3})
	}
	return response
}

func TestStale_listOfNothingInterruptsNothing(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		begun := watchSessions(c)
		lieAbout(c, 2*aLook, func(q *kmsg.MetadataRequest) kmsg.Response { return c.nothing(q) })
		time.Sleep(10 * time.Second)
		p.produceHourly(20)
		time.Sleep(3 * time.Second)
		p.expectTaken(40, 20, 20)
		if n := begun(); n != 0 {
			t.Errorf("reading was interrupted %d times", n)
		}
	})
}

// watchSessions returns how many fetch sessions were begun since: a partition that is taken off ends one.
func watchSessions(c *Cluster) func() int {
	begun := 0
	c.kafka.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.kafka.KeepControl()
		if request.(*kmsg.FetchRequest).SessionEpoch == 0 {
			begun++
		}
		return nil, nil, false
	})
	return func() int {
		synctest.Wait()
		return begun
	}
}

// What is not listed once is no topic that was added after the cluster's birth.
func TestStale_listOfNothingIsNoSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=1"}))
		defer c.stop()
		p := &player{Cluster: c, start: time.Now()}
		c.must(p.createTopic("orders.delay", arguments{}))
		p.produceHourly(20)
		lieAbout(c, 3*time.Second, func(q *kmsg.MetadataRequest) kmsg.Response { return c.nothing(q) })
		c.nodes[0].start()
		time.Sleep(20 * time.Second)
		p.expectTaken(0, -1) // the route must say where it starts
	})
}

func TestStale_topicIDInterruptsNothing(t *testing.T) {
	inOneTerm(t, func(c *Cluster, p *player) {
		begun := watchSessions(c)
		lieAbout(c, 2*aLook, func(q *kmsg.MetadataRequest) kmsg.Response {
			if len(q.Topics) != 0 {
				return nil
			}
			response := c.nothing(q)
			topic := "orders.delay"
			told := kmsg.MetadataResponseTopic{Topic: &topic, TopicID: [16]byte{1}}
			for n := range int32(2) {
				told.Partitions = append(told.Partitions, kmsg.MetadataResponseTopicPartition{Partition: n, Replicas: []int32{0}, ISR: []int32{0}})
			}
			response.Topics = append(response.Topics, told)
			return response
		})
		time.Sleep(10 * time.Second)
		p.produceHourly(20)
		time.Sleep(3 * time.Second)
		p.expectTaken(40, 20, 20)
		if n := begun(); n != 0 {
			t.Errorf("reading was interrupted %d times", n)
		}
	})
}
