package brokertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/storage"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func readScript(t *testing.T, path string) script {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := parseScript(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return s
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
		p := newPlayer(c, report)
		p.scene = newScene(s.armed, report, p.start)
		c.raise, c.pause, c.waitFor = p.scene.raise, p.wait, p.waitFor
		defer p.scene.end()
		defer func() { report.VirtualSeconds = time.Since(p.start).Seconds() }()
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
	case err != nil:
		p.t.Fatalf("script: line %d: %v", s.line, err)
	default:
		p.report.fault(s.verb)
	}
}

// hasNode waits a little for a leader or a follower, if that is the name, and reports whether
// there is one: faults may have left none.
func (p *player) hasNode(name string) bool {
	if name != "leader" && name != "follower" {
		return true
	}
	for deadline := time.Now().Add(20 * p.config.Raft.Heartbeat); ; p.pause(p.config.Raft.Heartbeat) {
		leads := slices.IndexFunc(p.nodes, func(n *node) bool { return n.reachable() && n.broker.Leading() })
		other := slices.IndexFunc(p.nodes, (*node).reachable)
		if leads >= 0 && (name == "leader" || other >= 0 && other != leads || slices.ContainsFunc(p.nodes[leads+1:], (*node).reachable)) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// A player carries a script out and remembers what has to come true.
type player struct {
	*Cluster
	report   *Report
	scene    *scene // nil where nobody waits for events
	start    time.Time
	produced []produced
	steps    []clockStep
	// forbidden are the topics that the nodes may look at and not write to.
	forbidden map[string]*kfake.FaultHandle
}

func newPlayer(c *Cluster, report *Report) *player {
	return &player{Cluster: c, report: report, start: time.Now(), forbidden: make(map[string]*kfake.FaultHandle)}
}

// A clockStep says how wrong the only node's clock is from a moment on. Both in
// milliseconds.
type clockStep struct{ at, offset int64 }

// play carries out a step, and has it noted.
func (p *player) play(s step) error {
	began := time.Now()
	err := p.carryOut(s)
	if err == nil {
		p.observer.step(s, began)
	}
	return err
}

// watch lets time pass, and looks at the nodes meanwhile.
func (p *player) watch(until time.Time) {
	for left := time.Until(until); left > 0; left = time.Until(until) {
		p.pause(min(left, max(time.Second, p.config.Raft.Heartbeat)))
		p.observer.sample()
	}
}

func (p *player) carryOut(s step) error {
	name := s.args.word(0)
	switch s.verb {
	case "create":
		return p.createTopic(name, s.args)
	case "delete":
		p.kafka.DeleteTopic(name)
		return nil
	case "forbid":
		p.forbidden[name] = p.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: name, Err: kerr.TopicAuthorizationFailed, Count: -1})
		return nil
	case "allow":
		p.forbidden[name].Remove()
		return nil
	case "partitions":
		n, err := strconv.Atoi(s.args.word(1))
		if err != nil {
			return err
		}
		user, admin := p.user()
		defer user.Close()
		_, err = admin.UpdatePartitions(context.Background(), n, name)
		return err
	case "produce":
		return p.produce(name, s.args)
	case "start":
		return p.each(name, (*node).start, func(n *node) bool { return !n.running() })
	case "stop":
		return p.each(name, (*node).stop, (*node).running)
	case "kill":
		return p.each(name, (*node).kill, (*node).running)
	case "freeze":
		if !p.node(name).freeze() {
			return errNoEffect
		}
	case "thaw":
		return p.each(name, (*node).thaw, func(n *node) bool { return n.frozen.Load() })
	case "cut":
		p.disturb(cut, p.node(name), s.args)
	case "silence":
		p.disturb(silent, p.node(name), s.args)
	case "isolate":
		n := p.node(name)
		for _, other := range p.nodes {
			p.network.set(silent, n.member.ID, other.member.ID)
		}
	case "heal":
		healed := p.nodes
		if name != "" {
			healed = []*node{p.node(name)}
		}
		for _, n := range healed {
			p.network.set(open, n.member.ID, p.hosts()...)
		}
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
		err := p.raise(strings.ReplaceAll(s.args.value("refused", ""), ":", " "))
		if err != nil && s.args.has("maybe") {
			return errNoEffect
		}
		return err
	case "route": // the only one for nodes that are started from now on
		p.config.Routes = []config.Route{config.NewRoute(name)}
	case "step":
		by, err := time.ParseDuration(s.args.word(1))
		if err != nil {
			return err
		}
		if len(p.nodes) > 1 {
			return errors.New("only the clock of a single node can be set")
		}
		offset := p.node(name).clock.step(by)
		p.steps = append(p.steps, clockStep{time.Now().UnixMilli(), offset.Milliseconds()})
	case "expect":
		return p.expect(s.args)
	default:
		return fmt.Errorf("%q cannot be carried out", s.verb)
	}
	return nil
}

// raise raises the feature level, or expects an error that says refused.
func (p *player) raise(refused string) error {
	_, err := p.leader().broker.RaiseLevel(context.Background())
	if refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
		return fmt.Errorf("raised with error %v, want one that says %q", err, refused)
	}
	if refused == "" {
		return err
	}
	return nil
}

// disturb cuts or silences links of the node.
func (p *player) disturb(state linkState, n *node, a arguments) {
	if a.has("oneway") {
		p.network.setOneway(state, n.member.ID, p.others(a)...)
		return
	}
	p.network.set(state, n.member.ID, p.others(a)...)
}

// others are the hosts that cut and silence mean: those named with from=, or all.
func (p *player) others(a arguments) []string {
	if host := a.value("from", ""); host != "" {
		return []string{host}
	}
	var others []string
	for _, n := range p.nodes {
		others = append(others, n.member.ID)
	}
	return append(others, kafkaHost)
}

// errNoEffect is what a step gives that finds nothing to do: an event may have done it before,
// or a line was left out of the script.
var errNoEffect = errors.New("nothing to do")

// each does it to the node of that name, or to all if the name is "all" or "down", if it fits.
func (p *player) each(name string, do func(*node), fits func(*node) bool) error {
	meant := p.nodes
	if name != "all" && name != "down" {
		meant = []*node{p.node(name)}
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

// askReach is how a node asks another whether Kafka answers it.
func (c *Cluster) askReach(from *node) func(context.Context, member.Member) error {
	return func(ctx context.Context, m member.Member) error {
		state, _ := c.network.dialing(link{from.member.ID, m.ID})
		other := c.node(m.ID)
		if state != open || !other.reachable() {
			return fmt.Errorf("ask %s: %w", m.ID, errCut)
		}
		return other.broker.ReachKafka(ctx)
	}
}

// ask is how a node of a new cluster asks the others, in place of their HTTP API.
func (c *Cluster) ask(from *node) func(context.Context, member.Member) (member.Standing, error) {
	return func(_ context.Context, m member.Member) (member.Standing, error) {
		state, _ := c.network.dialing(link{from.member.ID, m.ID})
		other := c.node(m.ID)
		if state != open || !other.reachable() {
			return member.Standing{}, fmt.Errorf("ask %s: %w", m.ID, errCut)
		}
		return other.raft().Standing(), nil
	}
}
