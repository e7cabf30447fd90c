package broker

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm"
)

// Metrics counts what this node does. It is the only place where the names of
// metrics are written, those of Kafka's client excepted. Safe for use by any
// goroutine. What can be read off the status is in Collector.
type Metrics struct {
	accepted        prometheus.Counter
	rejected        *prometheus.CounterVec
	answered        *prometheus.CounterVec
	sourceLost      prometheus.Counter
	delivered       prometheus.Counter
	retried         prometheus.Counter
	expired         prometheus.Counter
	deadLettered    *prometheus.CounterVec
	deadLetterStuck prometheus.Counter
	valuesDropped   prometheus.Counter
	unreadable      prometheus.Counter
	parkedTargets   prometheus.Gauge
	lateness        prometheus.Histogram
	clockSteps      *prometheus.CounterVec
	clockStepped    prometheus.Counter
	firingStopped   prometheus.Counter
	refused         prometheus.Counter // leadership
}

// NewMetrics registers the counters of a node.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		accepted:        newCounter("carillon_accepted_total", "Messages that this node, as the leader, took into the replicated schedule, from delay topics and by the API."),
		rejected:        newVector("carillon_rejected_total", "Those of them, from delay topics, that could not be scheduled as asked and go to the dead-letter topic, by the code of the reason.", "code"),
		answered:        newVector("carillon_operations_total", "Records with a deliver-id, and what the API was asked to schedule, cancel or change, by what this node, as the leader, made of them.", "answer"),
		sourceLost:      newCounter("carillon_source_lost_records_total", "Records of delay topics that Kafka deleted before this node, as the leader, could read them."),
		delivered:       newCounter("carillon_delivered_total", "Messages that this node wrote to their targets, dead letters not included."),
		retried:         newCounter("carillon_retried_total", "Records that were sent once more after a failure."),
		expired:         newCounter("carillon_expired_total", "Messages that this node did not send, or not once more, since they had expired."),
		deadLettered:    newVector("carillon_dead_lettered_total", "Messages that their target cannot take and that go to the dead-letter topic, by the code of the reason.", "code"),
		deadLetterStuck: newCounter("carillon_dead_letter_stuck_total", "How often a dead-letter topic could not be written to or refused a dead letter: nothing is lost, but look after it."),
		valuesDropped:   newCounter("carillon_dead_letter_values_dropped_total", "Dead letters that this node wrote without the record's value, of more than 16 MiB: it is lost once Kafka deletes the record."),
		unreadable:      newCounter("carillon_unreadable_total", "Due messages whose stored form this node could not read; they stay in the schedule, and count again after a change of leader."),
		parkedTargets:   newGauge("carillon_parked_targets", "Target topics that cannot be written to at present; 0 on followers."),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_lateness_seconds",
			Help: "From the moment a message was due, or accepted if that was later, to the acknowledgement of its target.",
			// Milliseconds matter most; the tail is fail-overs and targets that were away.
			Buckets: []float64{.001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 3600},
		}),
		clockSteps:    newVector("carillon_clock_steps_total", "How often this node's wall clock was set, by direction.", "direction"),
		clockStepped:  newCounter("carillon_clock_stepped_seconds_total", "By how much, both directions added up."),
		firingStopped: newCounter("carillon_clock_stops_total", "How often this node, as the leader, stopped firing since its clock left the time that was held right."),
		refused:       newCounter("carillon_clock_refusals_total", "How often this node refused to lead since its clock differed from the median by more than clock.max_skew."),
	}
	registry.MustRegister(m.accepted, m.rejected, m.answered, m.sourceLost, m.delivered, m.retried, m.expired, m.deadLettered, m.deadLetterStuck, m.valuesDropped,
		m.unreadable, m.parkedTargets, m.lateness, m.clockSteps, m.clockStepped,
		m.firingStopped, m.refused)
	// An alarm on an increase needs the zero before it.
	for _, code := range message.IntakeCodes() {
		m.rejected.WithLabelValues(code)
	}
	for _, code := range raftfsm.Codes() {
		m.answered.WithLabelValues(code.String())
	}
	for _, code := range message.DeliveryCodes() {
		m.deadLettered.WithLabelValues(code)
	}
	m.clockSteps.WithLabelValues("forward")
	m.clockSteps.WithLabelValues("backward")
	return m
}

func newCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func newGauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func newVector(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}

// Accepted counts messages that are in the log, refused ones included.
func (m *Metrics) Accepted(messages int) { m.accepted.Add(float64(messages)) }

// Rejected counts those of them that are dead letters from the beginning, by a Problem's code.
func (m *Metrics) Rejected(code string, messages int) {
	m.rejected.WithLabelValues(code).Add(float64(messages))
}

// Answered counts records with an id, by what came of them.
func (m *Metrics) Answered(answer string, records int) {
	m.answered.WithLabelValues(answer).Add(float64(records))
}

// SourceLost counts records of delay topics that were deleted before they were read.
func (m *Metrics) SourceLost(records int64) { m.sourceLost.Add(float64(records)) }

// Delivered counts a message that its target has acknowledged, that many
// milliseconds after it was due or accepted, whichever was later.
func (m *Metrics) Delivered(lateMillis int64) {
	m.delivered.Inc()
	m.lateness.Observe(float64(lateMillis) / 1000)
}

// Retried counts records that are sent once more.
func (m *Metrics) Retried(records int) { m.retried.Add(float64(records)) }

// Expired counts messages that were not sent, or not once more, since they had expired.
func (m *Metrics) Expired(messages int) { m.expired.Add(float64(messages)) }

// DeadLettered counts messages that became dead letters, by a Problem's code.
func (m *Metrics) DeadLettered(code string, messages int) {
	m.deadLettered.WithLabelValues(code).Add(float64(messages))
}

// DeadLetterStuck counts that a dead-letter topic had to be parked or refused a letter.
func (m *Metrics) DeadLetterStuck() { m.deadLetterStuck.Inc() }

// ValueDropped counts a dead letter that was written without its value.
func (m *Metrics) ValueDropped() { m.valuesDropped.Inc() }

// Unreadable counts a due message whose stored body could not be decoded.
func (m *Metrics) Unreadable() { m.unreadable.Inc() }

// Parked changes the number of targets that are parked.
func (m *Metrics) Parked(change int) { m.parkedTargets.Add(float64(change)) }

// ClockStepped counts that the clock was set forward or, negative, backward.
func (m *Metrics) ClockStepped(step time.Duration) {
	direction := "forward"
	if step < 0 {
		direction, step = "backward", -step
	}
	m.clockSteps.WithLabelValues(direction).Inc()
	m.clockStepped.Add(step.Seconds())
}

// FiringStopped counts that nothing became due since the clock was not believed.
func (m *Metrics) FiringStopped(times int) { m.firingStopped.Add(float64(times)) }

// LeadershipRefused counts that this node was not to lead for its clock.
func (m *Metrics) LeadershipRefused() { m.refused.Inc() }

// A gauge is one metric that is read off the status when it is scraped.
type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Status) float64
}

// A Collector shows the status of a node as metrics.
type Collector struct {
	status func() Status
	gauges []gauge
	source *prometheus.Desc // partitions of delay topics by state
	skew   *prometheus.Desc // of clocks, by member
	paused *prometheus.Desc // delay topics and targets
	silent *prometheus.Desc // members
}

// NewCollector returns a Collector of what status returns at each scrape.
func NewCollector(status func() Status) *Collector {
	c := &Collector{status: status, source: prometheus.NewDesc("carillon_source_partitions",
		"Partitions of delay topics by what keeps them from being read; 0 on followers. /v1/status names them.", []string{"state"}, nil),
		skew: prometheus.NewDesc("carillon_clock_skew_seconds",
			"Clock of each member that reports against their median, as this node has measured it.", []string{"member"}, nil),
		paused: prometheus.NewDesc("carillon_paused",
			"1 for each delay topic and target that a user has paused. /v1/status tells who, why and since when.", []string{"kind", "name"}, nil),
		silent: prometheus.NewDesc("carillon_member_last_contact_seconds",
			"For how long this node, as the leader, has not heard of the member, since it leads at most; none on followers.", []string{"member"}, nil)}
	add := func(kind prometheus.ValueType, name, help string, value func(Status) float64) {
		c.gauges = append(c.gauges, gauge{prometheus.NewDesc(name, help, nil, nil), kind, value})
	}
	const now, sum = prometheus.GaugeValue, prometheus.CounterValue
	add(now, "carillon_pending", "Messages that wait for their time.", func(s Status) float64 { return float64(s.Pending) })
	add(now, "carillon_oldest_due_timestamp_seconds", "When the first of them is due; 0 when none waits.", func(s Status) float64 { return float64(s.OldestDue) / 1000 })
	add(now, "carillon_ready", "1 when the node does its part, as /readyz says.", func(s Status) float64 { return one(s.NotReady == "") })
	add(now, "carillon_problems", "Problems that keep the node from its work; /v1/status names them.", func(s Status) float64 { return float64(len(s.Problems)) })
	add(now, "carillon_ingest_lag", "Records of delay topics that wait in Kafka; not a number on followers and while Kafka does not answer.", func(s Status) float64 {
		if s.Lag == nil {
			return math.NaN()
		}
		return float64(*s.Lag)
	})
	add(now, "carillon_feature_level", "Feature level in force: the forms that the cluster writes; 0 until this node has applied something of the log.", func(s Status) float64 { return float64(s.Level.InForce) })
	add(now, "carillon_feature_level_understood", "Newest feature level that the program of this node understands.", func(s Status) float64 { return float64(s.Level.Understood) })
	add(now, "carillon_clock_stopped", "1 while nothing becomes due, should this node lead, since its clock is not believed.", func(s Status) float64 { return one(s.Clock.Stopped) })
	add(now, "carillon_raft_is_leader", "1 on the leader.", func(s Status) float64 { return one(s.State == "leader") })
	add(now, "carillon_raft_has_leader", "1 when the node knows who leads.", func(s Status) float64 { return one(s.Leader != "") })
	add(now, "carillon_raft_term", "Term of the Raft group.", func(s Status) float64 { return float64(s.Term) })
	add(now, "carillon_raft_applied_index", "Last log entry that the schedule holds.", func(s Status) float64 { return float64(s.Raft.AppliedIndex) })
	add(now, "carillon_raft_commit_index", "Last log entry known to be on a majority.", func(s Status) float64 { return float64(s.Raft.CommitIndex) })
	add(now, "carillon_raft_last_index", "Last entry of this node's log.", func(s Status) float64 { return float64(s.Raft.LastIndex) })
	add(now, "carillon_raft_snapshot_index", "Last log entry that is in segments on disk.", func(s Status) float64 { return float64(s.Raft.SnapshotIndex) })
	add(now, "carillon_raft_unsaved_bytes", "Bytes of log since then, which a restart replays.", func(s Status) float64 { return float64(s.Raft.UnsavedBytes) })
	add(now, "carillon_storage_segments", "Segments on disk.", func(s Status) float64 { return float64(s.Storage.Segments) })
	add(now, "carillon_storage_segment_bytes", "Their size on disk.", func(s Status) float64 { return float64(s.Storage.SegmentBytes) })
	add(now, "carillon_storage_memtable_entries", "Messages that are in memory and in the log only.", func(s Status) float64 { return float64(s.Storage.MemtableEntries) })
	add(now, "carillon_storage_memtable_bytes", "Their size.", func(s Status) float64 { return float64(s.Storage.MemtableBytes) })
	add(sum, "carillon_storage_flushes_total", "Memtables written to a segment.", func(s Status) float64 { return float64(s.Storage.Flushes) })
	add(sum, "carillon_storage_merges_total", "Merges of segments.", func(s Status) float64 { return float64(s.Storage.Merges) })
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, g := range c.gauges {
		descs <- g.desc
	}
	descs <- c.source
	descs <- c.skew
	descs <- c.paused
	descs <- c.silent
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	s := c.status()
	for _, g := range c.gauges {
		metrics <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(s))
	}
	for _, state := range report.ReadingStates() {
		partitions := 0
		if s.Reading != nil {
			partitions = s.Reading.Partitions[state]
		}
		metrics <- prometheus.MustNewConstMetric(c.source, prometheus.GaugeValue, float64(partitions), state)
	}
	for _, p := range s.Paused {
		metrics <- prometheus.MustNewConstMetric(c.paused, prometheus.GaugeValue, 1, p.Kind, p.Name)
	}
	for _, m := range s.Members {
		if m.Silence != nil {
			metrics <- prometheus.MustNewConstMetric(c.silent, prometheus.GaugeValue, m.Silence.Seconds(), m.ID)
		}
	}
	for member, millis := range s.Clock.Skew {
		metrics <- prometheus.MustNewConstMetric(c.skew, prometheus.GaugeValue, float64(millis)/1000, member)
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
