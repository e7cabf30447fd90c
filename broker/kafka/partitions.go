package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// questionTimeout bounds the wait for what Kafka says of targets.
const questionTimeout = 2 * time.Second

// Partitions asks Kafka how many partitions the topics have; see [deliver.Sink].
func (s *Sink) Partitions(ctx context.Context, topics []string) []deliver.PartitionCount {
	counts := make([]deliver.PartitionCount, len(topics))
	err := s.countPartitions(ctx, topics, counts)
	if err != nil {
		for i, topic := range topics {
			counts[i] = deliver.PartitionCount{Err: classify(topic, err)}
		}
		return counts
	}
	changed := s.limits.ask(ctx, s.questions, s.ofUnknownLimit(topics, counts))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, topic := range changed {
		if t := s.targets[topic]; t != nil {
			t.stale = true
			s.forgetStale(t)
		}
	}
	return counts
}

// ofUnknownLimit returns those of the topics that exist and whose limit is not known, or is in doubt
// since something of them failed. While Kafka does not say what limits there are, it is asked seldom, but always
// after a record was refused for its size, which may cost it its delivery.
func (s *Sink) ofUnknownLimit(topics []string, counts []deliver.PartitionCount) (unknown []string) {
	silent := s.limits.areSilent(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, topic := range topics {
		if counts[i].Err != nil {
			continue
		}
		t := s.targets[topic]
		inDoubt := t != nil && (t.refusedSize || t.failed)
		mustKnow := t != nil && t.refusedSize && t.failed
		if (inDoubt || !s.limits.knows(topic)) && (mustKnow || !silent) {
			unknown = append(unknown, topic)
			if t != nil {
				t.failed = false
			}
		}
	}
	return unknown
}

// countPartitions fills counts, one for each topic, unless there is no answer at all.
func (s *Sink) countPartitions(ctx context.Context, topics []string, counts []deliver.PartitionCount) error {
	answers, err := s.describe(ctx, topics)
	if err != nil {
		return err
	}
	for i, topic := range topics {
		answer := answers[topic]
		if answer == nil {
			return fmt.Errorf("metadata of %d topics lacks %q: %w", len(answers), topic, deliver.ErrTargetUnavailable)
		}
		switch err := kerr.ErrorForCode(answer.ErrorCode); {
		case err != nil:
			counts[i] = deliver.PartitionCount{Err: classify(topic, err)}
		case len(answer.Partitions) == 0:
			counts[i] = deliver.PartitionCount{Err: fmt.Errorf("topic %q has no partitions: %w", topic, deliver.ErrTargetUnavailable)}
		default:
			counts[i] = deliver.PartitionCount{Count: int32(len(answer.Partitions))}
			s.hear(topic, answer.Partitions)
		}
	}
	return nil
}

// describe asks Kafka for the topics, and returns what it says of each by name.
func (s *Sink) describe(ctx context.Context, topics []string) (map[string]*kmsg.MetadataResponseTopic, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	answer, err := s.questions.Ask(ctx, func() kmsg.Request {
		request := kmsg.NewPtrMetadataRequest()
		for _, topic := range topics {
			request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &topic})
		}
		return request
	})
	if err != nil {
		return nil, err
	}
	response := answer.(*kmsg.MetadataResponse)
	answers := make(map[string]*kmsg.MetadataResponseTopic, len(response.Topics))
	for i := range response.Topics {
		if name := response.Topics[i].Topic; name != nil {
			answers[*name] = &response.Topics[i]
		}
	}
	return answers, nil
}

// hear keeps which Kafka broker leads which partition of a topic.
func (s *Sink) hear(topic string, partitions []kmsg.MetadataResponseTopicPartition) {
	leaders := make([]int32, len(partitions))
	for _, p := range partitions {
		if int(p.Partition) < len(leaders) {
			leaders[p.Partition] = p.Leader
		}
	}
	s.mu.Lock()
	s.target(topic, time.Now()).heard = leaders
	s.mu.Unlock()
}

// CreateTopic creates the topic, with Kafka's defaults for partitions and replication, unless it exists; see
// [deliver.Sink]. It blocks for a round trip or two, or until ctx ends.
func (s *Sink) CreateTopic(ctx context.Context, topic string, batchBytes int) error {
	admin, limit := kadm.NewClient(s.asking), strconv.Itoa(batchBytes)
	_, err := admin.CreateTopic(ctx, -1, -1, map[string]*string{batchLimit: &limit}, topic)
	if errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation) {
		refusal := err
		if _, err = admin.CreateTopic(ctx, -1, -1, nil, topic); err == nil {
			s.log.Warn("Kafka refuses a limit this high, the topic has the default: large records may not fit",
				"topic", topic, batchLimit, batchBytes, "error", refusal)
		}
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	return nil
}

// batchLimit is the setting of a topic that bounds a batch, and so a record, in bytes.
const batchLimit = "max.message.bytes"

const (
	// defaultBatchBytes is Kafka's own default of max.message.bytes; franz-go's is a little lower, and
	// what a delay topic took could then not be delivered.
	defaultBatchBytes = 1_048_588
	smallestBatch     = 512
	largestBatch      = 64 << 20
)

// limits are the sizes that the target topics take, as far as Kafka tells us.
type limits struct {
	mu    sync.Mutex
	bytes map[string]int32

	pause time.Duration // since Kafka has not answered the last question, zero: it has
	again time.Time     // when that is over
}

// What waits for the partitions of its target waits for its limit as well. So where Kafka answers all but the question for limits,
// that is put ever more rarely. To put it beside the others would be no better: Kafka answers one request of a connection after the
// other.
const (
	leastSilence = 10 * time.Second
	mostSilence  = time.Hour
)

func newLimits() *limits { return &limits{bytes: make(map[string]int32)} }

// batchBytes returns the largest batch that the topic takes. A client of franz-go asks once, when it meets
// the topic.
func (l *limits) batchBytes(topic string) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok := l.bytes[topic]; ok {
		return n
	}
	return defaultBatchBytes
}

// areSilent reports whether Kafka has not answered when it was asked last, not long ago.
func (l *limits) areSilent(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.again)
}

// noteAnswer notes whether Kafka has answered.
func (l *limits) noteAnswer(answered bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pause = min(max(2*l.pause, leastSilence), mostSilence); answered {
		l.pause = 0
	}
	l.again = now.Add(l.pause)
}

// knows reports whether Kafka was asked for the topic's limit already.
func (l *limits) knows(topic string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.bytes[topic]
	return known
}

// forget lets go of the limits of topics that are not known any more, when there are more limits than so many.
func (l *limits) forget(most int, isKnown func(topic string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.bytes) > most {
		maps.DeleteFunc(l.bytes, func(topic string, _ int32) bool { return !isKnown(topic) })
	}
}

// ask reads max.message.bytes of the topics and returns those for which it is another than the one in use.
// A Kafka that does not let us read it has the default; after any other error the limit is what it was, or is not known.
func (l *limits) ask(ctx context.Context, q *reach.Questions, topics []string) (changed []string) {
	if len(topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	response, err := q.Ask(ctx, func() kmsg.Request {
		request := kmsg.NewPtrDescribeConfigsRequest()
		for _, topic := range topics {
			request.Resources = append(request.Resources, kmsg.DescribeConfigsRequestResource{
				ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic, ConfigNames: []string{batchLimit}})
		}
		return request
	})
	l.noteAnswer(err == nil, time.Now())
	if err != nil {
		return nil
	}
	for _, resource := range response.(*kmsg.DescribeConfigsResponse).Resources {
		switch err := kerr.ErrorForCode(resource.ErrorCode); {
		case err == nil, errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		default:
			continue
		}
		limit := int32(defaultBatchBytes)
		for _, c := range resource.Configs {
			if c.Name != batchLimit || c.Value == nil {
				continue
			}
			if n, err := strconv.ParseInt(*c.Value, 10, 32); err == nil {
				limit = int32(min(max(n, smallestBatch), largestBatch))
			}
		}
		if limit != l.batchBytes(resource.ResourceName) {
			changed = append(changed, resource.ResourceName)
		}
		l.mu.Lock()
		l.bytes[resource.ResourceName] = limit
		l.mu.Unlock()
	}
	return changed
}
