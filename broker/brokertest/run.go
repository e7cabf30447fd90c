package brokertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/storage"
)

func readScript(t testing.TB, path string) script {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := parseScript(file)
	if err != nil {
		t.Fatalf("script: %s: %v", path, err)
	}
	return s
}

// PlayFile plays the script of a file, and fails the test where what happens is wrong. It writes a Report to the
// other file, as JSON, unless that is "".
func PlayFile(t *testing.T, path, report string) {
	t.Helper()
	r := NewReport()
	r.alone = true
	if report != "" {
		defer func() {
			if err := r.write(report); err != nil {
				t.Error(err)
			}
		}()
	}
	readScript(reporting{t, r}, path).playFor(t, r)
}

// play carries the script out, in a bubble of its own, and checks the invariants.
func (s script) play(t *testing.T) {
	t.Helper()
	s.playFor(t, NewReport())
}

// playFor plays, and notes in the report what was done and what is wrong.
func (s script) playFor(t *testing.T, report *Report) {
	t.Helper()
	s.playAndLook(t, report, nil)
}

// playAndLook is playFor, and has a look before the faults are mended.
func (s script) playAndLook(t *testing.T, report *Report, look func(*player)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(reporting{t, report}, s.settings)
		defer c.stop()
		c.observer.weighs = report.alone
		p := newPlayer(c, report)
		p.scene = newScene(s.armed, report, p.start)
		c.raise, c.pause, c.waitFor = p.scene.raise, p.wait, p.waitFor
		defer p.scene.end()
		defer func() { report.VirtualSeconds = (time.Since(p.start) - p.idle).Seconds() }()
		for _, step := range s.steps {
			p.watch(p.start.Add(step.at))
			p.do(step)
		}
		if look != nil {
			look(p)
		}
		p.scene.end()
		for _, step := range p.scene.never() {
			c.t.Logf("line %d: its event did not happen", step.line)
		}
		p.settle(s.settings)
		p.check(s.settings)
		if len(p.produced) == 0 {
			c.t.Errorf("script: %v: no record was produced", errChecksNothing)
		}
	})
}

// do does what the step says and notes it in the report.
func (p *player) do(s step) {
	p.t.Helper()
	p.t.Logf("at %v line %d: %s %v %v", time.Since(p.start), s.line, s.verb, s.args.words, s.args.values)
	err := errNoEffect
	if s.verb == "expect" || p.hasNode(s.args.word(0)) {
		err = p.play(s)
	}
	switch {
	case errors.Is(err, errNoEffect):
		p.t.Logf("line %d: %v", s.line, err)
		p.report.skipped()
	case err != nil:
		p.t.Fatalf("script: line %d: %v", s.line, err)
	default:
		p.report.fault(s.verb)
	}
}

// hasNode waits a little for a leader or a follower, if that is the name, and reports whether
// there is one: faults may have left none.
func (p *player) hasNode(name string) bool {
	if !isRole(name) {
		return true
	}
	_, err := p.meant(name)
	return err == nil
}

// A player carries a script out and remembers what has to come true.
type player struct {
	*Cluster
	report   *Report
	scene    *scene
	start    time.Time
	idle     time.Duration // for which no node ran
	produced []produced
	changes  []*change
	asking   sync.WaitGroup    // of those that are not answered
	clocks   map[*node]bool    // that the script has set
	deleted  []ledger.Delivery // what had come to topics that were deleted since
	limited  map[string]bool   // topics that take small records only
}

func newPlayer(c *Cluster, report *Report) *player {
	start := time.Now()
	return &player{Cluster: c, report: report, scene: newScene(nil, report, start), start: start, clocks: make(map[*node]bool), limited: make(map[string]bool)}
}

// play carries out a step, and has it noted.
func (p *player) play(s step) error {
	began := time.Now()
	err := p.carryOut(s)
	if err == nil {
		p.observer.step(s, began)
	}
	return err
}

// watch lets time pass, and looks at the nodes meanwhile. While none runs there is nothing to look at,
// and nothing happens: events come from nodes.
func (p *player) watch(until time.Time) {
	for left := time.Until(until); left > 0; left = time.Until(until) {
		if !slices.ContainsFunc(p.nodes, (*node).running) {
			p.pause(left)
			p.idle += left
			continue
		}
		step := max(time.Second, p.config.Raft.Heartbeat)
		if p.faults.isAstray() {
			step = time.Second // how long it is tells what may become of messages
		}
		p.pause(min(left, step))
		for _, n := range p.nodes {
			n.supervise()
		}
		p.observer.sample()
	}
}

func (p *player) carryOut(s step) error {
	name := s.args.word(0)
	any := func(*node) bool { return true }
	switch s.verb {
	case "create":
		return p.createTopic(name, s.args)
	case "delete":
		return p.deleteTopic(name)
	case "recreate":
		return p.recreateTopic(name, s.args)
	case "partitions":
		return p.addPartitions(name, s.args)
	case "trim":
		return p.trimTopic(name, s.args)
	case "shorten":
		return p.shorten(name, s.args)
	case "forbid":
		return p.faults.forbid(name)
	case "limit":
		return p.limitTopic(name, s.args.value("bytes", ""))
	case "elect":
		return p.elect(name, s.args)
	case "allow":
		return p.faults.allow(name)
	case "slow":
		p.faults.answer(name, p.span(s.args.value("answer", "")))
	case "hush":
		p.faults.answer(name, never)
	case "well":
		if name == "all" {
			p.mend()
			return nil
		}
		return p.wellTopic(name)
	case "error":
		return p.faults.fail(name, s.args)
	case "stall":
		return p.faults.stall(brokerNumber(name))
	case "revive":
		return p.faults.revive(brokerNumber(name))
	case "stale":
		user, _ := p.user()
		defer user.Close()
		return p.faults.stale(name, p.span(s.args.value("lasts", "5s")), user)
	case "produce":
		return p.produce(name, s.args)
	case "change":
		return p.change(name, s.args)
	case "start":
		return p.each(name, (*node).start, func(n *node) bool { return !n.running() })
	case "stop":
		return p.each(name, (*node).stop, (*node).running)
	case "kill":
		return p.each(name, (*node).kill, (*node).running)
	case "freeze":
		return p.each(name, func(n *node) { n.freeze() }, func(n *node) bool { return n.reachable() })
	case "thaw":
		return p.each(name, (*node).thaw, func(n *node) bool { return n.frozen.Load() })
	case "cut":
		return p.each(name, func(n *node) { p.disturb(cut, n, s.args) }, any)
	case "silence":
		return p.each(name, func(n *node) { p.disturb(silent, n, s.args) }, any)
	case "isolate":
		return p.each(name, func(n *node) { p.network.set(silent, n.member.ID, p.nodeHosts()...) }, any)
	case "heal":
		if p.network.whole() {
			return errNoEffect
		}
		return p.each(cmp.Or(name, "all"), func(n *node) { p.network.set(open, n.member.ID, p.hosts()...) }, any)
	case "replace":
		return p.replace(name)
	case "program": // of the feature level named runs there from now on; 0: the newest
		level, err := strconv.ParseUint(s.args.word(1), 10, 32)
		if err != nil {
			return err
		}
		install := func(n *node) { n.install(storage.Level(level)) }
		return p.each(name, install, func(n *node) bool { return name != "all" || n.running() })
	case "raise":
		if _, err := p.meant("leader"); err != nil && s.args.has("maybe") {
			return err // an event may have felled the only node
		}
		err := p.raise(strings.ReplaceAll(s.args.value("refused", ""), ":", " "))
		if err != nil && s.args.has("maybe") {
			return errNoEffect
		}
		return err
	case "pause", "resume":
		return p.pauseOrResume(s.verb, name, s.args.word(1))
	case "route": // the only one for nodes that are started from now on
		p.config.Routes = []config.Route{p.routeFrom(name)}
	case "step":
		return p.setClock(name, "step", s.args.word(1))
	case "clock":
		if s.args.has("well") {
			return p.each(name, p.setRight, func(n *node) bool { return !n.clock.isRight() })
		}
		return p.setClock(name, s.args.order[0], s.args.values[s.args.order[0]])
	case "disk":
		return p.setDisk(name, s.args)
	case "config":
		return p.each(name, func(n *node) { n.config[s.args.order[0]] = s.args.values[s.args.order[0]] }, any)
	case "expect":
		return p.expect(s.args)
	default:
		return fmt.Errorf("%q cannot be carried out", s.verb)
	}
	return nil
}

// routeFrom returns the script's route, from other topics.
func (p *player) routeFrom(topics string) config.Route {
	route := p.config.Routes[0]
	route.From = topics
	return route
}

// reroute has all nodes run with a route from all delay topics, as at the beginning.
func (p *player) reroute() {
	p.config.Routes = []config.Route{p.routeFrom(allDelayTopics)}
	for _, n := range p.nodes {
		if n.running() && n.own.Routes[0].From != allDelayTopics {
			n.stop()
			n.start()
		}
	}
	p.observer.ended("route")
}

// raise raises the feature level, or expects an error that says refused.
func (p *player) raise(refused string) error {
	leader := p.leader()
	var err error
	p.while(func() { _, err = leader.broker.RaiseLevel(context.Background()) })
	if refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
		return fmt.Errorf("raised with error %v, want one that says %q", err, refused)
	}
	if refused == "" {
		return err
	}
	return nil
}

// setClock sets a node's clock by so much, or lets it drift.
func (p *player) setClock(name, how, text string) error {
	set := func(n *node, by time.Duration) { n.clock.step(by) }
	by, err := time.ParseDuration(text)
	if how == "drift" {
		set = func(n *node, by time.Duration) { n.clock.drifts(by) }
		by, err = parseDrift(text)
	}
	if err != nil {
		return err
	}
	return p.each(name, func(n *node) {
		p.clocks[n] = true
		set(n, by)
		p.observer.struck(ledger.Fault{Kind: "clock", Node: n.member.ID, From: time.Now()})
	}, func(*node) bool { return true })
}

// setRight sets a node's clock to the time, which is a step as well.
func (p *player) setRight(n *node) {
	n.clock.well()
	p.observer.struck(ledger.Fault{Kind: "clock", Node: n.member.ID, From: time.Now()})
}

// setDisk makes a node's disk slow, full or one that tears, or ends all of that.
func (p *player) setDisk(name string, a arguments) error {
	return p.each(name, func(n *node) {
		d := n.files
		n.files.change(func() {
			switch {
			case a.has("full"):
				d.full = true
			case a.has("torn"):
				d.torn = true
			case a.has("well"):
				d.slow, d.full, d.torn = 0, false, false
			default:
				d.slow = p.span(a.value("slow", ""))
			}
		})
	}, func(n *node) bool { return !a.has("well") || !n.files.isWell() })
}

// disturb cuts or silences links of the node.
func (p *player) disturb(state linkState, n *node, a arguments) {
	if a.has("oneway") {
		p.network.setOneway(state, n.member.ID, p.others(a)...)
		return
	}
	p.network.set(state, n.member.ID, p.others(a)...)
}

// others are the hosts that cut and silence mean: those named with from=, or all. The name
// "kafka" means all its brokers, kafka1, kafka2, ... one of them.
func (p *player) others(a arguments) []string {
	switch host := a.value("from", ""); host {
	case "":
	case kafkaHost:
		return p.kafkaHosts()
	case kafkaHost + "1":
		return []string{kafkaHost}
	default:
		return []string{host}
	}
	return append(p.nodeHosts(), p.kafkaHosts()...)
}

// mend ends what lasts, but for links and nodes.
func (p *player) mend() {
	p.faults.mend()
	for topic := range p.limited {
		p.must(p.unlimitTopic(topic))
	}
	for _, n := range p.nodes {
		if p.clocks[n] && !n.clock.isRight() {
			p.setRight(n)
		}
		n.files.change(func() { n.files.slow, n.files.full, n.files.torn = 0, false, false })
	}
	p.observer.wellAll()
}

// each does it to the node of that name, or to all if the name is "all" or "down", if it fits.
func (p *player) each(name string, do func(*node), fits func(*node) bool) error {
	meant := p.nodes
	if name != "all" && name != "down" {
		n, err := p.meant(name)
		if err != nil {
			return err
		}
		meant = []*node{n}
	}
	result := errNoEffect
	for _, n := range meant {
		if fits(n) {
			do(n)
			result = nil
		}
	}
	return result
}

// meant returns the node that a step names. There may be no leader, and no follower, for a while.
func (p *player) meant(name string) (*node, error) {
	if !isRole(name) {
		return p.node(name), nil
	}
	for deadline := time.Now().Add(20 * p.config.Raft.Heartbeat); ; p.pause(p.config.Raft.Heartbeat / 10) {
		if n := p.find(name); n != nil {
			return n, nil
		}
		if time.Now().After(deadline) {
			return nil, errNoEffect
		}
	}
}

// replace gives the node an empty disk and has the leader take it in again.
func (p *player) replace(name string) error {
	n := p.node(name)
	n.kill()
	n.disk++
	n.start()
	p.await(time.Minute, "replacement of "+n.member.ID, func() bool {
		// Refused for as long as the leader may have heard from the old one.
		return p.leader().raft().Replace(context.Background(), n.member.ID) == nil
	})
	p.await(time.Hour, n.member.ID+" as a voter", func() bool {
		for _, m := range p.leader().raft().Status().Members {
			if m.ID == n.member.ID && m.Voter {
				return n.running()
			}
		}
		return false
	})
	return nil
}
