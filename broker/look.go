package broker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// A foundPartition is what one look at Kafka tells of a partition.
type foundPartition struct {
	OffsetsQuestion
	id        partitionID
	partition *delayPartition
	answer    OffsetsAnswer // without an error
}

// look asks Kafka for the delay topics and the offsets of their partitions; complete
// is false if it cannot tell of some for now and they are left out.
func (d *discovery) look(ctx context.Context, stored map[partitionID]storage.Position) (found []foundPartition, complete bool, err error) {
	if err := d.lookForTopics(ctx); err != nil {
		return nil, false, err
	}
	complete = true
	for _, name := range d.topics.names() {
		t := d.topics[name]
		if t.err != nil {
			complete = false
			continue
		}
		for _, number := range t.numbers() {
			p, id := t.partitions[number], partitionID{t.id, number}
			q := OffsetsQuestion{Topic: name, SourceLeader: p.SourceLeader, ReadEpoch: -1}
			if at, ok := stored[id]; ok && at.Epoch < p.Epoch && (p.Epoch != p.intactAt || p.doubt.kind != intact) {
				q.ReadEpoch = at.Epoch
			}
			found = append(found, foundPartition{OffsetsQuestion: q, id: id, partition: p})
		}
	}
	told, err := d.ask(ctx, found)
	if err != nil {
		return nil, false, err
	}
	return told, complete && len(told) == len(found), nil
}

// lookForTopics lists the topics, and asks by name for those that are not listed.
func (d *discovery) lookForTopics(ctx context.Context) error {
	now := time.Now()
	listed, err := d.Source.Topics(ctx, nil)
	if err != nil {
		return err
	}
	unlisted := make(map[string]bool)
	for name := range d.topics {
		unlisted[name] = true
	}
	for _, told := range listed {
		d.hear(told, now)
		delete(unlisted, told.Topic)
	}
	if len(unlisted) > 0 {
		var names []string
		for _, name := range d.topics.names() {
			if unlisted[name] {
				names = append(names, name)
			}
		}
		told, err := d.Source.Topics(ctx, names)
		if err != nil {
			return err
		}
		for _, t := range told {
			d.hear(t, now)
		}
	}
	for _, name := range d.topics.forget(now) {
		d.log.Info("a delay topic is gone, its positions are kept", "topic", name)
	}
	return nil
}

func (d *discovery) hear(told SourceTopic, now time.Time) {
	if d.topics.hear(told, now) {
		d.log.Warn("a delay topic was deleted and created again: it is read from its beginning", "topic", told.Topic)
	}
}

// ask has the leaders tell the offsets and returns the partitions that were told. Offsets are
// asked by the topic's name, so what comes of a topic that was created again meanwhile may
// be of either: its id is asked again afterwards.
func (d *discovery) ask(ctx context.Context, found []foundPartition) (told []foundPartition, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	questions := make([]OffsetsQuestion, len(found))
	names := make(map[string]bool)
	for i, f := range found {
		questions[i] = f.OffsetsQuestion
		names[f.Topic] = true
	}
	answers, err := d.Source.Offsets(ctx, questions)
	if err != nil {
		return nil, err
	}
	after, err := d.Source.Topics(ctx, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return nil, err
	}
	ids := make(map[string]TopicID, len(after))
	for _, t := range after {
		ids[t.Topic] = t.TopicID
	}
	for i, f := range found {
		f.answer = answers[i]
		f.partition.err = f.answer.Err
		switch {
		case f.answer.Err != nil:
		case ids[f.Topic] != f.id.topic:
			f.partition.err = errTwoIDs
		default:
			f.partition.latest = f.answer.Latest
			told = append(told, f)
		}
	}
	return told, nil
}

// lookOnce asks what a look asks, and wants an answer only.
func lookOnce(ctx context.Context, source Source) error {
	topics, err := source.Topics(ctx, nil)
	if err != nil {
		return err
	}
	var questions []OffsetsQuestion
	for _, t := range topics {
		for _, leader := range t.Partitions {
			questions = append(questions, OffsetsQuestion{Topic: t.Topic, SourceLeader: leader, ReadEpoch: -1})
		}
	}
	_, err = source.Offsets(ctx, questions)
	return err
}

// A survey is the first look at all delay topics of a new cluster: what is found later
// was added since. That cannot be undone, and a Kafka broker that has just started may list
// nothing: so it counts when every look for a while was complete and found the same.
type survey struct {
	found map[partitionID]bool
	since time.Time
}

// hear notes a look and reports whether the survey is done.
func (s *survey) hear(found []foundPartition, complete bool, now time.Time) bool {
	seen := make(map[partitionID]bool, len(found))
	for _, f := range found {
		seen[f.id] = true
	}
	if !complete {
		*s = survey{}
		return false
	}
	if s.found == nil || !maps.Equal(s.found, seen) {
		*s = survey{seen, now}
		return false
	}
	return now.Sub(s.since) >= confirmAfter
}
