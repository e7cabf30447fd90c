package draw

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// What Kafka answers changes: leaders move, partitions are added, topics are said to be missing, records are gone or seem to
// be. One answer proves little, and one that is some seconds old less.

// unread is a delay topic that cannot be read for some seconds, in which its records are deleted, or of which Kafka says
// more than once that it has fewer than were read. The same node leads all the while: where it was to read on, or what
// it doubted, is not what counts later.
func unread(r *run, at, _ time.Duration) {
	source := pick(r, r.sources...)
	some := func() {
		r.at(at, "produce %s count=%d deliver-to=%s %s", source, 10+r.count()/4, r.to(), delays()[0](r, at))
	}
	seemsLess := r.chance(0.5)
	for range 2 + r.IntN(2) {
		some()
		if seemsLess {
			at += r.span(time.Second, 10*time.Second)
			lasts := r.longestBehind()
			r.at(at, "elect %s behind=%d lasts=%s", source, 2+r.IntN(10), span(lasts))
			at += lasts + 15*time.Second + 4*min(6*r.heartbeat, time.Minute) // until all have heard better
			continue
		}
		r.at(at+time.Second, "error Fetch err=%s count=%d topic=%s", pick(r, "NOT_LEADER_FOR_PARTITION", "OFFSET_OUT_OF_RANGE"), 5+r.IntN(5), source)
		at += r.span(3*time.Second, 5*time.Second) // a fetch waits for two
		some()
		at += r.span(10*time.Millisecond, time.Second)
		r.at(at, "trim %s", source)
		for range 2 {
			at += r.span(10*time.Millisecond, 5*time.Second)
			some()
		}
		at += r.span(10*time.Second, time.Minute)
	}
}

// placedAnew has records name a partition that was just added, of a target that others are sent to: what is known of it
// is some seconds old.
func placedAnew(r *run, at, length time.Duration) {
	topic := r.to()
	r.mixed(at, length)
	when := at + r.span(r.unit, length/2)
	for count := 4 + r.IntN(3); count < 10; count += 1 + r.IntN(3) {
		r.stream(r.before(when, r.span(time.Second, 10*time.Second)), "key=k%% deliver-to=%s %s", topic, delays()[0](r, when))
		r.at(when, "partitions %s %d", topic, count)
		for range 2 {
			r.produce(when, 1+r.IntN(5), "deliver-partition=%d deliver-to=%s %s", count-1, topic, delays()[0](r, when))
			when += r.span(time.Millisecond, 5*time.Second)
		}
		when += r.span(time.Second, 5*r.unit)
	}
}

// movedLeaders has the partitions of a slow target change their brokers while its records are on
// their way, and some of these fail.
func movedLeaders(r *run, at, length time.Duration) {
	topic := r.targets[0]
	for range 2 + r.IntN(4) {
		r.fault(at, "slow "+topic+" answer="+span(r.span(100*time.Millisecond, 4*time.Second)), "well "+topic)
		r.stream(at, "key=k%% deliver-to=%s %s", topic, delays()[0](r, at))
		for range 1 + r.IntN(3) {
			at += r.span(100*time.Millisecond, 10*time.Second)
			r.at(at, "elect %s", topic)
			if r.chance(0.5) { // and the new broker answers in a time of its own
				r.at(at+r.span(time.Millisecond, 5*time.Second), "slow %s answer=%s", topic, span(r.span(time.Millisecond, time.Second)))
			}
			if r.chance(0.3) {
				r.at(at, "elect %s", pick(r, r.sources...))
			}
			if r.chance(0.5) {
				r.at(at+r.span(time.Millisecond, 5*time.Second), "error Produce err=%s topic=%s", pick(r, "MESSAGE_TOO_LARGE", "NOT_ENOUGH_REPLICAS"), topic)
			}
		}
		at += r.span(time.Second, 10*time.Second)
	}
	r.at(at+length/10, "well %s", topic)
}

// strayAnswers of Kafka say now and then that a topic is missing that is there, and does not answer,
// for longer than anything may wait for a missing one. It begins when the cluster has got over its last trouble, and
// nothing else mends it.
func strayAnswers(r *run, at, _ time.Duration) {
	topic := r.targets[0]
	at += 10*time.Second + 25*r.heartbeat
	r.produce(at, r.count(), "deliver-to=%s %s", topic, pastDue(r, at))
	r.at(at, "%s", pick(r, "hush "+topic, "slow "+topic+" answer=10s"))
	for end := at + 2*r.timeout + time.Minute; at < end; at += r.span(12*time.Second, 60*time.Second) {
		r.at(at, "error Metadata err=UNKNOWN_TOPIC_OR_PARTITION count=%d topic=%s", 2+r.IntN(6), topic)
	}
	r.at(at, "well %s", topic)
}

// stalledBroker is one of several Kafka brokers that answers nothing for some seconds, again and again, while messages come
// one by one for targets that are led by all of them.
func stalledBroker(r *run, at, length time.Duration) {
	const targets = 12
	r.at(at, "create f%% count=%d", targets)
	at += length
	r.mend(at)
	at += 30*time.Second + 30*r.heartbeat // until that is recovered from
	const mostStalls = 5
	const lasts = mostStalls * 20 * time.Second
	for n := range targets {
		gap := r.span(250*time.Millisecond, 700*time.Millisecond)
		r.produce(at, int(lasts/gap), "deliver-to=f%d %s spread=%s", n, after(2*r.unit), span(lasts))
	}
	at += 2*r.unit + 6*time.Second // what is known of the targets is some seconds old
	broker := fmt.Sprintf("kafka%d", 1+r.IntN(r.brokers))
	for range 3 + r.IntN(mostStalls-2) {
		r.fault(at, "stall "+broker, "revive "+broker)
		at += r.span(4*time.Second, 10*time.Second)
		r.at(at, "revive %s", broker)
		at += r.span(3*time.Second, 8*time.Second) // it is asked each few seconds, and found to answer
	}
}

// grown has, in one of seven scripts with several Kafka brokers, targets get more partitions again and again while much is on
// its way to each, all of one key: what waits for one broker may come later than what has its new place at another one.
// Nothing follows an answer that is overdue, so each takes less than a lane has patience for; and a lane learns of a new
// count each few seconds, so there is one to learn each time. It draws for itself, as paused does.
func (r *run) grown(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 7))
	if r.brokers < 2 || !r.chance(0.15) {
		return
	}
	at := r.ready() + time.Duration(r.Int64N(int64(end-r.ready())))
	const targets, lasts = 6, 40 * time.Second
	r.at(at, "create g%% count=%d", targets)
	for n := range targets {
		topic := fmt.Sprintf("g%d", n)
		r.produce(at, 800, "key=hot deliver-to=%s %s spread=%s", topic, after(r.unit), span(lasts))
		r.fault(at, "slow "+topic+" answer="+span(r.fine(50*time.Millisecond, 200*time.Millisecond)), "well "+topic)
		for part := range 13 {
			when := at + r.unit + time.Duration(part)*3*time.Second + time.Duration(r.Int64N(int64(3*time.Second)))
			r.at(when, "partitions %s %d", topic, 2*(part+1))
		}
		r.at(at+r.unit+lasts, "well %s", topic)
	}
}

// anew has, in one of eight scripts, targets deleted and created again while much is on its way to them, at once or some
// time later: what Kafka knows of their producers is gone as well. It draws for itself, as paused does.
func (r *run) anew(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 8))
	if !r.chance(0.125) {
		return
	}
	at := r.ready() + time.Duration(r.Int64N(int64(end-r.ready())))
	const targets, lasts = 3, time.Minute
	r.at(at, "create a%% partitions=3 count=%d", targets)
	for n := range targets {
		topic := fmt.Sprintf("a%d", n)
		r.produce(at, 100+r.IntN(900), "key=k%% deliver-to=%s %s spread=%s", topic, after(r.unit), span(lasts))
		if r.chance(0.5) {
			r.fault(at, "slow "+topic+" answer="+span(r.span(10*time.Millisecond, 2*time.Second)), "well "+topic)
		}
		when := at + r.unit + time.Duration(r.Int64N(int64(lasts/2)))
		for range 1 + r.IntN(3) {
			if r.chance(0.5) {
				r.at(when, "recreate %s", topic)
			} else {
				r.at(when, "delete %s", topic)
				when += r.span(10*time.Millisecond, time.Minute)
				r.at(when, "create %s partitions=3", topic)
			}
			when += r.span(10*time.Millisecond, 20*time.Second)
		}
		r.at(max(when, at+r.unit+lasts), "well %s", topic)
	}
}

// inTurn has, in one of eight scripts, Kafka take seconds for each request of a target for which much is due at once, and answer
// each: what waits in turn is not taken for what is not answered. It draws for itself, as paused does.
func (r *run) inTurn(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 10))
	if !r.chance(0.125) {
		return
	}
	at := r.ready() + time.Duration(r.Int64N(int64(end-r.ready())))
	const topic = "queue"
	r.at(at, "create %s partitions=%d", topic, 1+r.IntN(3))
	r.produce(at, 50+r.IntN(400), "key=k%% deliver-to=%s %s", topic, after(r.unit))
	r.fault(at, "slow "+topic+" answer="+span(r.span(2*time.Second, 5*time.Second)), "well "+topic)
	r.at(at+r.unit+r.span(2*time.Minute, 10*time.Minute), "well %s", topic)
}
