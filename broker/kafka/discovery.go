package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// discoverTimeout bounds the wait for an answer of Kafka. What one broker is asked several times has that long from one answer to
// the next: a slow one answers what comes on one connection one after the other.
const discoverTimeout = 5 * time.Second

// Topics returns what Kafka says of the named topics, or of all that match; see [ingest.Source]. Both
// topics and partitions are sorted. Kafka is asked past what the client remembers.
func (s *Source) Topics(ctx context.Context, names []string) (topics []ingest.SourceTopic, looked int, err error) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	answer, err := s.questions.Ask(ctx, func() kmsg.Request {
		request := kmsg.NewPtrMetadataRequest() // no topics: all of them
		if names != nil {
			request.Topics = []kmsg.MetadataRequestTopic{}
		}
		for i := range names {
			request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &names[i]})
		}
		return request
	})
	if err != nil {
		return nil, 0, reach.WithRemedy("list topics", err)
	}
	response := answer.(*kmsg.MetadataResponse)
	for i := range response.Topics {
		told := &response.Topics[i]
		if told.Topic == nil || !s.matches(*told.Topic) {
			continue
		}
		topic := sourceTopicOf(told)
		if topic.Err == nil && topic.TopicID == (ingest.TopicID{}) {
			return nil, 0, fmt.Errorf("kafka.brokers %s: topic %q: %w", strings.Join(s.brokers, ","), topic.Topic, errNoTopicID)
		}
		topics = append(topics, topic)
	}
	slices.SortFunc(topics, func(a, b ingest.SourceTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return topics, len(response.Topics), nil
}

func sourceTopicOf(told *kmsg.MetadataResponseTopic) ingest.SourceTopic {
	topic := ingest.SourceTopic{Topic: *told.Topic, TopicID: told.TopicID, Err: sourceError(kerr.ErrorForCode(told.ErrorCode))}
	if topic.Err != nil {
		return topic
	}
	for _, p := range told.Partitions {
		leader := ingest.SourceLeader{Partition: p.Partition, Leader: p.Leader, Epoch: p.LeaderEpoch}
		if p.ErrorCode != 0 && !errors.Is(kerr.ErrorForCode(p.ErrorCode), kerr.ReplicaNotAvailable) {
			leader.Leader = -1
		}
		topic.Partitions = append(topic.Partitions, leader)
	}
	slices.SortFunc(topic.Partitions, func(a, b ingest.SourceLeader) int { return cmp.Compare(a.Partition, b.Partition) })
	return topic
}

// sourceError wraps what Kafka says of a delay topic in the sentinel of the broker that it stands for.
func sourceError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		return fmt.Errorf("%w: %w", ingest.ErrSourceMissing, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("%w: %w", ingest.ErrSourceForbidden, err)
	}
	return err
}

// The offsets that ListOffsets knows by a timestamp of their own.
const (
	askLatest   = -1
	askEarliest = -2
)

const (
	consumer = -1 // the replica id of one that is none

	readUncommitted = 0
	readCommitted   = 1
)

// Offsets asks each leader for what it leads, all at the same time; see [ingest.Source]. A Kafka broker that
// does not answer leaves only its own partitions unknown. When no broker answers at all, it is an error.
//
// Each question carries the leader epoch that the metadata told (KIP-320). A broker that was frozen while
// another one was elected has a lower epoch: it does not know ours and refuses. One with a higher epoch fences us.
//
// Kafka takes no topic id in these requests, so where one is given, a fetch that carries it comes first; see confirm.
func (s *Source) Offsets(ctx context.Context, questions []ingest.OffsetsQuestion) ([]ingest.OffsetsAnswer, error) {
	answers := make([]ingest.OffsetsAnswer, len(questions))
	byLeader := make(map[int32]*leaderQuestions)
	for i, q := range questions {
		answers[i] = ingest.OffsetsAnswer{Epoch: -1, ReadEnd: -1, Err: errNotTold}
		if q.Leader < 0 {
			answers[i].Err = kerr.LeaderNotAvailable
			continue
		}
		l := byLeader[q.Leader]
		if l == nil {
			l = &leaderQuestions{questions: questions, answers: answers, index: make(map[leaderPartition]int)}
			byLeader[q.Leader] = l
		}
		l.index[leaderPartition{q.Topic, q.Partition}] = i
	}
	var mu sync.Mutex
	var failures []error
	var wg sync.WaitGroup
	for leader, l := range byLeader {
		wg.Go(func() {
			if err := l.askInTime(ctx, s.asking.Broker(int(leader))); err != nil {
				s.asking.ForceMetadataRefresh() // it may have another address now
				l.fail(err)
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, err)
			}
		})
	}
	wg.Wait()
	if len(failures) > 0 && len(failures) == len(byLeader) {
		return nil, reach.WithRemedy("list offsets", failures[0])
	}
	return answers, nil
}

// A requester is one Kafka broker.
type requester interface {
	RetriableRequest(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// A heardRequester tells of each answer.
type heardRequester struct {
	requester
	heard func()
}

func (r heardRequester) RetriableRequest(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	response, err := r.requester.RetriableRequest(ctx, req)
	if err == nil {
		r.heard()
	}
	return response, err
}

type leaderPartition struct {
	topic     string
	partition int32
}

// leaderQuestions are the questions to one leader.
type leaderQuestions struct {
	questions []ingest.OffsetsQuestion
	answers   []ingest.OffsetsAnswer
	index     map[leaderPartition]int // of its questions and answers; no other leader touches them
}

func (l *leaderQuestions) fail(err error) {
	for _, i := range l.index {
		l.answers[i] = ingest.OffsetsAnswer{Epoch: -1, ReadEnd: -1, Err: err}
	}
}

// askInTime asks until the broker has been silent for discoverTimeout.
func (l *leaderQuestions) askInTime(ctx context.Context, kafka requester) error {
	asking, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	patience := time.AfterFunc(discoverTimeout, func() { giveUp(errNoAnswer) })
	defer patience.Stop()
	err := l.ask(asking, heardRequester{kafka, func() { patience.Reset(discoverTimeout) }})
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		return context.Cause(asking)
	}
	return err
}

// ask fills in the answers. Its error means that the broker did not give all. What comes after confirm is asked at the same time.
func (l *leaderQuestions) ask(ctx context.Context, kafka requester) error {
	if err := l.confirm(ctx, kafka); err != nil {
		return err
	}
	if len(l.index) == 0 {
		return nil
	}
	var earliest, latest, end, readEnd kmsg.Response
	group, ctx := errgroup.WithContext(ctx)
	put := func(request kmsg.Request, answer *kmsg.Response) {
		group.Go(func() (err error) {
			*answer, err = kafka.RetriableRequest(ctx, request)
			return err
		})
	}
	put(l.listOffsets(askEarliest, readCommitted), &earliest)
	put(l.listOffsets(askLatest, readCommitted), &latest)
	put(l.listOffsets(askLatest, readUncommitted), &end)
	epochs := l.offsetForLeaderEpoch()
	if len(epochs.Topics) > 0 {
		put(epochs, &readEnd)
	}
	if err := group.Wait(); err != nil {
		return err
	}
	firsts, lasts, ends := listedOffsets(earliest.(*kmsg.ListOffsetsResponse)), listedOffsets(latest.(*kmsg.ListOffsetsResponse)), listedOffsets(end.(*kmsg.ListOffsetsResponse))
	var readEnds toldOffsets
	if len(epochs.Topics) > 0 {
		readEnds = epochEnds(readEnd.(*kmsg.OffsetForLeaderEpochResponse))
	}
	for at, i := range l.index {
		l.answers[i] = answer(&l.questions[i], firsts.of(at), lasts.of(at), ends.of(at), readEnds.of(at))
	}
	return nil
}

// fetchesByID is the version from which on a fetch carries the topic's id and not its name (KIP-516, Kafka 3.1).
const fetchesByID = 13

// nowhere is an offset that no partition has: a fetch from there is refused once the topic's id and the leader's epoch were
// found to be right, and brings nothing.
const nowhere = -1

// fetchNothing returns a fetch of the partitions whose topic id is asked, outside of the session in which records are fetched.
func (l *leaderQuestions) fetchNothing() *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.ReplicaID, request.IsolationLevel = consumer, readCommitted
	topics := make(map[ingest.TopicID]int)
	for at, i := range l.index {
		q := &l.questions[i]
		if q.TopicID == (ingest.TopicID{}) {
			continue
		}
		topic, ok := topics[q.TopicID]
		if !ok {
			topic = len(request.Topics)
			topics[q.TopicID] = topic
			request.Topics = append(request.Topics, kmsg.FetchRequestTopic{Topic: at.topic, TopicID: q.TopicID})
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.PartitionMaxBytes = at.partition, q.Epoch, nowhere, 1
		request.Topics[topic].Partitions = append(request.Topics[topic].Partitions, p)
	}
	return request
}

// confirm leaves out of further questions what this broker does not have under the id that was asked. What it tells by the
// name from here on is of that topic, or of one that was created after it: then the id asked about is gone for good, and what is
// concluded about it does no harm.
//
// A broker checks the id before the epoch and the offset. Where access is refused, only what it knows of the topics was
// checked, and not yet the log that it has: it takes in the news of both in turn, within milliseconds.
func (l *leaderQuestions) confirm(ctx context.Context, kafka requester) error {
	request := l.fetchNothing()
	if len(request.Topics) == 0 {
		return nil
	}
	answer, err := kafka.RetriableRequest(ctx, request)
	if err != nil {
		return err
	}
	response := answer.(*kmsg.FetchResponse)
	if response.Version < fetchesByID {
		return l.confirmByName(ctx, kafka)
	}
	type partition struct {
		topic  ingest.TopicID
		number int32
	}
	errs := make(map[partition]error)
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			errs[partition{topic.TopicID, p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
		}
	}
	silence := cmp.Or(kerr.ErrorForCode(response.ErrorCode), errNotTold)
	if response.ThrottleMillis > 0 && len(response.Topics) == 0 {
		silence = errThrottled
	}
	l.keep(func(q *ingest.OffsetsQuestion) error {
		err, told := errs[partition{q.TopicID, q.Partition}]
		switch {
		case !told:
			return silence
		case errors.Is(err, kerr.OffsetOutOfRange), errors.Is(err, kerr.TopicAuthorizationFailed):
			return nil
		}
		return err
	})
	return nil
}

// confirmByName asks an older broker which topic it knows by the name. The log that it has may be that of the one before
// for a few milliseconds more.
func (l *leaderQuestions) confirmByName(ctx context.Context, kafka requester) error {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{}
	for _, topic := range l.fetchNothing().Topics {
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &topic.Topic})
	}
	answer, err := kafka.RetriableRequest(ctx, request)
	if err != nil {
		return err
	}
	ids := make(map[string]ingest.TopicID)
	for _, topic := range answer.(*kmsg.MetadataResponse).Topics {
		if topic.Topic != nil {
			ids[*topic.Topic] = topic.TopicID
		}
	}
	l.keep(func(q *ingest.OffsetsQuestion) error {
		if ids[q.Topic] != q.TopicID {
			return kerr.UnknownTopicID
		}
		return nil
	})
	return nil
}

// keep goes on to ask only what nothing speaks against, of what is asked by an id.
func (l *leaderQuestions) keep(objection func(q *ingest.OffsetsQuestion) error) {
	for at, i := range l.index {
		q := &l.questions[i]
		if q.TopicID == (ingest.TopicID{}) {
			continue
		}
		if err := objection(q); err != nil {
			l.answers[i].Err = sourceError(err)
			delete(l.index, at)
		}
	}
}

func (l *leaderQuestions) listOffsets(timestamp int64, isolation int8) *kmsg.ListOffsetsRequest {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID, request.IsolationLevel = consumer, isolation
	byTopic := make(map[string][]kmsg.ListOffsetsRequestTopicPartition)
	for at, i := range l.index {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = at.partition, l.questions[i].Epoch, timestamp
		byTopic[at.topic] = append(byTopic[at.topic], p)
	}
	for topic, partitions := range byTopic {
		request.Topics = append(request.Topics, kmsg.ListOffsetsRequestTopic{Topic: topic, Partitions: partitions})
	}
	return request
}

func (l *leaderQuestions) offsetForLeaderEpoch() *kmsg.OffsetForLeaderEpochRequest {
	request := kmsg.NewPtrOffsetForLeaderEpochRequest()
	request.ReplicaID = consumer
	byTopic := make(map[string][]kmsg.OffsetForLeaderEpochRequestTopicPartition)
	for at, i := range l.index {
		if q := l.questions[i]; q.ReadEpoch >= 0 {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = at.partition, q.Epoch, q.ReadEpoch
			byTopic[at.topic] = append(byTopic[at.topic], p)
		}
	}
	for topic, partitions := range byTopic {
		request.Topics = append(request.Topics, kmsg.OffsetForLeaderEpochRequestTopic{Topic: topic, Partitions: partitions})
	}
	return request
}

// A toldOffset is what a leader tells of one partition.
type toldOffset struct {
	offset int64
	epoch  int32
	err    error
}

// toldOffsets are those of one response.
type toldOffsets map[leaderPartition]toldOffset

func (ts toldOffsets) of(at leaderPartition) toldOffset {
	if t, ok := ts[at]; ok {
		return t
	}
	return toldOffset{err: errNotTold}
}

func listedOffsets(response *kmsg.ListOffsetsResponse) toldOffsets {
	told := make(toldOffsets)
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			told[leaderPartition{topic.Topic, p.Partition}] = toldOffset{p.Offset, p.LeaderEpoch, sourceError(kerr.ErrorForCode(p.ErrorCode))}
		}
	}
	return told
}

func epochEnds(response *kmsg.OffsetForLeaderEpochResponse) toldOffsets {
	told := make(toldOffsets)
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			told[leaderPartition{topic.Topic, p.Partition}] = toldOffset{p.EndOffset, p.LeaderEpoch, sourceError(kerr.ErrorForCode(p.ErrorCode))}
		}
	}
	return told
}

// answer returns what was told of one partition, all of it or an error.
func answer(q *ingest.OffsetsQuestion, earliest, latest, end, readEnd toldOffset) ingest.OffsetsAnswer {
	a := ingest.OffsetsAnswer{Epoch: -1, ReadEnd: -1, Err: cmp.Or(earliest.err, latest.err, end.err)}
	if a.Err == nil && q.ReadEpoch >= 0 {
		a.Err = readEnd.err
	}
	if a.Err != nil {
		return a
	}
	a.Earliest, a.Latest = earliest.offset, latest.offset
	a.End = max(end.offset, latest.offset) // they were asked at the same time
	// The epoch of the first offset is that of its record; the end has the leader's own.
	if a.Epoch = latest.epoch; a.Epoch < 0 {
		a.Epoch = q.Epoch // it has accepted that one
	}
	if q.ReadEpoch >= 0 {
		a.ReadEnd = readEnd.offset
	}
	return a
}
