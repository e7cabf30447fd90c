package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A send is one record on its way.
type send struct {
	record kgo.Record
	done   func(error)
}

// A target is what the Sink knows of one target topic.
type target struct {
	topic       string
	connection  *connection        // nil: the next send joins one
	outstanding map[*send]struct{} // whoever takes a send out of it calls its done

	isolated bool // the connection is, or will be, its own
	healthy  bool // the connection has delivered something of it
	stale    bool // the client has a wrong idea of the topic: leave it when nothing is outstanding

	refusedSize bool // a record was too large: the limit is asked again with the partitions, it may be raised
	failed      bool // something of it failed since its partitions were asked for: so is the limit with them
}

// target returns the topic's entry. The caller holds mu.
func (s *Sink) target(topic string) *target {
	t := s.targets[topic]
	if t == nil {
		t = &target{topic: topic, outstanding: make(map[*send]struct{})}
		s.targets[topic] = t
	}
	return t
}

// learn draws conclusions from the outcome of a send.
func (t *target) learn(err error) {
	if err == nil {
		t.healthy = true
		return
	}
	t.failed = true
	t.refusedSize = t.refusedSize || errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
	// franz-go never adopts the new id of a topic that was deleted and created again, looks seldom for
	// partitions that were added, and asks for what it cannot load every metadataMinAge, for ever.
	t.stale = t.stale || errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) ||
		errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.InvalidTopicException) || isNoPartition(err)
}
