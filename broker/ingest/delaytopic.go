package ingest

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// A delayTopic is what Kafka has told of one topic in this term.
type delayTopic struct {
	id         TopicID // zero until Kafka tells it
	partitions map[int32]*delayPartition
	err        error     // why the last answer cannot be used
	missing    time.Time // since when every answer says that there is no such topic; zero: it is there
	rival      TopicID   // another id that was named since
	rivalSince time.Time
}

// A delayPartition is what Kafka has told of one partition.
type delayPartition struct {
	SourceLeader           // of the highest epoch that was told
	err          error     // why nothing was told of its offsets in the last look
	latest, end  int64     // as they were told last; -1: never
	openSince    time.Time // since when latest has been the same though the end is behind it; zero: it is not
	hung         bool      // for too long, and all before it is read
	shortSince   time.Time // since when its leader has told an end before the position, for whatever reason; zero: it does not
	short        bool      // for too long
	askedAt      time.Time // when that was, and in which leader epoch
	askedIn      int32
	unread       int64     // the position when more was there to read,
	unreadSince  time.Time // and since when it has been the same
	stuck        bool      // for too long
	intactAt     int32     // leader epoch in which all that was read was last found there,
	intactTo     int64     // and the position then: what was read before that may be taken in after it
	suspect      bool      // the last answer found that something is missing of what was read
	doubt        doubt     // what was found so, if the topic's id was asked for
}

// delayTopics are the topics by name. What one answer says counts for little: the broker
// that gave it may have been frozen, or not know the topics yet.
//
//   - A topic that is not listed stays, and is asked for by name. Only when Kafka has denied for a while
//     that it exists is it taken off.
//   - An id is replaced only by another one that was named for a while, and alone. Should the
//     first one of a term be the old one, nothing of it is read: Kafka fetches by id.
//   - A leader of a lower epoch than the one known is an old one.
type delayTopics map[string]*delayTopic

// expect has the topic asked for by name, since there are positions in it.
func (ts delayTopics) expect(name string) {
	if ts[name] == nil {
		ts[name] = &delayTopic{err: errNotToldYet}
	}
}

// hear takes an answer in. It reports whether the topic has another id now.
func (ts delayTopics) hear(told SourceTopic, now time.Time) (renewed bool) {
	ts.expect(told.Topic)
	t := ts[told.Topic]
	if t.err = told.Err; told.Err != nil {
		if !errors.Is(told.Err, ErrSourceMissing) {
			t.missing = time.Time{}
		} else if t.missing.IsZero() {
			t.missing = now
		}
		return false
	}
	t.missing = time.Time{}
	switch {
	case t.id == told.TopicID:
		t.rival = TopicID{}
	case t.id != TopicID{} && t.rival != told.TopicID:
		t.rival, t.rivalSince, t.err = told.TopicID, now, errTwoIDs
		return false
	case t.id != TopicID{} && now.Sub(t.rivalSince) < confirmAfter:
		t.err = errTwoIDs
		return false
	default:
		renewed = t.id != TopicID{}
		*t = delayTopic{id: told.TopicID, partitions: make(map[int32]*delayPartition)}
	}
	for _, leader := range told.Partitions {
		p := t.partitions[leader.Partition]
		if p == nil {
			p = &delayPartition{SourceLeader: leader, latest: -1, end: -1, intactAt: -1}
			t.partitions[leader.Partition] = p
		}
		if leader.Epoch >= p.Epoch {
			p.SourceLeader = leader
		}
	}
	return renewed
}

// forget takes the topics off that Kafka has denied for long enough.
func (ts delayTopics) forget(now time.Time) (forgotten []string) {
	for name, t := range ts {
		if !t.missing.IsZero() && now.Sub(t.missing) >= confirmAfter {
			delete(ts, name)
			forgotten = append(forgotten, name)
		}
	}
	return forgotten
}

// names returns the topics in order.
func (ts delayTopics) names() []string { return slices.Sorted(maps.Keys(ts)) }

// numbers returns the partitions in order.
func (t *delayTopic) numbers() []int32 { return slices.Sorted(maps.Keys(t.partitions)) }
