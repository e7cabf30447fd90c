package brokertest

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Answers of before are those of a broker that was frozen, or has lost its controller: what was
// true when the step was carried out is told for a while, whatever has happened since.

// A lagging broker lacks the newest records of a topic, and stays as it is. When it leads, it tells so
// by its offsets, in the newest epoch. What is to be believed must have been found for some time by every
// answer, so it leads again only when no node believes it half already (player.elect).
type lagging map[int32]int64 // ends of its log

// staleMetadata is what all brokers tell of topics until then.
type staleMetadata struct {
	until time.Time
	told  *kmsg.MetadataResponse
}

// staleOffsets is what all brokers tell of partitions until then.
type staleOffsets struct {
	until time.Time
	ids   map[[16]byte]bool
	told  map[string]map[int32]staleOffset
}

type staleOffset struct {
	earliest, stable, end int64
	epoch                 int32
	epochs                []epochStart
}

// stale has the nodes told what is true now.
func (f *kafkaFaults) stale(what string, lasts time.Duration, user *kgo.Client) error {
	all := kmsg.NewPtrMetadataRequest() // no topics: all of them
	told, err := all.RequestWith(context.Background(), user)
	if err != nil {
		return err
	}
	until := time.Now().Add(lasts)
	if what == "metadata" {
		f.mu.Lock()
		f.metadata = &staleMetadata{until, told}
		f.mu.Unlock()
		f.kafka.ControlKey(int16(kmsg.Metadata), f.oldMetadata)
		return nil
	}
	offsets := &staleOffsets{until, make(map[[16]byte]bool), make(map[string]map[int32]staleOffset)}
	for _, topic := range told.Topics {
		offsets.ids[topic.TopicID] = true
		partitions := make(map[int32]staleOffset)
		infos := f.kafka.PartitionInfos(*topic.Topic)
		f.mu.Lock()
		for _, p := range infos {
			epochs := slices.Clone(f.epochs[place{topic.TopicID, p.Partition}])
			partitions[p.Partition] = staleOffset{p.LogStartOffset, p.LastStableOffset, p.HighWatermark, p.Epoch, epochs}
		}
		f.mu.Unlock()
		offsets.told[*topic.Topic] = partitions
	}
	f.mu.Lock()
	f.offsets = offsets
	f.mu.Unlock()
	f.kafka.ControlKey(int16(kmsg.ListOffsets), f.oldOffsets)
	f.kafka.ControlKey(int16(kmsg.OffsetForLeaderEpoch), f.oldEpochEnds)
	f.kafka.ControlKey(int16(kmsg.Fetch), f.oldIDs)
	return nil
}

// lag has the nodes told for a while what a leader of the topic tells that is so many records behind.
func (f *kafkaFaults) lag(topic string, behind int64, lasts time.Duration, user *kgo.Client) error {
	if err := f.stale("offsets", lasts, user); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ends := f.lagging[topic]
	if ends == nil {
		ends = make(lagging)
		f.lagging[topic] = ends
	}
	for number, told := range f.offsets.told[topic] {
		end, known := ends[number]
		if !known {
			end = told.stable - behind
			ends[number] = end
		}
		end = max(end, told.earliest, 0)
		told.stable, told.end = min(told.stable, end), min(told.end, end)
		f.offsets.told[topic][number] = told
	}
	return nil
}

// untrueUntil returns until when the nodes were told what is not true, or got errors; now, if they may get more.
func (f *kafkaFaults) untrueUntil() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.injected) > 0 || len(f.stalled) > 0 {
		return time.Now()
	}
	until := f.failed
	if f.metadata != nil && f.metadata.until.After(until) {
		until = f.metadata.until
	}
	if f.offsets != nil && f.offsets.until.After(until) {
		until = f.offsets.until
	}
	return until
}

// oldMetadata is a control function, for as long as what is old is told.
func (f *kafkaFaults) oldMetadata(request kmsg.Request) (kmsg.Response, error, bool) {
	f.mu.Lock()
	old := f.metadata
	f.mu.Unlock()
	if old == nil || !time.Now().Before(old.until) {
		f.kafka.DropControl()
		return nil, nil, false
	}
	f.kafka.KeepControl()
	if !f.ofNode(request) {
		return nil, nil, false
	}
	q := request.(*kmsg.MetadataRequest)
	answer := q.ResponseKind().(*kmsg.MetadataResponse)
	answer.Brokers, answer.ClusterID, answer.ControllerID = old.told.Brokers, old.told.ClusterID, old.told.ControllerID
	if q.Topics == nil {
		answer.Topics = old.told.Topics
		return answer, nil, true
	}
	for _, asked := range q.Topics {
		answer.Topics = append(answer.Topics, old.topic(asked))
	}
	return answer, nil, true
}

// absentUntil returns until when all brokers tell that there is no such topic, or a time that has passed.
func (f *kafkaFaults) absentUntil(topic string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.metadata == nil || slices.ContainsFunc(f.metadata.told.Topics, func(t kmsg.MetadataResponseTopic) bool { return *t.Topic == topic }) {
		return time.Time{}
	}
	return f.metadata.until
}

func (s *staleMetadata) topic(asked kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	for _, t := range s.told.Topics {
		if asked.Topic != nil && *t.Topic == *asked.Topic || asked.Topic == nil && t.TopicID == asked.TopicID {
			return t
		}
	}
	unknown := kmsg.NewMetadataResponseTopic()
	unknown.Topic, unknown.TopicID, unknown.ErrorCode = asked.Topic, asked.TopicID, kerr.UnknownTopicOrPartition.Code
	if asked.Topic == nil {
		unknown.ErrorCode = kerr.UnknownTopicID.Code
	}
	return unknown
}

func (f *kafkaFaults) staleOffsetsFor(request kmsg.Request) *staleOffsets {
	f.mu.Lock()
	old := f.offsets
	f.mu.Unlock()
	if old == nil || !time.Now().Before(old.until) {
		f.kafka.DropControl()
		return nil
	}
	f.kafka.KeepControl()
	if !f.ofNode(request) {
		return nil
	}
	return old
}

// of returns what is told of a partition to one who knows of that leader epoch.
func (s *staleOffsets) of(topic string, partition, epoch int32) (staleOffset, *kerr.Error) {
	p, known := s.told[topic][partition]
	switch {
	case !known:
		return p, kerr.UnknownTopicOrPartition
	case epoch > p.epoch:
		return p, kerr.UnknownLeaderEpoch
	case epoch >= 0 && epoch < p.epoch:
		return p, kerr.FencedLeaderEpoch
	}
	return p, nil
}

// oldOffsets is a control function.
func (f *kafkaFaults) oldOffsets(request kmsg.Request) (kmsg.Response, error, bool) {
	old := f.staleOffsetsFor(request)
	if old == nil {
		return nil, nil, false
	}
	q := request.(*kmsg.ListOffsetsRequest)
	answer := q.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, topic := range q.Topics {
		told := kmsg.NewListOffsetsResponseTopic()
		told.Topic = topic.Topic
		for _, asked := range topic.Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition = asked.Partition
			known, failure := old.of(topic.Topic, asked.Partition, asked.CurrentLeaderEpoch)
			switch {
			case failure != nil:
				p.ErrorCode = failure.Code
			case asked.Timestamp == -2:
				p.Offset, p.LeaderEpoch = known.earliest, known.epoch
			case q.IsolationLevel == 1:
				p.Offset, p.LeaderEpoch = known.stable, known.epoch
			default:
				p.Offset, p.LeaderEpoch = known.end, known.epoch
			}
			told.Partitions = append(told.Partitions, p)
		}
		answer.Topics = append(answer.Topics, told)
	}
	return answer, nil, true
}

// oldIDs is a control function. It answers the fetches outside of a session, by which a node asks whether a broker has a topic
// of that id: who tells offsets of before knows the topics of before.
func (f *kafkaFaults) oldIDs(request kmsg.Request) (kmsg.Response, error, bool) {
	old := f.staleOffsetsFor(request)
	q := request.(*kmsg.FetchRequest)
	if old == nil || q.SessionEpoch >= 0 {
		return nil, nil, false
	}
	answer := q.ResponseKind().(*kmsg.FetchResponse)
	for _, topic := range q.Topics {
		told := kmsg.NewFetchResponseTopic()
		told.TopicID = topic.TopicID
		for _, asked := range topic.Partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode = asked.Partition, kerr.OffsetOutOfRange.Code
			if !old.ids[topic.TopicID] {
				p.ErrorCode = kerr.UnknownTopicID.Code
			}
			told.Partitions = append(told.Partitions, p)
		}
		answer.Topics = append(answer.Topics, told)
	}
	return answer, nil, true
}

// oldEpochEnds is a control function.
func (f *kafkaFaults) oldEpochEnds(request kmsg.Request) (kmsg.Response, error, bool) {
	old := f.staleOffsetsFor(request)
	if old == nil {
		return nil, nil, false
	}
	return tellEpochEnds(request, old.epochEnd), nil, true
}

// epochEnd answers for one partition.
func (s *staleOffsets) epochEnd(topic string, asked kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	p.Partition = asked.Partition
	known, failure := s.of(topic, asked.Partition, asked.CurrentLeaderEpoch)
	if failure != nil {
		p.ErrorCode = failure.Code
		return p
	}
	p.LeaderEpoch, p.EndOffset = min(asked.LeaderEpoch, known.epoch), ended(known.epochs, asked.LeaderEpoch, known.end)
	return p
}
