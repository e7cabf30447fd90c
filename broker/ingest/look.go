package ingest

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
	failing   bool          // it is not read, though that was tried
	answer    OffsetsAnswer // without an error
}

const (
	// mostPause bounds how much more rarely than usual a large Kafka is asked.
	mostPause = 10 * time.Second
	// pausePerThing is how much pause a topic that is listed, or a partition that is read, is worth: what
	// is told of them is 100 to 200 bytes, so that looks cost 100 KB a second at most until mostPause is reached.
	pausePerThing = 2 * time.Millisecond
	// quietEvery is how often the offsets of a partition are asked of which all is read and nothing new came.
	quietEvery = 10 * time.Second
)

// pauseFor returns the time to the next question about so many things.
func pauseFor(things int, usual time.Duration) time.Duration {
	return max(usual, min(time.Duration(things)*pausePerThing, mostPause))
}

// look asks Kafka for the delay topics and the offsets of their partitions. It returns what was
// found of the partitions that were asked about: until the first survey is over all of them, later
// those of which there may be something new. complete is false if Kafka cannot tell of some now;
// they are left out.
func (d *discovery) look(ctx context.Context, state storage.State) (found []foundPartition, complete bool, err error) {
	now := time.Now()
	if err := d.lookForTopics(ctx, now); err != nil {
		return nil, false, err
	}
	stored := byPartition(state.Positions)
	failing := make(map[partitionID]bool)
	for _, f := range d.Source.Failures() {
		failing[partitionID{f.TopicID, f.Partition}] = true
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
			at, ok := stored[id]
			if ok && state.Surveyed && !failing[id] && p.quiet(at, now) {
				continue
			}
			q := OffsetsQuestion{Topic: name, SourceLeader: p.SourceLeader, ReadEpoch: -1}
			if ok && p.asksEnd(at) {
				q.ReadEpoch = at.Epoch
			}
			if !ok || q.ReadEpoch >= 0 || d.mayStart(name, at) || p.suspect { // the answer may decide something
				q.TopicID = id.topic
			}
			found = append(found, foundPartition{OffsetsQuestion: q, id: id, partition: p, failing: failing[id]})
		}
	}
	told, err := d.ask(ctx, found, state, now)
	if err != nil {
		return nil, false, err
	}
	return told, complete && len(told) == len(found), nil
}

// quiet tells whether all of the partition was read when its leader was asked last, not long ago: all that Kafka gives, whatever
// a transaction holds back. When that ends it comes without a question.
func (p *delayPartition) quiet(at storage.Position, now time.Time) bool {
	return p.err == nil && !p.stuck && !p.suspect && p.latest == at.Next && p.askedIn == p.Epoch && now.Sub(p.askedAt) < quietEvery
}

// asksEnd tells whether the leader has to be asked where the epoch ended of what was read last.
func (p *delayPartition) asksEnd(at storage.Position) bool {
	return at.Epoch < p.Epoch && (p.Epoch != p.intactAt || at.Next != p.intactTo || p.suspect)
}

// lookForTopics asks for the known topics by name. Now and then it lists all, in a large
// Kafka more rarely, and asks by name for those that are not listed.
func (d *discovery) lookForTopics(ctx context.Context, now time.Time) error {
	unheard := make(map[string]bool)
	for name := range d.topics {
		unheard[name] = true
	}
	listing := !now.Before(d.listAt)
	if listing {
		listed, looked, err := d.Source.Topics(ctx, nil)
		if err != nil {
			return err
		}
		d.listAt = now.Add(pauseFor(looked, d.DiscoverEvery))
		for _, told := range listed {
			d.hear(told, now)
			delete(unheard, told.Topic)
		}
	}
	if len(unheard) > 0 || !listing { // be it to see whether Kafka answers
		names := slices.AppendSeq([]string{}, maps.Keys(unheard)) // not nil, which would list all
		slices.Sort(names)
		told, _, err := d.Source.Topics(ctx, names)
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

// ask has the leaders tell the offsets and returns the partitions that were told.
func (d *discovery) ask(ctx context.Context, found []foundPartition, state storage.State, now time.Time) (told []foundPartition, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	questions := make([]OffsetsQuestion, len(found))
	for i, f := range found {
		questions[i] = f.OffsetsQuestion
	}
	answers, err := d.Source.Offsets(ctx, questions)
	if err != nil {
		return nil, err
	}
	stored := byPartition(state.Positions)
	for i, f := range found {
		f.answer = answers[i]
		if f.partition.err = f.answer.Err; f.partition.err == nil {
			f.partition.watchTransactions(&f.answer, stored[f.id].Next, now)
			f.partition.latest, f.partition.end, f.partition.askedAt, f.partition.askedIn = f.answer.Latest, f.answer.End, now, f.Epoch
			f.partition.watchEnd(stored[f.id].Next, now)
			d.watch(f.partition, stored[f.id].Next, now)
			told = append(told, f)
		}
	}
	return told, nil
}

// stuckAfter is how long nothing may come of a partition that has something, and by how much longer for each
// partition that takes its turn.
const (
	stuckAfter        = 30 * time.Second
	stuckPerPartition = 100 * time.Millisecond
)

// watch notes whether the position moves while there is more to read: up to latest, since what a transaction holds back comes
// when that ends, and until then nothing is wrong with the reading. The Kafka client tries some errors
// again for ever without a word, such as a batch that Kafka itself finds corrupt. When there is no
// room, nothing is read of any partition, which is a problem of its own.
func (d *discovery) watch(p *delayPartition, next int64, now time.Time) {
	if p.latest <= next || next != p.unread || p.unreadSince.IsZero() || d.Log.Room() != nil {
		p.unread, p.unreadSince, p.stuck = next, now, false
		return
	}
	p.stuck = now.Sub(p.unreadSince) >= stuckAfter+time.Duration(len(d.assigned))*stuckPerPartition
}

// watchEnd notes whether the partition has ended before the position for too long. Mostly that is the word of a broker that
// answers from the past for a moment, or of an election, which moves the position. It stays so when Kafka runs on an older copy
// of its disks: nothing proves then that what was read is no longer there, and what is written next has offsets
// that were read already.
func (p *delayPartition) watchEnd(next int64, now time.Time) {
	switch {
	case p.end >= next:
		p.shortSince = time.Time{}
	case p.shortSince.IsZero():
		p.shortSince = now
	}
	p.short = p.end < next && now.Sub(p.shortSince) >= stuckAfter
}

// hungAfter is how long a transaction may be open before it is told. A producer that dies leaves one that Kafka ends after a
// minute, or after what the producer has asked for, 15 minutes at most unless Kafka allows more. One that Kafka has lost track of
// never ends.
const hungAfter = 5 * time.Minute

// watchTransactions notes whether the same transaction has been open for too long. While others end, latest moves.
func (p *delayPartition) watchTransactions(a *OffsetsAnswer, next int64, now time.Time) {
	switch {
	case a.End <= a.Latest:
		p.openSince = time.Time{}
	case p.openSince.IsZero() || a.Latest != p.latest:
		p.openSince = now
	}
	p.hung = a.End > max(a.Latest, next) && next >= a.Latest && now.Sub(p.openSince) >= hungAfter
}

// LookOnce asks what a look asks, and wants an answer only.
func LookOnce(ctx context.Context, source Source) error {
	topics, _, err := source.Topics(ctx, nil)
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
