package deliver

import (
	"context"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
)

const (
	// mostFlying bounds the records of one target that Kafka has not answered. A crash
	// repeats those that it had written, and what acks bounds.
	mostFlying = 2048
	// slowAfter is how long a record may be without an answer before no other follows
	// it. A sink that gives a record up by itself, after twice this, fails what it
	// holds behind it as well; one sent at that very moment would overtake them.
	slowAfter = time.Second
	// stallAfter is how long a record may be without an answer before all that is on
	// its way is given up: longer than Kafka is slow, since that makes duplicates.
	stallAfter = 5 * time.Second
	// drainPatience is how long the end of a term waits for what is on its way.
	drainPatience = 500 * time.Millisecond
)

// An outcome is Kafka's answer for one record.
type outcome struct {
	o   *outgoing
	err error
}

// mayLaunch reports whether another record may be sent now.
func (l *lane) mayLaunch() bool {
	if l.p.acks.isBehind() {
		return false
	}
	return l.flying == 0 || l.flying < l.window && time.Since(l.oldestFlight()) < slowAfter
}

func (l *lane) launch(o *outgoing, partition int32) {
	if o.err != nil {
		l.p.cfg.Count.Retried(1)
	}
	o.sent, o.answered = time.Now(), false
	l.flights = append(l.flights, o)
	l.flying++
	outcomes := l.outcomes
	l.p.cfg.Sink.Send(l.p.delivery(o, l.target, partition), func(err error) {
		outcomes.Put(outcome{o, err})
	})
}

// takeOutcomes hears Kafka's answers: what is written is acknowledged, the rest
// has failed.
func (l *lane) takeOutcomes() {
	l.takenOutcomes = l.outcomes.Take(l.takenOutcomes)
	var written []uint64
	now := l.p.now()
	for _, answer := range l.takenOutcomes {
		o := answer.o
		o.err, o.answered = answer.err, true
		if o.err != nil {
			l.heard = PartitionCount{}
			l.absent.hear(o.err)
			l.failed = append(l.failed, o)
			continue
		}
		written = append(written, o.ref.Seq)
		l.unload(o)
		switch {
		case !o.deadLetter:
			l.p.cfg.Count.Delivered(max(now-o.ref.Due-o.message.Overdue, 0)) // clocks of two leaders differ
		case o.message.ValueDropped:
			l.p.cfg.Count.ValueDropped()
		}
		o.message = message.Message{} // flights may keep it for a while
		l.health.succeed(o.ref)
		l.aside.written(o.ref.Seq)
		l.relieve()
		l.absent = absence{}
		l.window = min(2*l.window, mostFlying)
	}
	l.flying -= len(l.takenOutcomes)
	if l.flying == 0 {
		clear(l.flights) // payloads
		l.flights = l.flights[:0]
	}
	clear(l.takenOutcomes) // payloads
	l.p.acks.put(written)
}

// giveUp ends the wait for a target that does not answer.
func (l *lane) giveUp(ctx context.Context) error {
	l.log.Warn("target does not answer: giving up what is on its way, outcomes unknown", "records", l.flying, "waited", stallAfter)
	l.health.fail(l.oldestFlight())
	l.p.cfg.Sink.Isolate(l.target)
	return l.regroup(ctx, nil)
}

// oldestFlight returns when the record was sent that has waited longest for its
// answer. Something must be flying.
func (l *lane) oldestFlight() time.Time {
	for l.flights[0].answered {
		l.flights = l.flights[1:]
	}
	return l.flights[0].sent
}

// drain waits for what is on its way when the term ends, so that it is not
// delivered twice, but not for long.
func (l *lane) drain() {
	if !l.await(nil, drainPatience) {
		l.p.cfg.Sink.Isolate(l.target)
	}
}

// await takes outcomes until nothing is flying, and reports whether it came to
// that before stop was closed or patience ended.
func (l *lane) await(stop <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for l.flying > 0 {
		select {
		case <-l.outcomes.Ready():
			l.takeOutcomes()
		case <-stop:
			return false
		case <-timer.C:
			return false
		}
	}
	return true
}

// An outgoing is a message with its payload, on its way to Kafka.
type outgoing struct {
	ref        storage.Ref
	message    message.Message
	size       int   // bytes of the stored body
	deadLetter bool  // it goes to the dead-letter topic because something was wrong with it
	err        error // of the last try
	sent       time.Time
	answered   bool      // the last try has its outcome
	unplaced   time.Time // when its partition was not there
	missed     time.Time // when Kafka first said so, asked after that
	nowhere    bool      // Kafka has said so for long enough
}

// delivery returns the record as it goes out.
func (p *Publisher) delivery(o *outgoing, target string, partition int32) Delivery {
	m := &o.message
	if o.deadLetter { // as the record came, so that a corrected one can be produced from it
		return Delivery{Topic: target, Partition: partition, Key: m.Key, Value: m.Value, Headers: m.Headers}
	}
	return Delivery{Topic: target, Partition: partition, Key: m.DeliveredKey(), Value: m.Value, Headers: m.DeliveredHeaders(p.cfg.ClusterID, o.ref.Seq)}
}
