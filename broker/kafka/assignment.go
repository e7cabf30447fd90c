package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/ingest"
)

// A sourceTopic is a delay topic that is being read.
type sourceTopic struct {
	id         ingest.TopicID
	partitions map[int32]*sourcePartition
}

// A sourcePartition is where reading of one partition stands.
type sourcePartition struct {
	round    uint64    // of the position that it began at
	next     int64     // From of the next batch
	epoch    int32     // leader epoch of the record before next, -1 unknown
	failures int       // since a record came
	failure  error     // what Kafka last said of it, nil once a record came
	retryAt  time.Time // not zero: stalled until then
	fresh    bool      // was added, and nothing has come of it since
}

// stalled tells whether the client does not fetch the partition for now.
func (p *sourcePartition) stalled() bool { return !p.retryAt.IsZero() }

// apply makes the client fetch exactly the wanted partitions. Those it fetches already keep their place.
//
// franz-go never adopts the new id of a topic that was deleted and created again: such a topic has to be
// purged before it is added.
func (s *Source) apply(wanted []ingest.SourcePosition) {
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
		p := &sourcePartition{round: w.Round, next: w.Next, epoch: w.Epoch, fresh: true}
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
	s.assigned = next
	s.add(add)
}

// joinWithin is how long the client has to learn of a partition that is added: metadata and the end of its epoch.
const joinWithin = 250 * time.Millisecond

// add has the client fetch partitions. A fetch that waits for records takes none in until it ends, so the running
// ones are ended in a moment (join).
func (s *Source) add(offsets map[string]map[int32]kgo.Offset) {
	s.client.AddConsumePartitions(offsets)
	if len(offsets) > 0 && s.joinAt.IsZero() {
		s.joinAt = s.now().Add(joinWithin)
	}
}

// join ends the running fetches when its time has come and a partition that was added has given nothing yet. It costs
// a connection to each Kafka broker, and lets a fetch wait for long when there is nothing to fetch.
func (s *Source) join() {
	if s.joinAt.IsZero() || s.joinAt.After(s.now()) {
		return
	}
	s.joinAt = time.Time{}
	waits := false
	for _, topic := range s.assigned {
		for _, p := range topic.partitions {
			waits = waits || p.fresh && !p.stalled()
			p.fresh = false
		}
	}
	if waits {
		// Fetches begin anew when a partition is removed, also one that is not there.
		s.client.RemoveConsumePartitions(map[string][]int32{"": {0}})
	}
}

func addOffset(to map[string]map[int32]kgo.Offset, topic string, partition int32, p *sourcePartition) {
	if to[topic] == nil {
		to[topic] = make(map[int32]kgo.Offset)
	}
	to[topic][partition] = kgo.NewOffset().At(p.next).WithEpoch(p.epoch)
}

// find returns the partition, or nil when it is not assigned under this id. Kafka before 3.1 sends no id.
func (s *Source) find(topic string, id ingest.TopicID, partition int32) *sourcePartition {
	t := s.assigned[topic]
	if t == nil || id != (ingest.TopicID{}) && id != t.id {
		return nil
	}
	return t.partitions[partition]
}
