package brokertest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/storage"
)

// An observer writes down what happens while a script is played. It changes nothing: what it knows
// it takes from the script's own steps, from the log lines of the nodes, and from what their stores
// show. The goroutine of the player calls it, but for what is logged.
type observer struct {
	cluster *Cluster
	begin   time.Time
	ledger  ledger.Ledger
	open    map[string]int // faults that last, by what they are about: index in the ledger
	created map[string]bool

	traffic traffic // between the nodes and Kafka
	scanned int64   // entries, by stores that are closed
	own     int64   // of what stores have scanned, for the player itself

	most       ledger.Costs // what there was of that of which the most counts
	weighs     bool         // memory is that of this cluster alone
	goroutines int64        // of the process, at most, when those of the cluster were counted

	furthest map[place]position   // of the source positions that were seen
	sampled  time.Time            // when errors of Kafka were last noted
	digested time.Time            // when all that the nodes have was compared last
	versions map[*node]version    // of what they had then
	apart    map[string]time.Time // since when nodes lead that do not reach Kafka
	routed   bool                 // some delay topic had no route for a while

	mu       sync.Mutex // of what follows, and of the ledger's Log and Costs
	seen     uint64     // log entries that were written down
	level    storage.Level
	held     map[string]time.Time // targets with a hold; since when Kafka says that they are there
	failing  map[string]bool      // targets whose last answer was an error
	caughtUp time.Time            // when targets that come back were last read for
	terms    []ledger.Term
	lines    map[string]int // warnings and errors, by text
}

// A place is a partition of a topic that has an id.
type place struct {
	topicID   [16]byte
	partition int32
}

// A position was seen in a store that had applied so much.
type position struct {
	storage.Position
	applied uint64
}

func newObserver() *observer {
	return &observer{
		begin: time.Now(), sampled: time.Now(), open: make(map[string]int), created: make(map[string]bool), lines: make(map[string]int),
		furthest: make(map[place]position), held: make(map[string]time.Time), failing: make(map[string]bool), apart: make(map[string]time.Time),
	}
}

// began notes a fault, which lasts until ended is called with what it is about.
func (o *observer) began(about string, f ledger.Fault) {
	if _, lasts := o.open[about]; lasts {
		return
	}
	o.open[about] = len(o.ledger.Faults)
	o.ledger.Faults = append(o.ledger.Faults, f)
}

func (o *observer) ended(about string) {
	if i, lasts := o.open[about]; lasts {
		o.ledger.Faults[i].Until = time.Now()
		delete(o.open, about)
	}
}

// struck notes a fault that is over when it has come.
func (o *observer) struck(f ledger.Fault) {
	f.Until = time.Now()
	o.ledger.Faults = append(o.ledger.Faults, f)
}

// step notes what a step of the script has done, which began at that time.
func (o *observer) step(s step, began time.Time) {
	name := s.args.word(0)
	fault := ledger.Fault{Kind: s.verb, From: began}
	ofTopic := fault
	ofTopic.Topic = name
	switch s.verb {
	case "delete":
		o.created[name] = false
		ofTopic.Kind = "missing"
		o.began("missing "+name, ofTopic)
	case "forbid", "slow", "hush", "limit":
		o.began(s.verb+" "+name, ofTopic)
	case "allow":
		o.ended("forbid " + name)
	case "well":
		o.ended("slow " + name)
		o.ended("hush " + name)
		o.ended("forbid " + name)
		o.ended("limit " + name)
	case "recreate", "trim", "elect":
		o.struck(ofTopic)
		if s.verb == "recreate" && !isDelayTopic(name) {
			ofTopic.Kind = "missing" // who wrote to it in between has to look for it
			o.struck(ofTopic)
		}
	case "step", "clock":
		o.lookAtClocks()
	case "stale":
		lasts, _ := parseSpan(s.args.value("lasts", "5s"))
		fault.Until = time.Now().Add(lasts)
		o.ledger.Faults = append(o.ledger.Faults, fault)
	case "disk":
		o.lookAtDisks()
	case "route":
		if name == allDelayTopics {
			o.ended("route")
			break
		}
		o.routed = true
		o.began("route", fault)
	case "config", "raise", "shorten":
		o.struck(fault)
	case "pause":
		ofTopic.Topic = s.args.word(1)
		o.began("pause "+name+" "+ofTopic.Topic, ofTopic)
	case "resume":
		o.ended("pause " + name + " " + s.args.word(1))
	}
	o.lookAtStalls() // who leads what may have changed
	o.lookAtLinks(s.verb, began)
}

// lookAtClocks notes which of them go wrong by more and more: that lasts.
func (o *observer) lookAtClocks() {
	for _, n := range o.cluster.nodes {
		about := "drift " + n.member.ID
		if n.clock.isDrifting() {
			o.began(about, ledger.Fault{Kind: "clock", Node: n.member.ID, From: time.Now()})
		} else {
			o.ended(about)
		}
	}
}

// lookAtDisks notes which of them are ill. That one tears is no fault until its node is killed, which is one.
func (o *observer) lookAtDisks() {
	// A target that may have few messages at a time would get less than a hundred in a second of what is called ordinary.
	ordinary := min(ordinarySync, time.Duration(o.cluster.limits.Schedule.Handed)*time.Millisecond/10)
	for _, n := range o.cluster.nodes {
		is := map[string]bool{"slow-disk": n.files.isSlow(ordinary), "full-disk": n.files.isFull()}
		for _, kind := range []string{"slow-disk", "full-disk"} {
			about := kind + " " + n.member.ID
			if is[kind] {
				o.began(about, ledger.Fault{Kind: kind, Node: n.member.ID, From: time.Now()})
			} else {
				o.ended(about)
			}
		}
	}
}

// ordinarySync is how long a disk may take for a sync that is not called slow.
const ordinarySync = 20 * time.Millisecond

// wellAll notes that nothing lasts any more that a step "well" ends.
func (o *observer) wellAll() {
	o.lookAtStalls()
	o.lookAtClocks()
	o.lookAtDisks()
	for about := range o.open {
		switch kind, _, _ := strings.Cut(about, " "); kind {
		case "forbid", "slow", "hush", "limit":
			o.ended(about)
		}
	}
	now := time.Now()
	for i, f := range o.ledger.Faults {
		if f.Kind == "stale" && f.Until.After(now) {
			o.ledger.Faults[i].Until = now
		}
	}
}

// resumedAll notes that nothing is paused any more.
func (o *observer) resumedAll() {
	for about := range o.open {
		if strings.HasPrefix(about, "pause ") {
			o.ended(about)
		}
	}
}

// started notes that a node starts, which may move leadership.
func (o *observer) started(node string) {
	o.ended("down " + node)
	o.struck(ledger.Fault{Kind: "start", Node: node, From: time.Now()})
}

// felled notes that a node goes down. Where those that are left are no majority, whoever leads of them sends what it cannot
// acknowledge.
func (o *observer) felled(how, node string) {
	running := 0
	for _, n := range o.cluster.nodes {
		if n.running() {
			running++
		}
	}
	if left := running - 1; how == "stop" && (2*running <= len(o.cluster.nodes) || left > 0 && 2*left <= len(o.cluster.nodes)) {
		how = "stop-alone"
	}
	o.began("down "+node, ledger.Fault{Kind: how, Node: node, From: time.Now()})
	o.termOver(node)
}

func (o *observer) froze(node string) {
	o.began("frozen "+node, ledger.Fault{Kind: "freeze", Node: node, From: time.Now()})
}

// exists notes that a topic does.
func (o *observer) exists(topic string) {
	if _, known := o.created[topic]; !known {
		o.began("missing "+topic, ledger.Fault{Kind: "missing", Topic: topic, From: o.begin})
	}
	o.created[topic] = true
	o.ended("missing " + topic)
	if now, until := time.Now(), o.cluster.faults.absentUntil(topic); until.After(now) {
		o.ledger.Faults = append(o.ledger.Faults, ledger.Fault{Kind: "stray", Topic: topic, From: now, Until: until})
	}
}

// sample compares what the nodes have and looks whether positions go back.
func (o *observer) sample() {
	synctest.Wait() // nobody applies now: a command changes several things, one after the other
	o.lookAtLinks("cut", time.Now())
	o.lookAtStalls()
	o.sampleErrors()
	o.sampleReach()
	o.sampleCosts()
	var states []storage.State
	var nodes []*node
	for _, n := range o.cluster.nodes {
		if !n.reachable() {
			continue
		}
		s := n.raft().Store().State()
		for i := range states {
			if states[i].AppliedIndex == s.AppliedIndex {
				o.compare(nodes[i], states[i], n, s)
			}
		}
		states, nodes = append(states, s), append(nodes, n)
		o.advance(n, s)
	}
	if time.Since(o.digested) >= digestEvery && len(states) > 0 && states[0].Pending < mostDigested && o.hasNews(nodes) {
		o.digested = time.Now()
		o.digest(nodes)
	}
}

// A version of what a node has is another one when it has applied something, or has written a file.
type version struct {
	store   *storage.Store
	applied uint64
	files   int64
}

// hasNews reports whether a node has another version than when it was asked last.
func (o *observer) hasNews(nodes []*node) bool {
	now := make(map[*node]version)
	for _, n := range nodes {
		store := n.raft().Store()
		now[n] = version{store, store.State().AppliedIndex, n.files.written.Load()}
	}
	news := !maps.Equal(now, o.versions)
	o.versions = now
	return news
}

// sampleErrors notes which errors Kafka has given the nodes since the last look, as faults. Those that go on
// from look to look are one.
func (o *observer) sampleErrors() {
	for _, fault := range o.cluster.faults.given(o.sampled) {
		isOne := func(f ledger.Fault) bool {
			return f.Kind == fault.Kind && f.Topic == fault.Topic && !f.Until.IsZero() && !f.Until.Before(fault.From)
		}
		if i := slices.IndexFunc(o.ledger.Faults, isOne); i >= 0 {
			o.ledger.Faults[i].Until = fault.Until
		} else {
			o.ledger.Faults = append(o.ledger.Faults, fault)
		}
	}
	o.sampled = time.Now()
}

// digestEvery is how often nodes are compared message by message; what is small, always.
const digestEvery = 20 * time.Second

// mostDigested bounds what such a comparison costs.
const mostDigested = 20_000

func (o *observer) found(check, format string, args ...any) {
	o.ledger.Found = append(o.ledger.Found, ledger.Problem{Check: check, Text: fmt.Sprintf(format, args...)})
}

// compare holds two nodes against each other that have applied the same log.
func (o *observer) compare(a *node, s storage.State, b *node, other storage.State) {
	if what := difference(s, other); what != "" {
		o.found("digest", "%s and %s differ in %s after log entry %d", a.member.ID, b.member.ID, what, s.AppliedIndex)
	}
}

func difference(a, b storage.State) string {
	switch {
	case a.ClusterID != b.ClusterID:
		return "the cluster's id"
	case a.Level != b.Level:
		return fmt.Sprintf("the feature level (%d, %d)", a.Level, b.Level)
	case a.Time != b.Time:
		return fmt.Sprintf("the time (%d, %d)", a.Time, b.Time)
	case a.NextSeq != b.NextSeq:
		return fmt.Sprintf("the next seq (%d, %d)", a.NextSeq, b.NextSeq)
	case a.Pending != b.Pending:
		return fmt.Sprintf("what is pending (%d, %d)", a.Pending, b.Pending)
	case a.Claim.Through != b.Claim.Through || a.Claim.Mark != b.Claim.Mark || a.Claim.Fresh != b.Claim.Fresh:
		return fmt.Sprintf("the claim (%+v, %+v)", a.Claim, b.Claim)
	case !slices.Equal(a.Positions, b.Positions):
		return fmt.Sprintf("the source positions (%+v, %+v)", a.Positions, b.Positions)
	}
	return ""
}

// advance looks whether a source position went back, which takes records in twice.
func (o *observer) advance(n *node, s storage.State) {
	for _, p := range s.Positions {
		at := place{p.TopicID, p.Partition}
		before := o.furthest[at]
		if s.AppliedIndex <= before.applied {
			continue
		}
		if p.Next < o.cluster.faults.read(before.Position) {
			o.found("positions", "that of %s/%d went back from %d to %d between log entries %d and %d on %s",
				p.Topic, p.Partition, before.Next, p.Next, before.applied, s.AppliedIndex, n.member.ID)
		}
		o.furthest[at] = position{p, s.AppliedIndex}
	}
}

// digest compares all that nodes have which have applied the same. It returns how many nodes, at
// most, have the same. One that has received it counts entries of Raft's own, behind the last command, as well.
func (o *observer) digest(nodes []*node) (most int) {
	synctest.Wait() // as in sample
	type sum struct {
		node *node
		sum  [32]byte
	}
	sums, same := make(map[uint64]sum), make(map[[32]byte]int)
	for _, n := range nodes {
		store := n.raft().Store()
		index := store.State().AppliedIndex
		got, err := store.Digest()
		if err != nil {
			o.found("storage", "of %s: %v", n.member.ID, err)
			continue
		}
		if store.State().AppliedIndex != index {
			continue
		}
		first, known := sums[index]
		if !known {
			first = sum{node: n, sum: got}
			sums[index] = first
		}
		if first.sum != got {
			o.found("digest", "the schedules of %s and %s differ after log entry %d", first.node.member.ID, n.member.ID, index)
			continue
		}
		same[got]++
		most = max(most, same[got])
	}
	return most
}

// logged notes a line of a node's log.
func (o *observer) logged(node string, r slog.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		o.lines[r.Message]++
	}
	switch r.Message {
	case "leading":
		o.over(node, "another one began")
		o.terms = append(o.terms, ledger.Term{Node: node, Begin: time.Now()})
	case "term ended":
		reason := "?"
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "reason" {
				reason = a.Value.String()
			}
			return true
		})
		o.over(node, reason)
	}
}

// termOver notes that a node leads no more since it runs no more.
func (o *observer) termOver(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over(node, "")
}

func (o *observer) over(node, reason string) {
	for i := range o.terms {
		if t := &o.terms[i]; t.Node == node && t.Over.IsZero() {
			t.Over, t.Reason = time.Now(), reason
		}
	}
}

// handler returns what shows the observer all lines of the nodes' logs, and passes them on.
func (o *observer) handler(to slog.Handler) slog.Handler { return &listener{to, o, ""} }

type listener struct {
	slog.Handler
	observer *observer
	node     string
}

func (l *listener) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *listener) Handle(ctx context.Context, r slog.Record) error {
	l.observer.logged(l.node, r)
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

func (l *listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &listener{l.Handler.WithAttrs(attrs), l.observer, l.node}
	for _, a := range attrs {
		if a.Key == "node" {
			with.node = a.Value.String()
		}
	}
	return with
}

func (l *listener) WithGroup(name string) slog.Handler {
	return &listener{l.Handler.WithGroup(name), l.observer, l.node}
}

// isDelayTopic tells a source from a target.
func isDelayTopic(topic string) bool { return strings.HasSuffix(topic, ".delay") }

// stalledBroker is what a fault of a topic is about that a stalled broker leads.
const stalledBroker = "stalled-broker"

// lookAtStalls notes which topics a stalled broker leads partitions of: for them it is a fault, until none is stalled, since
// what was sent to one is waited for whoever leads by then. No other target may feel it.
func (o *observer) lookAtStalls() {
	brokers := o.cluster.faults.stalledBrokers()
	if len(brokers) == 0 {
		for about := range o.open {
			if strings.HasPrefix(about, stalledBroker) {
				o.ended(about)
			}
		}
		return
	}
	note := func(topic string) {
		for _, p := range o.cluster.kafka.PartitionInfos(topic) {
			if slices.Contains(brokers, p.Leader) {
				o.began(stalledBroker+" "+topic, ledger.Fault{Kind: "stall", Topic: topic, From: time.Now()})
			}
		}
	}
	note(o.cluster.config.DeadLetter.Topic)
	for topic := range o.created {
		note(topic)
	}
}
