package draw

import (
	"fmt"
	"slices"
	"time"
)

// A plot is a story in which things happen in an order that has been the trouble with software
// of this kind.
type plot struct {
	weight int // how likely it is
	// happen begins it at a time. It is over when its length is.
	happen func(r *run, at, length time.Duration)
	// small names the limits that it is about: where they are as wide as the product's, it shows little. So does what
	// needs several Kafka brokers in a Kafka of one. One that is about "wide" needs them as wide as they are, since much is read
	// again by right where they are small.
	small []string
}

func plots() []plot {
	return []plot{
		{3, badTarget, nil}, {2, lateTarget, nil}, {2, fullWindow, []string{"handed", "loaded"}}, {1, stillFlying, nil},
		{1, newPartitions, nil}, {2, changesOfTerm, nil}, {1, manyFlushes, []string{"flush"}}, {1, outageOfKafka, nil},
		{1, lyingKafka, nil}, {1, replaced, nil}, {1, upgraded, nil}, {1, rollingRestart, nil}, {1, flapping, nil},
		{3, secondBlow, nil}, {2, relapse, nil}, {2, slowDisks, nil}, {2, stalledDisk, nil}, {4, refusedLetters, nil},
		{2, elections, nil}, {2, heavyLoad, nil}, {3, manyBadTargets, nil}, {3, placedAnew, nil}, {2, unfitLeader, nil},
		{2, slowBesideQuick, nil}, {1, unrouted, nil}, {3, slowCommits, nil}, {3, shortOutages, nil}, {2, tenantForbidden, nil},
		{3, strayAnswers, []string{"missing_target_timeout"}}, {2, catchesUp, []string{"page"}}, {2, handsOver, nil}, {2, leftBehind, []string{"flush"}}, {3, outrun, []string{"flush"}},
		{2, slowBeginning, nil}, {3, oneByOne, nil},
		{3, waves, []string{"flush"}}, {3, crowded, []string{"feed", "handed"}}, {3, overwritten, []string{"feed", "handed"}},
		{2, readAgain, []string{"loaded"}}, {3, overfull, []string{"loaded"}},
		{3, newestFirst, []string{"loaded"}}, {2, neverThere, []string{"feed", "handed"}},
		{4, manyReturn, []string{"wide"}}, {4, stalledBroker, []string{"brokers", "wide"}}, {6, unread, nil}, {6, movedLeaders, []string{"brokers"}},
	}
}

// drawPlots draws several, each at most once.
func (r *run) drawPlots(least, most int) {
	all := plots()
	for range least + r.IntN(most-least+1) {
		weights := 0
		for _, p := range all {
			weights += p.weight
		}
		n := r.IntN(weights)
		drawn := slices.IndexFunc(all, func(p plot) bool { n -= p.weight; return n < 0 })
		r.plots = append(r.plots, all[drawn])
		all = slices.Delete(all, drawn, drawn+1)
	}
}

// isAbout reports whether one of the plots is about the limit.
func (r *run) isAbout(limit string) bool {
	return slices.ContainsFunc(r.plots, func(p plot) bool { return slices.Contains(p.small, limit) })
}

// bad is what can be wrong with a target so that it is parked, and what ends it.
func (r *run) bad() (fault, mend string) {
	topic := r.targets[0]
	switch r.IntN(5) {
	case 0:
		return "hush " + topic, "well " + topic
	case 1:
		return "slow " + topic + " answer=" + span(r.span(100*time.Millisecond, 10*time.Second)), "well " + topic
	default:
		return "forbid " + topic, "allow " + topic
	}
}

// stock is more than the window holds, so that what comes next is read all the time.
func (r *run) stock(at, length time.Duration) {
	for range 2 {
		r.produce(at, min(r.loaded, 1000), "deliver-to=%s %s spread=%s", r.to(), after(r.unit), span(length))
	}
}

// mixed is traffic for the bad target and the others: due soon, and due already by more and less.
func (r *run) mixed(at, length time.Duration) {
	for range 3 + r.IntN(5) {
		when := at + time.Duration(r.Int64N(int64(length)))
		due := pick(r, pastDue, pastDue, instant, delays()[0], delays()[1])(r, when)
		r.produce(when, 1+r.count()/4, "key=k%% deliver-to=%s %s", r.to(), due)
	}
}

// badTarget is parked for a while; past-due records come for it, and leadership changes.
func badTarget(r *run, at, length time.Duration) {
	fault, mend := r.bad()
	part := length / 4
	r.produce(at, r.count(), "deliver-to=%s %s spread=%s", r.targets[0], after(part), span(part))
	r.fault(at+r.span(part/100, part), fault, mend)
	r.mixed(at, length)
	for range r.IntN(3) {
		r.changeTerm(at + part + time.Duration(r.Int64N(int64(2*part))))
	}
	if r.chance(0.3) {
		r.surprise(pick(r, "parked", "probed"), at, r.sudden())
	}
	r.at(at+3*part, "%s", mend)
	if r.chance(0.5) { // and again at once
		r.fault(at+3*part+r.span(r.heartbeat/10, part/2), fault, mend)
		r.at(at+length, "%s", mend)
	}
}

// lateTarget does not exist when its messages are due; it comes, or they give up waiting.
func lateTarget(r *run, at, length time.Duration) {
	name := pick(r, r.missing...)
	for range 2 + r.IntN(4) {
		when := at + time.Duration(r.Int64N(int64(length)))
		r.produce(when, 1+r.count()/2, "deliver-to=%s %s", name, pick(r, pastDue, instant, delays()[0], delays()[1])(r, when))
	}
	r.mixed(at, length)
	if r.chance(0.5) {
		r.changeTerm(at + r.span(length/10, length))
	}
	switch {
	case name == "never":
	case r.chance(0.3): // just then
		r.on(pick(r, "parked", "probed"), r.nth("parked"), at, "create "+name)
		r.fault(at+r.span(r.unit, length/2), "freeze leader", "thaw all")
		r.at(at+r.span(length/2, length), "thaw all")
	case r.chance(0.6):
		r.at(at+r.span(length/4, length), "create %s partitions=%d", name, 1+r.IntN(3))
	}
}

// fullWindow is more due at once than there is room for, with trouble while it goes out.
func fullWindow(r *run, at, length time.Duration) {
	moment := at + r.span(r.unit, length/2)
	for range 2 + r.IntN(4) {
		r.produce(at+time.Duration(r.Int64N(int64(moment-at))), 4*r.count(), "key=k%% deliver-to=%s %s", r.to(), r.until(moment))
	}
	for range 1 + r.IntN(3) {
		r.sudden().happen(r, moment+r.span(time.Millisecond, 3*r.unit), length/4)
	}
	r.produce(moment+r.span(time.Millisecond, r.unit), r.count(), "deliver-to=%s %s", r.to(), pastDue(r, moment))
}

// stillFlying has the partitions of a target grow while its records are on their way.
func stillFlying(r *run, at, length time.Duration) {
	topic := r.targets[0]
	r.fault(at, "slow "+topic+" answer="+span(r.span(100*time.Millisecond, 5*time.Second)), "well "+topic)
	key := pick(r, "hot", "k%")
	r.produce(at, 2*r.count(), "key=%s deliver-to=%s %s spread=%s", key, topic, after(r.unit), span(length/3))
	when := at + r.span(r.unit, length/3)
	r.at(when, "partitions %s %d", topic, 3+r.IntN(6))
	// The nodes learn of it within ten seconds.
	r.produce(when, 20+2*r.count(), "key=%s deliver-to=%s %s spread=15s", key, topic, after(r.span(time.Millisecond, time.Second)))
	if r.chance(0.5) {
		r.on(pick(r, "handed", "answered"), 1+r.IntN(20), at, "partitions "+topic+" "+pick(r, "9", "10", "12"))
	}
	if r.chance(0.7) { // and some of them fail
		failure := "error Produce err=" + pick(r, "NOT_LEADER_FOR_PARTITION", "MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE") + " topic=" + topic
		for range 3 + r.IntN(10) {
			r.at(when+time.Duration(r.Int64N(int64(15*time.Second))), "%s", failure)
		}
	}
	r.mixed(at, length)
	r.at(at+length*2/3, "well %s", topic)
}

// newPartitions has delay topics and their partitions appear while records come in.
func newPartitions(r *run, at, length time.Duration) {
	source := pick(r, r.sources...)
	r.produce(at, r.count(), "deliver-to=%s %s", r.to(), r.due(at))
	r.at(at+r.span(time.Millisecond, length/2), "partitions %s %d", source, 3+r.IntN(6))
	if len(r.sources) < 4 {
		name := pick(r, "mails.delay", "calls.delay")
		r.at(at+r.span(r.unit, length/2), "create %s partitions=%d", name, 1+r.IntN(2))
		r.at(at+length*2/3, "produce %s count=%d deliver-to=%s %s", name, r.count(), r.to(), r.due(at+length*2/3))
	}
	r.mixed(at, length)
}

func (r *run) changeTerm(at time.Duration) {
	fault, mend := "kill leader", "start down"
	switch r.IntN(6) {
	case 0:
		fault = "stop leader"
	case 1:
		fault, mend = "freeze leader", "thaw all"
	case 2:
		fault, mend = "isolate leader", "heal"
	case 3:
		fault, mend = "cut leader from=kafka", "heal"
	}
	r.fault(at, fault, mend)
	r.at(at+r.span(r.heartbeat, 10*r.unit), "%s", mend)
}

// heavyLoad comes in while commits or Kafka are slow for a moment; the backlog must go out after it.
func heavyLoad(r *run, at, length time.Duration) {
	count := int(r.size(500, 4000))
	r.produce(at, count, "key=k%% deliver-to=%s %s spread=%s", r.to(), after(r.unit), span(r.span(length/10, length)))
	when := at + r.span(r.unit, length/2)
	switch r.IntN(4) {
	case 0:
		for n := range r.nodes {
			node := fmt.Sprintf("n%d", n+1)
			r.fault(when, "disk "+node+" slow="+span(r.span(20*time.Millisecond, 300*time.Millisecond)), "disk "+node+" well")
		}
	case 1:
		r.fault(when, "silence leader from=kafka", "heal")
		r.at(when+r.span(r.unit, 3*r.unit), "heal")
	case 2:
		r.fault(when, "slow "+r.targets[0]+" answer="+span(r.span(100*time.Millisecond, 2*time.Second)), "well "+r.targets[0])
		r.at(when+r.span(r.unit, 5*r.unit), "well %s", r.targets[0])
	default:
		r.changeTerm(when)
	}
	r.at(at+length, "well %s", r.targets[0])
}

// slowCommits are those of disks that stall, while a target is bad and well again and past-due records
// come: what was claimed, accepted or acknowledged is not yet in the log when the next thing happens.
func slowCommits(r *run, at, length time.Duration) {
	slow := span(r.fine(50*time.Millisecond, max(time.Second, r.heartbeat/10)))
	for n := range r.nodes {
		node := fmt.Sprintf("n%d", n+1)
		r.fault(at, "disk "+node+" slow="+slow, "disk "+node+" well")
	}
	r.stock(at, length)
	r.mixed(at, length)
	for range 1 + r.IntN(3) {
		replay(r, at+time.Duration(r.Int64N(int64(length))))
	}
	pick(r, shortOutages, shortOutages, flapping, manyBadTargets, tenantForbidden, badTarget)(r, at, length)
}

// shortOutages of a target are over when it has just been given up, or just not, and messages for it
// go on coming, one in each millisecond at times. A target that refuses records is given up with the first try
// after two seconds, which comes half a second later.
func shortOutages(r *run, at, length time.Duration) {
	fault, mend := r.bad()
	topic := r.targets[0]
	for range 2 + r.IntN(5) {
		r.stream(at, "key=k%% deliver-to=%s %s", topic, pick(r, delays()[0], delays()[0], delays()[1])(r, at))
		if r.chance(0.5) {
			replay(r, at)
		}
		at += r.span(100*time.Millisecond, 2*time.Second)
		r.fault(at, fault, mend)
		if r.chance(0.5) {
			r.on("parked", 1, at, fmt.Sprintf("produce %s count=200 key=k%% deliver-to=%s deliver-after=1ms spread=200ms", pick(r, r.sources...), topic))
		}
		if r.chance(0.6) { // just when it is given up
			at += 2500*time.Millisecond + time.Duration(r.Int64N(int64(time.Second)))
		} else {
			at += r.span(1500*time.Millisecond, 10*time.Second)
		}
		r.at(at, "%s", mend)
		at += r.span(100*time.Millisecond, max(30*time.Second, length/4))
	}
}

// tenantForbidden has all targets of somebody refuse what is written for some seconds, while events are
// replayed to them.
func tenantForbidden(r *run, at, length time.Duration) {
	manyTargets(r, at)
	count := min(r.many, 30)
	for range 1 + r.IntN(3) {
		ago := r.span(time.Second, 60*r.unit)
		r.stream(at, "scatter=%s deliver-to=t%% targets=%d %s", span(ago), count, r.until(at-ago))
		at += r.span(100*time.Millisecond, time.Second)
		over := at + r.span(2*time.Second, 10*time.Second)
		for n := range count {
			r.fault(at, fmt.Sprintf("forbid t%d", n), fmt.Sprintf("allow t%d", n))
			r.at(over, "allow t%d", n)
		}
		at = over + r.span(time.Second, max(30*time.Second, length/4))
	}
}

// catchesUp is a target that is slow for some seconds now and then, while more of it is due than it may
// have, and more falls due while its backlog is read from disks that take their time.
func catchesUp(r *run, at, length time.Duration) {
	topic := r.targets[0]
	for n := range r.nodes {
		node := fmt.Sprintf("n%d", n+1)
		r.fault(at, "disk "+node+" slow="+span(r.fine(25*time.Millisecond, 200*time.Millisecond)), "disk "+node+" well")
	}
	r.stock(at, length)
	for range 3 + r.IntN(4) {
		count, wait := 100+r.count()+min(2*r.handed, 1000), r.span(500*time.Millisecond, 10*time.Second)
		r.produce(at, count, "deliver-to=%s %s", topic, after(wait))
		r.produce(at, count, "deliver-to=%s %s spread=%s", topic, after(wait/2), span(r.span(100*time.Millisecond, 10*time.Second)))
		r.fault(at+wait, "slow "+topic+" answer="+span(r.fine(100*time.Millisecond, time.Second)), "well "+topic)
		r.at(at+wait+r.span(500*time.Millisecond, 4*time.Second), "well %s", topic)
		at += r.span(time.Second, max(5*time.Second, length/20))
	}
}

// manyBadTargets do not exist when their messages are due, and appear all at once.
func manyBadTargets(r *run, at, length time.Duration) {
	count := int(r.size(10, 200))
	r.produce(at, 2*count, "deliver-to=m%% targets=%d %s spread=%s", count, after(r.unit), span(r.span(r.unit, length/3)))
	r.mixed(at, length)
	if r.chance(0.5) {
		r.changeTerm(at + r.span(length/10, length))
	}
	ago := r.span(time.Second, 60*r.unit)
	r.stream(at+r.span(time.Second, length/2), "scatter=%s deliver-to=m%% targets=%d %s", span(ago), count, r.until(at-ago))
	if r.chance(0.8) {
		when := at + r.span(length/2, length)
		r.at(when, "create m%% count=%d", count)
		if r.chance(0.5) { // a new leader finds them all at once
			r.changeTerm(when + r.span(time.Millisecond, 2*r.unit))
		}
	}
}

// unrouted takes a delay topic out of the configuration for a while, though messages of it wait, for
// targets that are missing as well.
func unrouted(r *run, at, length time.Duration) {
	for _, topic := range []string{pick(r, r.missing...), r.targets[0]} {
		r.at(at, "produce %s count=%d deliver-to=%s %s spread=%s", r.sources[0], 1+r.count(), topic, after(r.unit), span(length))
	}
	r.route(at+r.span(r.unit, length/4), "bills.delay")
	r.fault(at+r.span(length/4, length*3/4), "forbid "+r.targets[0], "allow "+r.targets[0])
	r.route(at+length, "*.delay")
}

// route restarts all nodes with another configuration, one after the other.
func (r *run) route(at time.Duration, from string) {
	r.at(at, "route %s", from)
	for n := range r.nodes {
		r.at(at, "stop n%d", n+1)
		r.at(at, "start n%d", n+1)
		at += r.span(r.heartbeat, 10*r.heartbeat)
	}
}

// unfitLeader has only one node not reach Kafka, or one of its brokers, or its disk full, for long.
func unfitLeader(r *run, at, length time.Duration) {
	r.mend(at)
	r.mixed(at, length)
	// It waits before it asks the others, twice as long each time that it has given leadership away.
	when, lasts := at+r.span(r.heartbeat, 5*r.unit), 30*r.heartbeat+r.span(4*time.Minute, max(12*time.Minute, length))
	faults := []string{"cut leader from=kafka", "silence leader from=kafka", "disk leader full"}
	if r.brokers > 1 {
		faults = []string{fmt.Sprintf("cut leader from=kafka%d", 1+r.IntN(r.brokers)), "disk leader full"}
		lasts += 5 * time.Minute // in which it may use no connection to that broker
	}
	r.at(when, "%s", pick(r, faults...))
	r.at(when+lasts, "heal")
	for n := range r.nodes {
		r.at(when+lasts, "disk n%d well", n+1) // whoever led then
	}
	r.produce(at, 2*r.count(), "deliver-to=%s %s spread=%s", r.to(), after(r.unit), span(lasts))
}

// slowBesideQuick has one target answer slowly, and others that are not to feel it.
func slowBesideQuick(r *run, at, length time.Duration) {
	slow := r.targets[0]
	r.fault(at, "slow "+slow+" answer="+span(r.span(300*time.Millisecond, 3*time.Second)), "well "+slow)
	for _, topic := range r.targets {
		r.produce(at, 20+r.count(), "key=k%% deliver-to=%s %s spread=%s", topic, after(r.unit), span(length))
	}
	if r.chance(0.5) {
		r.at(at+length/2, "well %s", slow)
		r.fault(at+length*2/3, "hush "+slow, "well "+slow)
	}
}

// changesOfTerm follow each other under load, some in the first moments of a term.
func changesOfTerm(r *run, at, length time.Duration) {
	r.mixed(at, length)
	for range 2 + r.IntN(4) {
		r.changeTerm(at + time.Duration(r.Int64N(int64(length))))
	}
	if r.chance(0.5) {
		r.surprise(pick(r, "term", "term", "term-end", "claim", "taken"), at, r.sudden())
	}
}

// manyFlushes go on while messages come and go, and nodes die in them.
func manyFlushes(r *run, at, length time.Duration) {
	for range 3 + r.IntN(4) {
		when := at + time.Duration(r.Int64N(int64(length)))
		r.produce(when, 2*r.count(), "bytes=%d deliver-to=%s %s", int(r.size(100, 20<<10)), r.to(), r.due(when))
	}
	for range 1 + r.IntN(3) {
		r.surprise(pick(r, "flushed", "named", "merged"), at, pick(r, duringFlush()...))
	}
	r.fault(at+length, "kill "+r.who(), "start down")
}

func duringFlush() []trouble {
	return []trouble{
		{always("kill <node>"), "start down"},
		{always("disk <node> torn"), ""},
		{always("disk <node> full"), "disk <node> well"},
		{always("freeze <node>"), "thaw all"},
	}
}

// outageOfKafka leaves a backlog for many targets.
func outageOfKafka(r *run, at, length time.Duration) {
	manyTargets(r, at)
	r.mixed(at, length)
	begin := at + r.span(r.heartbeat, length/3)
	for n := range r.nodes {
		r.fault(begin, fmt.Sprintf("%s n%d from=kafka", pick(r, "cut", "silence"), n+1), "heal")
	}
	r.at(begin+r.span(r.unit, length/2), "heal")
}

// lyingKafka answers from before while records come in and leadership changes.
func lyingKafka(r *run, at, length time.Duration) {
	r.mixed(at, length)
	for range 1 + r.IntN(3) {
		when := at + time.Duration(r.Int64N(int64(length)))
		r.at(when, "stale %s lasts=%s", pick(r, "metadata", "offsets"), span(r.span(r.unit/2, 10*r.unit)))
		if r.chance(0.5) {
			r.changeTerm(when + r.span(time.Millisecond, 2*r.unit))
		}
	}
}

// replaced has a node lose its disk under load.
func replaced(r *run, at, length time.Duration) {
	if r.nodes == 1 {
		changesOfTerm(r, at, length)
		return
	}
	r.mend(at)
	r.produce(at, 2*r.count(), "deliver-to=%s %s", r.to(), r.due(at))
	for _, all := range []string{"heal", "thaw all", "start down"} { // it takes a leader to have the node back
		r.at(at+10*r.unit, "%s", all)
	}
	r.at(at+10*r.unit, "replace %s", pick(r, "follower", "follower", r.host()))
	r.mixed(at, length)
}

// upgraded has nodes get the new program one after the other, and some the old one back.
func upgraded(r *run, at, length time.Duration) {
	if !r.old {
		rollingRestart(r, at, length)
		return
	}
	r.mixed(at, length)
	for range 1 + r.IntN(4) {
		r.at(at+time.Duration(r.Int64N(int64(length))), "program %s %s", r.who(), pick(r, "0", "0", "1"))
	}
}

// rollingRestart stops and starts one node after the other.
func rollingRestart(r *run, at, length time.Duration) {
	r.mixed(at, length)
	pause := r.span(r.heartbeat, length/10)
	for n := range r.nodes {
		r.fault(at, fmt.Sprintf("%s n%d", pick(r, "stop", "stop", "kill"), n+1), "start down")
		at += pause
		r.at(at, "start down")
		at += pause
	}
}

// flapping is bad and well again, faster than anybody can learn it.
func flapping(r *run, at, length time.Duration) {
	fault, mend := r.bad()
	period := r.span(r.heartbeat, length/3)
	r.mixed(at, length)
	for when := at; when < at+length && when < at+12*period; when += period {
		r.fault(when, fault, mend)
		r.at(when+period/2, "%s", mend)
	}
}
