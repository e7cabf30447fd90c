package brokertest

import (
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
)

// An injected error answers so many requests of the nodes, whenever they come. It is a fault when it
// does, and not before: some wait for hours.
type injected struct {
	key    kmsg.Key
	topic  string // "": any
	answer *kerr.Error
	left   int                // of those without an answer
	handle *kfake.FaultHandle // nil: no answer at all
	count  int
	seen   int  // hits that were noted
	asked  bool // it is the only answer, since it was given once and until it is used up
}

// hits returns how many requests were answered with it. The caller holds mu.
func (e *injected) hits() int {
	if e.handle == nil {
		return e.count - e.left
	}
	return e.handle.Hits()
}

func (e *injected) remove() {
	if e.handle != nil {
		e.handle.Remove()
	}
}

// isStray reports whether it says that a topic is missing which may be there.
func (e *injected) isStray() bool {
	return e.key == kmsg.Metadata && e.answer == kerr.UnknownTopicOrPartition
}

// fail answers requests of the nodes with an error, or not at all.
func (f *kafkaFaults) fail(request string, a arguments) error {
	key, _ := requestKey(request)
	count, err := strconv.Atoi(a.value("count", "1"))
	if err != nil {
		return err
	}
	e := &injected{key: key, topic: a.value("topic", ""), count: count, left: count}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.injected = append(f.injected, e)
	if a.value("err", "") == noAnswer {
		f.kafka.ControlKey(key.Int16(), f.silence)
		return nil
	}
	e.answer, _ = kafkaError(a.value("err", ""))
	// Some requests have their error at the top, some at each topic, and kfake goes by that.
	e.handle = f.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: e.topic, Err: e.answer, Count: count, When: f.ofNode})
	return nil
}

// silence is the control function of requests that are not answered. Control functions cost each request
// that they look at, so that there are none but for faults that may still befall one.
func (f *kafkaFaults) silence(request kmsg.Request) (kmsg.Response, error, bool) {
	isMute := func(e *injected) bool { return e.handle == nil && e.left > 0 && e.key.Int16() == request.Key() }
	f.mu.Lock()
	waiting := slices.ContainsFunc(f.injected, isMute)
	f.mu.Unlock()
	if !waiting {
		f.kafka.DropControl()
		return nil, nil, false
	}
	f.kafka.KeepControl()
	if !f.ofNode(request) {
		return nil, nil, false
	}
	topics := f.topicsOf(request)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.injected {
		if isMute(e) && (e.topic == "" || slices.Contains(topics, e.topic)) {
			e.left--
			f.givenUp = time.Now().Add(unanswered)
			return nil, nil, true
		}
	}
	return nil, nil, false
}

// unanswered is how long a node waits for an answer that does not come.
const unanswered = 10 * time.Second

// allGivenUp returns when nobody waits any more for an answer that does not come, of those that were asked for.
func (f *kafkaFaults) allGivenUp() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.givenUp
}

// given returns the faults that errors were since it was asked last, and forgets those that are used up.
func (f *kafkaFaults) given(since time.Time) (faults []ledger.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, e := range f.injected {
		hits := e.hits()
		fault := ledger.Fault{Kind: "error", Topic: e.topic, From: since, Until: now}
		if e.key == kmsg.Fetch {
			fault.Kind = "unread"
		}
		if hits > e.seen {
			f.failed = now
			if e.handle == nil {
				fault.Until = f.givenUp
			}
			faults = append(faults, fault)
			if e.answer == kerr.MessageTooLarge {
				fault.Kind = "refuse"
				faults = append(faults, fault)
			}
		}
		if e.isStray() && (hits > e.seen || e.asked) {
			e.asked = true
			fault.Kind = "stray"
			faults = append(faults, fault)
		}
		e.seen = hits
	}
	f.injected = slices.DeleteFunc(f.injected, func(e *injected) bool { return e.seen >= e.count })
	return faults
}

// isAstray reports whether Kafka says now that topics are missing which are there.
func (f *kafkaFaults) isAstray() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.injected, (*injected).isStray)
}
