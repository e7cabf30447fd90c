package kafka

import (
	"context"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

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
}

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

// knows reports whether Kafka was asked for the topic's limit already.
func (l *limits) knows(topic string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.bytes[topic]
	return known
}

// ask reads max.message.bytes of the topics and returns those for which it is another than the one in use.
// A Kafka that does not let us read it has the default.
func (l *limits) ask(ctx context.Context, q *questions, topics []string) (changed []string) {
	if len(topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	response, err := q.ask(ctx, func() kmsg.Request {
		request := kmsg.NewPtrDescribeConfigsRequest()
		for _, topic := range topics {
			request.Resources = append(request.Resources, kmsg.DescribeConfigsRequestResource{
				ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic, ConfigNames: []string{batchLimit}})
		}
		return request
	})
	if err != nil {
		return nil
	}
	for _, resource := range response.(*kmsg.DescribeConfigsResponse).Resources {
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
