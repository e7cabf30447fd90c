package draw

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// rare has happen, in one of five scripts, what is seldom and goes far: retention deletes what a partition had first, requests
// fail that are sent once a connection or once a topic, a clock is off by months, and much is due in years. It draws for
// itself, as paused does.
func (r *run) rare(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 6))
	if !r.chance(0.2) {
		return
	}
	begin := r.ready()
	for range 1 + r.IntN(3) {
		at := begin + time.Duration(r.Int64N(int64(end-begin)))
		pick(r, retained, failsOnce, monthsOff, inYears)(r, at)
	}
}

// retained deletes the older records of a delay topic while more come.
func retained(r *run, at time.Duration) {
	source := pick(r, r.sources...)
	r.at(r.before(at, r.span(time.Second, 10*time.Second)), "produce %s count=%d about=%s deliver-to=%s %s", source, 20+r.count(), span(r.span(time.Millisecond, time.Second)), r.to(), r.due(at))
	for range 1 + r.IntN(3) {
		r.between(at, "trim %s keep=%d", source, int(r.size(1, 100)))
		at += r.span(time.Millisecond, 10*time.Second)
	}
}

// failsOnce has requests fail that are sent when a connection, a session or a look begins; a node that is started asks all.
func failsOnce(r *run, at time.Duration) {
	for range 1 + r.IntN(3) {
		r.at(at, "error %s count=%d", pick(r,
			"ApiVersions err=REQUEST_TIMED_OUT",
			"DescribeConfigs err=NOT_CONTROLLER",
			"DescribeConfigs err=CLUSTER_AUTHORIZATION_FAILED",
			"InitProducerID err=COORDINATOR_LOAD_IN_PROGRESS",
			"OffsetForLeaderEpoch err=NOT_LEADER_FOR_PARTITION",
		), 1+r.IntN(5))
	}
	at += r.span(time.Millisecond, time.Second)
	r.at(at, "%s", pick(r, "kill leader", "stop leader"))
	r.at(at+r.span(r.unit/10, 5*r.unit), "start down")
}

// monthsOff sets one clock far ahead or back, and right again.
func monthsOff(r *run, at time.Duration) {
	node := r.who()
	if node == "leader" || node == "follower" {
		node = r.host()
	}
	r.at(at, "clock %s step=%s%s", node, pick(r, "+", "-"), r.span(24*time.Hour, 400*24*time.Hour))
	r.at(at+r.span(r.unit, 20*r.unit), "clock %s well", node)
}

// inYears has much be due long after all else.
func inYears(r *run, at time.Duration) {
	r.produce(at, r.count(), "deliver-to=%s %s spread=%s", r.to(), r.until(at+r.span(24*time.Hour, 5*365*24*time.Hour)), span(r.span(time.Second, 24*time.Hour)))
}

// differing has nodes run with a configuration that is not the others' for a while, in one of five scripts: one of them, or
// one after the other, as by users who try something and take it back. It draws for itself, as paused does.
func (r *run) differing(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 9))
	if !r.chance(0.2) {
		return
	}
	key, usual, other := "kafka.compression", "none", pick(r, "gzip", "snappy", "lz4", "zstd")
	if r.chance(0.5) {
		key, usual, other = "raft.heartbeat", r.heartbeat.String(), (2 * r.heartbeat).String()
	}
	begin := r.ready()
	first, changed := r.IntN(r.nodes), 1+r.IntN(r.nodes)
	longest := min(10*r.unit, (end-begin)/time.Duration(4*changed)) // each takes; at the end all nodes may be stopped for long
	at := begin + time.Duration(r.Int64N(int64((end-begin)/2)))
	for _, value := range []string{other, usual} {
		for n := range changed {
			node := "n" + strconv.Itoa(1+(first+n)%r.nodes)
			r.at(at, "config %s %s=%s", node, key, value)
			r.at(at, "%s %s", pick(r, "stop", "stop", "kill"), node)
			at += r.span(time.Millisecond, longest/2)
			r.at(at, "start down")
			at += r.span(longest/20, longest/2)
		}
	}
}
