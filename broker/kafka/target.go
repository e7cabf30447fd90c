package kafka

import (
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/deliver"
)

const (
	// leastSentence is how long a target counts as slow after one late answer: long enough for a few
	// answers of its own, short enough for those that only flew with a slow one. It doubles with each
	// further one, so that a target that is slow now and then stays among the slow for minutes.
	leastSentence = 10 * time.Second
	mostSentence  = 5 * time.Minute
)

// A send is one record on its way.
type send struct {
	record  kgo.Record
	headers [4]kgo.RecordHeader // room for the record's: what is added on delivery, and no others, in most
	series  *deliver.Series     // nil: none
	done    func(deliver.Receipt, error)
	settle  func(*kgo.Record, error) // is told Kafka's outcome
	backlog *backlog
	member  *member // nil: it waits

	isOut      bool  // it is among those that are outstanding
	prev, next *send // there
}

// failed returns why a record of its series has failed, nil: none has. The caller holds mu.
func (s *send) failed() error {
	if s.series == nil {
		return nil
	}
	return s.series.Failed
}

// fail notes that the send has failed, which ends its series. The caller holds mu.
func (s *send) fail(err error) {
	if s.series != nil {
		s.series.Failed = err
	}
}

// sends are those of a target that are outstanding, a list in no order that matters.
type sends struct {
	first *send
	len   int
}

func (s *sends) add(issued *send) {
	issued.isOut, issued.next = true, s.first
	if s.first != nil {
		s.first.prev = issued
	}
	s.first = issued
	s.len++
}

// remove takes the send out, and reports whether it was there.
func (s *sends) remove(issued *send) bool {
	if !issued.isOut {
		return false
	}
	if issued.prev != nil {
		issued.prev.next = issued.next
	} else {
		s.first = issued.next
	}
	if issued.next != nil {
		issued.next.prev = issued.prev
	}
	issued.isOut, issued.prev, issued.next = false, nil, nil
	s.len--
	return true
}

// takeAll takes all out.
func (s *sends) takeAll() []*send {
	all := make([]*send, 0, s.len)
	for s.first != nil {
		all = append(all, s.first)
		s.remove(s.first)
	}
	return all
}

// A target is what the Sink knows of one target topic.
type target struct {
	topic       string
	quick       *pool              // its own among the quick pools
	outstanding sends              // whoever takes a send out of it calls its done
	backlogs    map[int32]*backlog // by Kafka broker
	leaders     []int32            // Kafka broker by partition; fixed while something is outstanding
	heard       []int32            // the leaders that Kafka named last

	used      time.Time // when it was sent to, or its partitions were asked for
	standing  standing
	slowUntil time.Time     // it counts as slow until then
	sentence  time.Duration // what the last late answer cost
	slowness  time.Duration // how long its late answers took, the longest; one in the past counts ever less

	stale bool // the clients have a wrong idea of the topic: they forget it when nothing is outstanding

	refusedSize bool // a record was too large: the limit is asked again with the partitions, it may be raised
	failed      bool // something of it failed since its partitions were asked for: so is the limit with them
}

// A standing is what is known of why a target was given up. One answer makes it heard. What is in one request with a silent
// target is given up with it, and Kafka may write all of it in the end. So a suspect flies alone: if it is innocent it is
// written once more then, and not with each further try of the silent one. When a Kafka broker answers nobody all its targets
// are given up, and go out together once it answers one of them.
type standing int

const (
	heard   standing = iota
	stuck            // given up, and for all that is known its Kafka broker is the reason
	suspect          // given up while its broker answered others, or once more from among the stuck: it is silent, or flew beside one that is
)

// A backlog is the records of a target for one Kafka broker. What waits keeps its order. It takes another line
// only when all that flew has an outcome, so nothing overtakes.
type backlog struct {
	target  *target
	broker  int32
	waiting []*send
	flying  int     // sends without outcome that do not wait
	flight  *flight // the last one, nil: nothing flies
	pool    *pool   // in whose queue it is
}

// target returns the topic's entry. The caller holds mu.
func (s *Sink) target(topic string, now time.Time) *target {
	t := s.targets[topic]
	if t == nil {
		t = &target{topic: topic, quick: s.quickPool(topic), backlogs: make(map[int32]*backlog)}
		s.targets[topic] = t
	}
	t.used = now
	return t
}

// backlog returns where the partition's records wait.
func (t *target) backlog(partition int32) *backlog {
	if t.outstanding.len == 0 {
		t.leaders = t.heard // another broker is another backlog, which could overtake
	}
	leader := noBroker
	if int(partition) < len(t.leaders) {
		leader = t.leaders[partition]
	}
	b := t.backlogs[leader]
	if b == nil {
		b = &backlog{target: t, broker: leader}
		t.backlogs[leader] = b
	}
	return b
}

// leave takes what waits for a partition out of the backlog. The caller holds mu.
func (b *backlog) leave(partition int32) (behind []*send) {
	b.waiting = slices.DeleteFunc(b.waiting, func(issued *send) bool {
		if issued.record.Partition != partition {
			return false
		}
		behind = append(behind, issued)
		return true
	})
	if len(b.waiting) == 0 {
		b.pool = nil // its queue drops it
	}
	return behind
}

// isForgettable reports whether the entry says nothing that a new one would not.
func (t *target) isForgettable(now time.Time) bool {
	for _, b := range t.backlogs {
		if b.flight != nil || len(b.waiting) > 0 {
			return false
		}
	}
	idle := now.Sub(t.used)
	if t.outstanding.len > 0 || idle <= spareIdle {
		return false
	}
	return idle > forgetAfter || t.standing == heard && !t.stale && !t.refusedSize && now.Sub(t.slowUntil) > t.sentence
}

// strike notes an answer of the target that is late.
func (t *target) strike(now time.Time) {
	if now.Sub(t.slowUntil) > t.sentence {
		t.sentence = 0
	}
	t.sentence = min(max(2*t.sentence, leastSentence), mostSentence)
	t.slowUntil = now.Add(t.sentence)
}

// isLike reports whether answers of two slow targets were late as often and as long, within a factor of two: then neither
// makes the other much slower. Those that only flew with a slow one are soon no more like it, since it goes on to be late
// when they are not along; and where all are late now and then, it takes longer than they. The stuck are all alike.
func (t *target) isLike(other *target) bool {
	return t.standing == stuck || t.sentence == other.sentence &&
		bits.Len64(uint64(t.slowness.Milliseconds())) == bits.Len64(uint64(other.slowness.Milliseconds()))
}

// learn draws conclusions from the outcome of a send.
func (t *target) learn(err error) {
	if err == nil {
		t.standing = heard
		return
	}
	t.failed = true
	t.refusedSize = t.refusedSize || errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
	t.stale = t.stale || staysWrong(err)
}

// staysWrong reports whether a client that has got this error for a topic, or for its records, should forget the topic. franz-go
// never adopts the new id of a topic that was deleted and created again, looks seldom for partitions that were added, and asks
// for what it cannot load every 50 ms, for ever.
func staysWrong(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) ||
		errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.InvalidTopicException) || isNoPartition(err)
}
