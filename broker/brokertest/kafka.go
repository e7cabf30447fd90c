package brokertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// kafkaFaults are what Kafka does wrong. They befall the nodes alone: the users of the script, and
// who looks at what came out, speak versions of the protocol that are one older, by which their
// requests are told apart.
type kafkaFaults struct {
	kafka    *kfake.Cluster
	newest   map[int16]int16 // version that a node speaks, by request
	ordinary time.Duration   // that an answer to a Produce takes while all is well; set before the nodes start
	older    *kversion.Versions

	mu        sync.Mutex
	answers   map[string]time.Duration // what it takes until records of a topic are answered; never: until it is well
	changed   chan struct{}            // closed and replaced when answers changes
	forbidden map[string]*kfake.FaultHandle
	injected  []*injected
	metadata  *staleMetadata
	offsets   *staleOffsets
	lagging   map[string]lagging      // by topic
	epochs    map[place][]epochStart  // of topics, where Kafka may lose records
	failed    time.Time               // when an injected error was last seen to be given
	givenUp   time.Time               // when nobody waits any more for an answer that does not come
	stalled   map[int32]chan struct{} // by broker: closed when it is revived
	closed    chan struct{}
}

// never is how long an answer takes that does not come.
const never = time.Duration(1<<63 - 1)

func newKafkaFaults(kafka *kfake.Cluster, gate *kafkatest.Gate, dial kgo.Opt) (*kafkaFaults, error) {
	f := &kafkaFaults{
		kafka: kafka, newest: make(map[int16]int16), older: kversion.Stable(),
		answers: make(map[string]time.Duration), changed: make(chan struct{}), closed: make(chan struct{}),
		forbidden: make(map[string]*kfake.FaultHandle), lagging: make(map[string]lagging),
		stalled: make(map[int32]chan struct{}), epochs: make(map[place][]epochStart),
	}
	asking, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", kafkaPort)), dial)
	if err != nil {
		return nil, err
	}
	defer asking.Close()
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(context.Background(), asking)
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for its versions: %w", err)
	}
	for _, v := range versions.ApiKeys {
		if spoken, ok := kversion.Stable().LookupMaxKeyVersion(v.ApiKey); ok {
			newest := min(spoken, v.MaxVersion)
			f.newest[v.ApiKey] = newest
			f.older.SetMaxKeyVersion(v.ApiKey, max(newest-1, v.MinVersion))
		}
	}
	gate.Hold(f.hold)
	return f, nil
}

// ofNode reports whether a node sent the request.
func (f *kafkaFaults) ofNode(request kmsg.Request) bool {
	return request.GetVersion() == f.newest[request.Key()]
}

// letGo lets go of everything that waits, which must end before Kafka does: hold asks Kafka for names.
func (f *kafkaFaults) letGo() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed: // Kafka has ended, and did not start again
	default:
		close(f.closed)
	}
}

// goOn has the Kafka that was started in place of the last one do wrong what lasts.
func (f *kafkaFaults) goOn(kafka *kfake.Cluster, gate *kafkatest.Gate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kafka, f.closed = kafka, make(chan struct{})
	f.injected, f.metadata, f.offsets = nil, nil, nil
	gate.Hold(f.hold)
	kafka.ControlKey(int16(kmsg.OffsetForLeaderEpoch), f.epochEnds)
	for topic := range f.forbidden {
		f.forbidden[topic] = f.refuse(topic)
	}
}

// mend ends all faults.
func (f *kafkaFaults) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.answers)
	close(f.changed)
	f.changed = make(chan struct{})
	for _, handle := range f.forbidden {
		handle.Remove()
	}
	clear(f.forbidden)
	for _, e := range f.injected {
		e.remove()
	}
	f.injected, f.metadata, f.offsets = nil, nil, nil
	for broker := range f.stalled {
		_ = f.reviveLocked(broker) // it is stalled
	}
}

// answer has Kafka take so long for each request with a record of the topic. When it is well
// again, records that wait are written, as those are that a slow broker had taken.
func (f *kafkaFaults) answer(topic string, takes time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[topic] = takes
}

// well has Kafka answer for the topic again, and let nodes write to it.
func (f *kafkaFaults) well(topic string) error {
	f.mu.Lock()
	_, ill := f.answers[topic]
	delete(f.answers, topic)
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	if err := f.allow(topic); err == nil || ill {
		return nil
	}
	return errNoEffect
}

// keepBack has requests with records of the topic wait while something is done.
func (f *kafkaFaults) keepBack(topic string, do func()) {
	f.mu.Lock()
	took, ill := f.answers[topic]
	f.answers[topic] = never
	f.mu.Unlock()
	time.Sleep(time.Millisecond) // what Kafka has begun to carry out is done then
	do()
	f.mu.Lock()
	defer f.mu.Unlock()
	if ill {
		f.answers[topic] = took
	} else {
		delete(f.answers, topic)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *kafkaFaults) forbid(topic string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forbidden[topic] != nil {
		return errNoEffect
	}
	f.forbidden[topic] = f.refuse(topic)
	return nil
}

func (f *kafkaFaults) refuse(topic string) *kfake.FaultHandle {
	return f.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1, When: f.ofNode})
}

func (f *kafkaFaults) allow(topic string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forbidden[topic] == nil {
		return errNoEffect
	}
	f.forbidden[topic].Remove()
	delete(f.forbidden, topic)
	return nil
}

// hold returns when Kafka may take up the request.
func (f *kafkaFaults) hold(request kafkatest.Request) {
	isSign := request.Key() == int16(kmsg.ApiVersions) && request.GetVersion() == 0 // of life, which reach.Hearing asks for
	if !isSign && (!f.ofNode(request) || slices.Contains([]int16{int16(kmsg.ApiVersions), int16(kmsg.InitProducerID)}, request.Key())) {
		return
	}
	came := time.Now()
	f.mu.Lock()
	revived, late := f.stalled[request.Broker], len(f.answers) > 0 || f.ordinary > 0
	f.mu.Unlock()
	if request.Key() != int16(kmsg.Produce) {
		f.await(revived)
		return
	}
	if revived != nil || late {
		topics := f.topicsOf(request.Request)
		f.await(revived)
		f.delay(topics, came)
	}
}

// longest returns what is left of what the slowest of the topics takes.
func (f *kafkaFaults) longest(topics []string, waited time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	longest := f.ordinary
	for _, topic := range topics {
		longest = max(longest, f.answers[topic])
	}
	return longest - min(longest, waited)
}

// delay returns when the topics have waited for as long as they take.
func (f *kafkaFaults) delay(topics []string, came time.Time) {
	for {
		f.mu.Lock()
		changed, closed := f.changed, f.closed
		f.mu.Unlock()
		left := f.longest(topics, time.Since(came))
		if left == 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-closed:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// topicsOf returns the topics that a request is about, of those requests that are about topics.
func (f *kafkaFaults) topicsOf(request kmsg.Request) []string {
	var topics []string
	add := func(name string, id [16]byte) {
		if name == "" {
			if info := f.kafka.TopicIDInfo(id); info != nil {
				name = info.Topic
			}
		}
		topics = append(topics, name)
	}
	switch q := request.(type) {
	case *kmsg.ProduceRequest:
		for _, t := range q.Topics {
			add(t.Topic, t.TopicID)
		}
	case *kmsg.FetchRequest:
		for _, t := range q.Topics {
			add(t.Topic, t.TopicID)
		}
	case *kmsg.MetadataRequest:
		for _, t := range q.Topics {
			var name string
			if t.Topic != nil {
				name = *t.Topic
			}
			add(name, t.TopicID)
		}
	case *kmsg.ListOffsetsRequest:
		for _, t := range q.Topics {
			topics = append(topics, t.Topic)
		}
	case *kmsg.OffsetForLeaderEpochRequest:
		for _, t := range q.Topics {
			topics = append(topics, t.Topic)
		}
	}
	return topics
}

// A stalled Kafka broker takes what nodes ask and answers nothing until it is revived, and then all of it, as one whose
// disk hangs or that is frozen. Only a fetch that waits for records by then has its answer when that is due. The broker
// greets clients that connect, and gives producer ids, all the same: a Kafka client asks for these under a lock, for which the
// senders to other brokers wait, and that stops virtual time.

// stall has the broker answer no node any more.
func (f *kafkaFaults) stall(broker int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stalled[broker] != nil {
		return errNoEffect
	}
	f.stalled[broker] = make(chan struct{})
	return nil
}

// revive has the broker answer again.
func (f *kafkaFaults) revive(broker int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reviveLocked(broker)
}

func (f *kafkaFaults) reviveLocked(broker int32) error {
	if f.stalled[broker] == nil {
		return errNoEffect
	}
	close(f.stalled[broker])
	delete(f.stalled, broker)
	f.failed = time.Now()
	return nil
}

// await returns when the broker is revived; nil: at once.
func (f *kafkaFaults) await(revived <-chan struct{}) {
	if revived == nil {
		return
	}
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	select {
	case <-revived:
	case <-closed:
	}
}

// stalledBrokers returns those that are.
func (f *kafkaFaults) stalledBrokers() (brokers []int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for broker := range f.stalled {
		brokers = append(brokers, broker)
	}
	return brokers
}

// brokerNumber returns the number that Kafka gives the broker of the name: kafka or kafka1, kafka2, ...
func brokerNumber(name string) int32 {
	n, err := strconv.Atoi(strings.TrimPrefix(name, kafkaHost))
	if err != nil {
		return 0
	}
	return int32(n - 1)
}
