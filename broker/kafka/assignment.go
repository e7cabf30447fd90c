package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker"
)

// A sourceTopic is a delay topic that is being read.
type sourceTopic struct {
	id         broker.TopicID
	partitions map[int32]*sourcePartition
}

// A sourcePartition is where reading of one partition stands.
type sourcePartition struct {
	round   uint64    // of the position that it began at
	next    int64     // From of the next batch
	epoch   int32     // leader epoch of the record before next, -1 unknown
	failure error     // what Kafka last said of it, nil once a record came
	retryAt time.Time // not zero: stalled until then
}

// stalled tells whether the client does not fetch the partition for now.
func (p *sourcePartition) stalled() bool { return !p.retryAt.IsZero() }

// apply makes the client fetch exactly the wanted partitions. Those it fetches already keep their place.
//
// franz-go never adopts the new id of a topic that was deleted and created again: such a topic has to be
// purged before it is added.
func (s *Source) apply(wanted []broker.SourcePosition) {
	next := make(map[string]*sourceTopic)
	add := make(map[string]map[int32]kgo.Offset)
	for _, w := range wanted {
		topic := next[w.Topic]
		if topic == nil {
			topic = &sourceTopic{id: w.TopicID, partitions: make(map[int32]*sourcePartition)}
			next[w.Topic] = topic
		}
		if old := s.find(w.Topic, w.TopicID, w.Partition); old != nil && old.round == w.Round {
			topic.partitions[w.Partition] = old
			continue
		}
		p := &sourcePartition{round: w.Round, next: w.Next, epoch: w.Epoch}
		topic.partitions[w.Partition] = p
		addOffset(add, w.Topic, w.Partition, p)
	}

	var purge []string
	remove := make(map[string][]int32)
	for name, old := range s.assigned {
		topic := next[name]
		if topic == nil || topic.id != old.id {
			purge = append(purge, name)
			continue
		}
		for partition, p := range old.partitions {
			if topic.partitions[partition] != p {
				remove[name] = append(remove[name], partition)
			}
		}
	}
	s.client.PurgeTopicsFromConsuming(purge...)
	s.client.RemoveConsumePartitions(remove)
	s.client.AddConsumePartitions(add)
	s.assigned = next
}

func addOffset(to map[string]map[int32]kgo.Offset, topic string, partition int32, p *sourcePartition) {
	if to[topic] == nil {
		to[topic] = make(map[int32]kgo.Offset)
	}
	to[topic][partition] = kgo.NewOffset().At(p.next).WithEpoch(p.epoch)
}

// find returns the partition, or nil when it is not assigned under this id. Kafka before 3.1 sends no id.
func (s *Source) find(topic string, id broker.TopicID, partition int32) *sourcePartition {
	t := s.assigned[topic]
	if t == nil || id != (broker.TopicID{}) && id != t.id {
		return nil
	}
	return t.partitions[partition]
}
