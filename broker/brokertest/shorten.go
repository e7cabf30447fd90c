package brokertest

import (
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/brokertest/kfiles"
	"github.com/carillonmq/carillon/storage"
)

// A leader may be elected that lacks the newest records of a partition, when none that has them is left, or when a loss of
// power has taken what was not synced. They are gone then: others come to have their offsets, in another epoch. So Kafka
// ends, what it has written is cut short, and it starts again.

// shorten has a delay topic lose so many of the newest records of each partition, and all that were written in one batch
// with them. Connections to Kafka break.
func (p *player) shorten(topic string, a arguments) error {
	by, err := strconv.ParseInt(a.value("by", ""), 10, 64)
	if err != nil {
		return err
	}
	isOpen := func(i *kfake.PartitionInfo) bool { return i.LastStableOffset < i.HighWatermark }
	info, partitions := p.kafka.TopicInfo(topic), p.kafka.PartitionInfos(topic)
	if info == nil || slices.ContainsFunc(partitions, isOpen) { // a transaction would stay open
		return errNoEffect
	}
	p.observer.sampleErrors() // those that wait end with the Kafka that was to give them
	for _, host := range p.kafkaHosts() {
		p.network.setHost(cut, host)
	}
	p.faults.letGo()
	synctest.Wait()
	p.kafka.Close()
	taken := p.takenIn(info.TopicID)
	ends, err := kfiles.Shorten(p.kafkaDir, topic, by)
	if err != nil {
		return err
	}
	for partition, end := range ends {
		p.lose(place{info.TopicID, partition}, end, taken[partition])
	}
	p.startKafka()
	p.faults.goOn(p.kafka, p.gate)
	p.faults.beganEpochs(topic)
	for _, host := range p.kafkaHosts() {
		p.network.setHost(open, host)
	}
	return nil
}

// lose notes that a partition has lost all from an offset on, and how far it was taken in.
func (p *player) lose(at place, from, taken int64) {
	for i := range p.produced {
		r := &p.produced[i]
		if (place{r.topicID, r.partition}) == at && !r.lost && r.offset >= from {
			r.lost, r.gone = true, r.gone || r.offset >= taken
		}
	}
}

// A leader of Kafka notes where its epoch begins before it writes anything, and tells it who asks where another one ended.
// kfake knows of an epoch only by what was written in it. That must not be: who has read what is lost would hear nothing of
// it until something is written in its place, and read on behind that.

// An epochStart is the offset with which the epoch of a leader begins.
type epochStart struct {
	epoch int32
	from  int64
}

// beganEpochs notes where the present epochs of a topic's partitions begin.
func (f *kafkaFaults) beganEpochs(topic string) {
	info := f.kafka.TopicInfo(topic)
	partitions := f.kafka.PartitionInfos(topic)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range partitions {
		at := place{info.TopicID, p.Partition}
		f.epochs[at] = append(f.epochs[at], epochStart{p.Epoch, p.HighWatermark})
	}
}

// read returns up to where the partition's records were read, of those that it still has in the epoch in which they were
// written.
func (f *kafkaFaults) read(p storage.Position) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ended(f.epochs[place{p.TopicID, p.Partition}], p.Epoch, p.Next)
}

// ended returns where an epoch of a partition ended; end, if that comes first or no other one has begun.
func ended(epochs []epochStart, epoch int32, end int64) int64 {
	for _, s := range epochs {
		if s.epoch > epoch {
			end = min(end, s.from)
		}
	}
	return end
}

// epochEnds is the control function that answers for all.
func (f *kafkaFaults) epochEnds(request kmsg.Request) (kmsg.Response, error, bool) {
	f.kafka.KeepControl()
	f.mu.Lock()
	isOld := f.offsets != nil && time.Now().Before(f.offsets.until) && f.ofNode(request)
	f.mu.Unlock()
	if isOld {
		return nil, nil, false
	}
	return tellEpochEnds(request, f.epochEnd), nil, true
}

// tellEpochEnds answers for each partition that is asked about.
func tellEpochEnds(request kmsg.Request, tell func(topic string, asked kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition) kmsg.Response {
	q := request.(*kmsg.OffsetForLeaderEpochRequest)
	answer := q.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, topic := range q.Topics {
		told := kmsg.NewOffsetForLeaderEpochResponseTopic()
		told.Topic = topic.Topic
		for _, asked := range topic.Partitions {
			told.Partitions = append(told.Partitions, tell(topic.Topic, asked))
		}
		answer.Topics = append(answer.Topics, told)
	}
	return answer
}

// epochEnd answers for one partition.
func (f *kafkaFaults) epochEnd(topic string, asked kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	p.Partition, p.LeaderEpoch, p.EndOffset = asked.Partition, -1, -1
	info, is := f.kafka.TopicInfo(topic), f.kafka.PartitionInfo(topic, asked.Partition)
	if failure := f.refusal(info, is, asked.CurrentLeaderEpoch); failure != nil {
		p.ErrorCode = failure.Code
		return p
	}
	if asked.LeaderEpoch <= is.Epoch {
		f.mu.Lock()
		defer f.mu.Unlock()
		p.LeaderEpoch, p.EndOffset = asked.LeaderEpoch, ended(f.epochs[place{info.TopicID, asked.Partition}], asked.LeaderEpoch, is.HighWatermark)
	}
	return p
}

// refusal returns why the broker that has the request at hand does not answer one who knows of that epoch.
func (f *kafkaFaults) refusal(topic *kfake.TopicInfo, p *kfake.PartitionInfo, epoch int32) *kerr.Error {
	switch {
	case topic == nil || p == nil:
		return kerr.UnknownTopicOrPartition
	case p.Leader != f.kafka.CurrentNode():
		return kerr.NotLeaderForPartition
	case epoch >= 0 && epoch < p.Epoch:
		return kerr.FencedLeaderEpoch
	case epoch > p.Epoch:
		return kerr.UnknownLeaderEpoch
	}
	return nil
}
