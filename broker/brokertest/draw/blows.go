package draw

import (
	"fmt"
	"time"
)

// What follows on one another: the moments in which nobody has got over the last trouble yet, or
// has just got well, are those that nobody has thought of. They last for milliseconds to seconds,
// whatever the heartbeat is, so that they are drawn by magnitude.

// secondBlow strikes while the product is still busy with the first: something does not answer while
// records are on their way, and then leadership changes.
func secondBlow(r *run, at, length time.Duration) {
	r.mixed(at, length)
	for range 1 + r.IntN(3) {
		when := at + r.span(r.unit, length)
		r.underWay(when)
		first := r.unanswered()
		if r.chance(0.5) {
			event, nth := pick(r, "handed", "handed", "answered", "claim", "acked", "taken"), 1+r.IntN(10)
			text, mend := r.fill(first.fault(r), first.mend, "here")
			r.on(event, nth, when, text)
			r.owe(mend)
			r.on(event, nth+r.IntN(3), when, r.blow("here"))
		} else {
			text, mend := r.fill(first.fault(r), first.mend, "leader")
			r.fault(when+r.span(time.Millisecond, time.Second), text, mend)
			r.at(when+r.span(time.Millisecond, 10*time.Second), "%s", r.blow("leader"))
		}
		r.mend(when + 10*time.Second + r.span(r.heartbeat, length/2))
	}
}

// underWay has records be due about then, each a little after the other.
func (r *run) underWay(at time.Duration) {
	begun := r.before(at, r.span(time.Second, 10*r.unit))
	r.produce(begun, 2+r.count(), "key=k%% deliver-to=%s %s spread=%s", r.to(), after(at-begun), span(r.span(time.Millisecond, 10*time.Second)))
}

// before returns a time that is so much earlier, but not before the cluster is there: of topics that are not
// empty when it is born, it does not know where to start.
func (r *run) before(at, by time.Duration) time.Duration { return max(at-by, min(at, r.ready())) }

// unanswered draws what leaves records without an answer, or has them fail.
func (r *run) unanswered() trouble {
	if len(r.troubles) > 0 && r.chance(0.3) {
		return pick(r, r.troubles...)
	}
	return pick(r,
		trouble{always("cut <node> from=kafka"), "heal"},
		trouble{always("silence <node> from=kafka"), "heal"},
		trouble{always("error Produce err=NO_ANSWER"), ""},
		trouble{always("error Produce err=NO_ANSWER count=3"), ""},
		trouble{always("hush <topic>"), "well <topic>"},
		trouble{always("forbid <topic>"), "allow <topic>"},
		trouble{slow, "well <topic>"},
	)
}

// blow draws what ends a term at the node, and owes what ends that.
func (r *run) blow(node string) string {
	fault := pick(r, trouble{always("kill"), "start down"}, trouble{always("kill"), "start down"}, trouble{always("stop"), "start down"},
		trouble{always("freeze"), "thaw all"}, trouble{always("isolate"), "heal"})
	r.owe(fault.mend)
	return fault.fault(r) + " " + node
}

// relapse follows on a mend: what was parked is fed again, and just then leadership changes, or it
// is bad once more.
func relapse(r *run, at, length time.Duration) {
	fault, mend := r.bad()
	topic := r.targets[0]
	for when := at; when < at+length; when += length / 3 {
		r.produce(when, r.count(), "key=k%% deliver-to=%s %s spread=%s", topic, after(r.unit), span(length/4))
		r.mixed(when, length/3)
		r.fault(when+r.span(r.unit, length/12), fault, mend)
		well := when + length/12 + max(10*time.Second, length/6)
		r.at(well, "%s", mend)
		switch r.IntN(4) {
		case 0:
			r.at(well+r.span(time.Millisecond, 10*time.Second), "%s", r.blow("leader"))
		case 1:
			r.fault(well+r.span(time.Millisecond, 10*time.Second), fault, mend)
		default:
			r.on(pick(r, "claim", "claim", "handed", "answered", "probed", "acked"), 1+r.IntN(5), well, r.blow("here"))
		}
		r.mend(well + 10*time.Second + r.span(r.heartbeat, length/12))
	}
}

// slowDisks has all nodes take long to write, as they do where many share a disk, while leadership
// changes and nodes come back: what is on its way to the disk takes its time.
func slowDisks(r *run, at, length time.Duration) {
	r.slowAll(at, 10*time.Millisecond, time.Second)
	r.mixed(at, length)
	r.plateau(at, length)
	for range 1 + r.IntN(3) {
		when := at + time.Duration(r.Int64N(int64(length)))
		if r.chance(0.5) {
			r.on(pick(r, "acked", "claim", "taken", "term", "flushed", "named", "named", "merged", "received"), 1+r.IntN(10), when, r.blow("here"))
		} else {
			r.at(when, "%s", r.blow(r.who()))
		}
		r.at(when+r.span(10*r.heartbeat, length/3), "start down")
		r.at(when+r.span(10*r.heartbeat, length/3), "thaw all")
	}
}

// slowAll has each node's disk be slow, each by as much as is drawn for it.
func (r *run) slowAll(at, least, most time.Duration) {
	for n := range r.nodes {
		node := fmt.Sprintf("n%d", n+1)
		r.fault(at, "disk "+node+" slow="+span(r.fine(least, most)), "disk "+node+" well")
	}
}

// stalledDisk has one node's disk hang for some seconds, as volumes of clouds do, while records
// come in all the time, and perhaps a target that is busy falls silent in the same moment.
func stalledDisk(r *run, at, length time.Duration) {
	r.mixed(at, length)
	for range 1 + r.IntN(3) {
		when := at + r.span(r.unit, length)
		r.produce(when, 50, "every=%s key=k%% deliver-to=%s %s", span(r.span(20*time.Millisecond, 400*time.Millisecond)), r.to(), r.due(when))
		event, nth := pick(r, "taken", "taken", "acked"), 1+r.IntN(20)
		r.on(event, nth, when, "disk here slow="+span(r.span(3*time.Second, 10*time.Second)))
		if r.chance(0.5) {
			topic := r.targets[0]
			r.dense(when, 2*time.Second, topic)
			r.on(event, nth+r.IntN(2), when, "hush "+topic)
			r.owe("well " + topic)
		}
		for n := range r.nodes {
			r.owe(fmt.Sprintf("disk n%d well", n+1))
		}
		r.mend(when + r.span(10*time.Second, 30*time.Second))
	}
}

// plateau is what reminders look like: each waits equally long, so that as many go as come.
func plateau(r *run, at time.Duration) { r.plateau(at, r.span(20*r.unit, 60*r.unit)) }

func (r *run) plateau(at, length time.Duration) {
	steps := 8 + r.IntN(12)
	gap := length / time.Duration(steps)
	wait := time.Duration(1+r.IntN(steps/2)) * gap
	source, target, count := pick(r, r.sources...), r.to(), 1+r.count()/4
	for i := range steps {
		r.at(at+time.Duration(i)*gap, "produce %s count=%d key=reminder%% deliver-to=%s %s", source, count, target, after(wait))
	}
}

// refusedLetters has the dead-letter topic, or a target, take small records only for a while.
func refusedLetters(r *run, at, length time.Duration) {
	letters := "carillon.dead-letter"
	small := fmt.Sprintf("limit %s bytes=%d", letters, int(r.size(200, 2000)))
	r.fault(at, small, "well "+letters)
	for range 2 + r.IntN(4) {
		when := at + time.Duration(r.Int64N(int64(length*2/3)))
		poison(r, when)
		r.produce(when, 1+r.IntN(5), "value=large-%% bytes=%d", int(r.size(100, 10<<10))) // no time
	}
	r.mixed(at, length)
	if r.chance(0.3) {
		fault, mend := pick(r, "forbid ", "hush ")+letters, "well "+letters
		when := at + r.span(r.unit, length/2)
		r.fault(when, fault, mend)
		over := when + r.span(time.Second, length/4)
		for at := when; at < over && at < when+10*time.Second; at += r.span(500*time.Millisecond, 5*time.Second) {
			poison(r, at)
		}
		r.at(over, "allow %s", letters)
		if r.chance(0.5) {
			r.at(when+length/4, "well %s", letters)
		}
	} else { // what it has refused is tried each five seconds: now and then it takes nothing at all between two tries
		for when := at + r.span(r.unit, length/4); when < at+length*3/4; when += r.span(5*time.Second, length/4) {
			r.produce(when, 1+r.IntN(3), "value=large-%% bytes=4000")
			when += r.span(200*time.Millisecond, 5*time.Second)
			r.fault(when, "forbid "+letters, "allow "+letters)
			over := when + r.span(2500*time.Millisecond, 6*time.Second)
			for ; when < over; when += r.span(300*time.Millisecond, time.Second) {
				r.produce(when, 1, "value=no-time-%%")
			}
			r.at(over, "allow %s", letters)
		}
	}
	if r.chance(0.3) {
		topic := r.targets[0]
		r.fault(at, fmt.Sprintf("limit %s bytes=%d", topic, int(r.size(500, 5000))), "well "+topic)
		r.produce(at+r.unit, 1+r.IntN(20), "bytes=%d deliver-to=%s %s", int(r.size(100, 20<<10)), topic, r.due(at))
	}
}

// elections give partitions of a delay topic another leader in Kafka, which at times lacks the newest
// records for a moment, until the one that has them is back.
func elections(r *run, at, length time.Duration) {
	source := pick(r, r.sources...)
	r.mixed(at, length)
	for range 3 + r.IntN(4) {
		when := at + time.Duration(r.Int64N(int64(length)))
		r.produce(r.before(when, r.span(time.Millisecond, 10*r.unit)), r.count(), "deliver-to=%s %s", r.to(), r.due(when))
		r.at(when, "%s", r.election(source))
	}
}

// election draws one of a delay topic. The nodes ask for offsets every few heartbeats, and an answer must
// be confirmed after three seconds: a leader that is behind is not there for two answers, nor for as long.
func (r *run) election(source string) string {
	if r.chance(0.2) {
		return "elect " + source
	}
	longest := r.longestBehind()
	return fmt.Sprintf("elect %s behind=%d lasts=%s", source, 1+r.IntN(10), span(r.span(longest/8, longest)))
}

// longestBehind is how long a leader of a delay topic is behind at most.
func (r *run) longestBehind() time.Duration {
	return max(2500*time.Millisecond, min(5*r.heartbeat/2, 50*time.Second))
}

// handsOver has leadership go in an orderly way while records are on their way to a target that refuses
// them, or to a Kafka that never gets them: what failed, or was given up, is the next leader's.
func handsOver(r *run, at, length time.Duration) {
	topic := r.targets[0]
	r.mixed(at, length)
	for range 2 + r.IntN(3) {
		when := at + r.span(r.unit, length)
		r.stream(r.before(when, r.span(time.Second, 10*time.Second)), "key=k%% deliver-to=%s %s", topic, delays()[0](r, when))
		r.fault(when, "slow "+topic+" answer="+span(r.fine(20*time.Millisecond, time.Second)), "well "+topic)
		switch r.IntN(4) {
		case 0, 1:
			r.fault(when, "forbid "+topic, "allow "+topic)
		case 2:
			r.at(when, "error Produce err=NO_ANSWER count=%d topic=%s", 1+r.IntN(5), topic)
		default:
			r.fault(when, "silence leader from=kafka", "heal")
		}
		r.on("handed", 1+r.IntN(20), when, "stop here")
		r.owe("start down")
		r.mend(when + 10*time.Second + r.span(r.heartbeat, length/4))
	}
}

// leftBehind is a node with a slow disk that is apart from the others while it writes a file, again and again,
// and so far behind when it comes back that it receives the schedule.
func leftBehind(r *run, at, length time.Duration) {
	node := r.host()
	slow := r.span(200*time.Millisecond, 5*time.Second)
	r.fault(at, "disk "+node+" slow="+span(slow), "disk "+node+" well")
	r.plateau(at, length)
	size := int(r.size(500, 20<<10))
	for range 2 + r.IntN(4) {
		when := at + r.span(r.unit, length)
		apart := r.span(slow, max(8*slow, 20*r.heartbeat))
		r.produce(when, 10+r.count()/4, "about=%s bytes=%d deliver-to=%s %s", span(slow/10), size, r.to(), r.due(when))
		r.at(when, "%s %s", pick(r, "isolate", "silence", "cut"), node)
		r.produce(when+apart/2, 10+r.count()/4, "bytes=%d deliver-to=%s %s", size, r.to(), r.due(when))
		r.at(when+apart, "heal")
	}
	r.owe("heal")
}

// outrun is a node whose disk is so slow that the leader no longer has what it needs next: it receives the schedule while
// it writes a file of its own.
func outrun(r *run, at, length time.Duration) {
	for range 1 + r.IntN(3) {
		slow := r.span(time.Second, 5*time.Second)
		node := pick(r, "follower", "follower", r.host())
		r.fault(at, "disk "+node+" slow="+span(slow), "disk "+node+" well")
		lasts := 4*slow + r.span(slow, 8*slow)
		count := 150 + r.IntN(250)
		size := min(max(r.flush/int(r.size(10, 100)), 50), 20<<10)
		r.produce(at, count, "about=%s bytes=%d deliver-to=%s %s", span(lasts/time.Duration(count)), size, r.to(), r.due(at))
		at += lasts
		for n := range r.nodes {
			r.at(at, "disk n%d well", n+1)
		}
		at += r.span(time.Second, length/4)
	}
}

// slowBeginning is a term that begins on slow disks with much to read, while events are replayed for a target
// that is bad.
func slowBeginning(r *run, at, length time.Duration) {
	fault, mend := r.bad()
	r.slowAll(at, 50*time.Millisecond, time.Second)
	r.stock(at, length)
	r.fault(at, fault, mend)
	for range 1 + r.IntN(3) {
		when := at + r.span(10*time.Second, max(time.Minute, length))
		r.stream(r.before(when, r.span(5*time.Second, 20*time.Second)), "key=k%% deliver-to=%s %s", r.targets[0], delays()[0](r, when))
		r.at(when, "%s", r.blow("leader"))
		for range 3 {
			ago := r.span(time.Second, 60*r.unit)
			begun := when + r.span(r.heartbeat, 10*r.heartbeat)
			r.produce(begun, r.count(), "scatter=%s key=k%% deliver-to=%s %s", span(ago), r.targets[0], r.until(begun-ago))
		}
		r.at(when+20*r.heartbeat, "start down")
	}
	r.at(at+length, "%s", mend)
}

// oneByOne come messages for a target that nobody else writes to, and that does not answer for some seconds
// now and then, or takes small ones only for a while.
func oneByOne(r *run, at, _ time.Duration) {
	const topic = "single"
	one := func(more string) { r.produce(at, 1, "deliver-to=%s deliver-after=1ms%s", topic, more) }
	r.at(at, "create %s", topic)
	for range 3 + r.IntN(4) {
		for range 1 + r.IntN(4) {
			one("")
			at += r.span(200*time.Millisecond, 5*time.Second)
		}
		fault, more := "hush "+topic, ""
		if r.chance(0.5) {
			fault, more = "limit "+topic+" bytes=500", pick(r, "", " bytes=2000")
		}
		r.fault(at, fault, "well "+topic)
		one(more)
		at += r.span(5*time.Second, 20*time.Second)
		if r.chance(0.5) {
			one("")
			at += r.span(100*time.Millisecond, 10*time.Second)
		}
		r.at(at, "well %s", topic)
		at += r.span(100*time.Millisecond, 20*time.Second)
	}
}
