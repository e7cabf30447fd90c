package brokertest

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// Events are what lines "on" wait for. Each comes from where it happens: what is committed from
// the goroutine that applies the log (node.Config.Applied), what goes to Kafka and back from
// around the Sink, and the rest from lines of the log. Whoever raises an event waits until what
// the script wants then is done, so that a fault falls between this step and the next.

// A scene is what of a script is waiting for events. Any goroutine of the cluster raises them;
// the player alone acts.
//
//	a node: raise --> due --> the player, in any of its pauses
//	   ^------ done, or the node ends -------'
type scene struct {
	report *Report
	start  time.Time

	mu     sync.Mutex
	armed  []armed
	due    []*cue
	called chan struct{} // holds a token when something is due
	over   bool
}

// An armed is a line "on" that was not carried out.
type armed struct {
	step
	seen int // how often its event has happened since it counts
}

// A cue is a step whose event has happened.
type cue struct {
	step step
	at   *node
	done chan struct{}
}

func newScene(steps []step, report *Report, start time.Time) *scene {
	s := &scene{report: report, start: start, called: make(chan struct{}, 1)}
	for _, step := range steps {
		s.armed = append(s.armed, armed{step: step})
	}
	return s
}

// raise says that the event has happened at the node, and returns when what waited for that was
// carried out. A node that is being ended does not wait: who ends it waits for the node.
func (s *scene) raise(n *node, event string) {
	s.report.event(event)
	for _, c := range s.cues(n, event) {
		select {
		case <-c.done:
			n.clock.now() // frozen: this goroutine is as well
		case <-n.ending():
		}
	}
}

// cues takes what waited for the event out of armed and gives it to the player.
func (s *scene) cues(n *node, event string) []*cue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	s.armed = slices.DeleteFunc(s.armed, func(a armed) bool { return a.on.nth == 0 }) // carried out
	var cues []*cue
	since := time.Since(s.start)
	for i := range s.armed {
		a := &s.armed[i]
		if a.on.event != event || since < a.on.after {
			continue
		}
		if a.seen++; a.seen == a.on.nth {
			cues = append(cues, &cue{step: a.step, at: n, done: make(chan struct{})})
			a.on.nth = 0
		}
	}
	s.due = append(s.due, cues...)
	if len(s.due) > 0 {
		select {
		case s.called <- struct{}{}:
		default:
		}
	}
	return cues
}

// take returns what is due now.
func (s *scene) take() []*cue {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.due
	s.due = nil
	return due
}

// end lets nothing more become due, and whoever waits go on.
func (s *scene) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, c := range s.due {
		close(c.done)
	}
	s.due = nil
}

// never returns the lines whose event did not happen.
func (s *scene) never() []step {
	s.mu.Lock()
	defer s.mu.Unlock()
	var steps []step
	for _, a := range s.armed {
		if a.on.nth > 0 {
			steps = append(steps, a.step)
		}
	}
	return steps
}

// wait lets virtual time pass, and carries out what becomes due meanwhile.
func (p *player) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-p.scene.called:
			p.follow()
		}
	}
}

// waitFor is wait until the channel is closed.
func (p *player) waitFor(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-p.scene.called:
			p.follow()
		}
	}
}

// while waits until something is done that a node does for the player. Events go on meanwhile: the node waits for what
// they bring, in the middle of applying the log perhaps.
func (p *player) while(does func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		does()
	}()
	p.waitFor(done)
}

// follow carries out what is due. What a step waits for may make another one due: that comes
// in between then, as it would with two people at two terminals.
func (p *player) follow() {
	for _, c := range p.scene.take() {
		c.step.args = c.step.args.at(c.at.member.ID)
		p.do(c.step)
		close(c.done)
	}
}

// at returns the arguments with the node's name in place of "here".
func (a arguments) at(node string) arguments {
	a.words = slices.Clone(a.words)
	for i, word := range a.words {
		if word == "here" {
			a.words[i] = node
		}
	}
	return a
}

// applied raises what the node has applied as the leader.
func (n *node) applied(command raftfsm.Command, result raftfsm.Result) {
	if n.killed.Load() {
		return // one that is alone can still commit
	}
	var store *storage.Store
	if raft := n.raft(); raft != nil {
		store = raft.Store()
	}
	n.cluster.observer.applied(store, command, result)
	if !n.leads.Load() {
		return
	}
	switch c := command.(type) {
	case raftfsm.ClaimCommand:
		n.cluster.raise(n, "claim")
		n.parked(c.Claim.Holds)
	case raftfsm.ChangeClaim:
		n.cluster.raise(n, "claim")
		n.parked(c.Set)
	case raftfsm.Ack:
		n.cluster.raise(n, "acked")
	case raftfsm.Ingest:
		n.cluster.raise(n, "taken")
	}
}

// parked raises that a claim with holds on targets that had none is committed.
func (n *node) parked(holds []storage.Hold) {
	for _, hold := range holds {
		if !n.held[hold.Target] {
			n.cluster.raise(n, "parked")
		}
	}
	raft := n.raft()
	if raft == nil {
		return // the node was ended meanwhile
	}
	n.held = make(map[string]bool)
	for _, hold := range raft.Store().Holds() {
		n.held[hold.Target] = true
	}
}

// An observedSink raises what goes to Kafka and comes back.
type observedSink struct {
	broker.Sink
	node *node
}

func (s observedSink) Send(d deliver.Delivery, done func(deliver.Receipt, error)) {
	s.node.cluster.observer.sent(s.node.member.ID, d)
	s.Sink.Send(d, func(receipt deliver.Receipt, err error) {
		if err != nil {
			s.node.cluster.observer.failed(d.Topic)
		}
		s.node.cluster.raise(s.node, "answered")
		done(receipt, err)
	})
	s.node.cluster.raise(s.node, "handed")
}

// Partitions raises "probed" if one of the topics is parked.
func (s observedSink) Partitions(ctx context.Context, topics []string) []deliver.PartitionCount {
	counts := s.Sink.Partitions(ctx, topics)
	s.node.cluster.observer.told(topics, counts)
	isAsked := func(hold storage.Hold) bool { return slices.Contains(topics, hold.Target) }
	if raft := s.node.raft(); raft != nil && slices.ContainsFunc(raft.Store().Holds(), isAsked) {
		s.node.cluster.raise(s.node, "probed")
	}
	return counts
}

// An observedLog raises what a line of the log says has happened.
type observedLog struct {
	slog.Handler
	node *node
	loud bool // of a part that logs its own debugging
}

func (h observedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, level) || !h.loud && level >= slog.LevelDebug
}

func (h observedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.loud = h.loud || slices.ContainsFunc(attrs, func(a slog.Attr) bool {
		return a.Key == "component" && slices.Contains([]string{"raft", "raft-net", "raft-wal"}, a.Value.String())
	})
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h observedLog) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

func (h observedLog) Handle(ctx context.Context, r slog.Record) error {
	if h.Handler.Enabled(ctx, r.Level) {
		if err := h.Handler.Handle(ctx, r); err != nil {
			return err
		}
	}
	switch r.Message {
	case "flushed", "manifest names what was flushed", "received", "merged":
		h.node.files.written.Add(1)
	}
	switch r.Message {
	case "leading":
		h.node.leads.Store(true)
		h.node.cluster.raise(h.node, "term")
	case "term ended":
		h.node.leads.Store(false)
		h.node.cluster.raise(h.node, "term-end")
	case "flushed":
		h.node.pause(syncsOfFile / 2)
		h.node.cluster.raise(h.node, "flushed")
		h.node.pause(syncsOfFile / 2)
	case "received":
		h.node.pause(syncsOfFile)
		h.node.cluster.raise(h.node, "received")
	case "manifest names what was flushed":
		h.node.cluster.raise(h.node, "named")
	case "merged":
		h.node.pause(syncsOfFile)
		h.node.cluster.raise(h.node, "merged")
	}
	return nil
}
