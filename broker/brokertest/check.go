package brokertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/storage"
)

// settle ends all faults, so that everything has to be delivered soon, by the terms that run: it
// restarts nothing that runs, and moves no leadership.
func (p *player) settle(settings arguments) {
	p.t.Helper()
	p.mend()
	for _, n := range p.nodes {
		n.thaw()
		p.network.set(open, n.member.ID, p.hosts()...)
		n.supervise() // it may have ended a moment ago
		if !n.running() {
			n.start()
		}
	}
	p.reroute()
	p.awaitAnswers()
	p.watch(p.faults.allGivenUp())
	p.resumeAll()
	for _, n := range p.nodes {
		n.supervise() // or has meanwhile
	}
	p.observer.lookAtLinks("cut", time.Now())
	p.observer.ledger.Quiet = time.Now()
	deadline := time.Now().Add(p.enough(settings))
	left, err := strconv.Atoi(settings.value("left", "0"))
	p.must(err)
	for !p.isSettled(left) && time.Now().Before(deadline) {
		p.watch(time.Now().Add(time.Second))
	}
}

// horizon is how far ahead something may be due that a run waits for.
const horizon = 10 * time.Minute

// enough is how long it may take until all is delivered that is due within the horizon: a little
// more than what the checks allow for (ledger.Ledger.patience and what is recovered from).
func (p *player) enough(settings arguments) time.Duration {
	wait := 2*time.Minute + 40*p.config.Raft.Heartbeat
	last := time.Now()
	for _, r := range p.produced {
		if due := time.UnixMilli(r.due); due.After(last) && due.Before(time.Now().Add(horizon)) {
			last = due
		}
		if !p.observer.created[r.target] && r.target != p.config.DeadLetter.Topic {
			wait = max(wait, 3*time.Minute+40*p.config.Raft.Heartbeat+p.config.Routes[0].MissingTargetTimeout)
		}
	}
	for _, c := range p.changes {
		if due := time.UnixMilli(c.Due); due.After(last) && due.Before(time.Now().Add(horizon)) {
			last = due
		}
	}
	return max(time.Until(last)+wait, p.span(settings.value("patience", "0s")))
}

// isSettled reports whether all nodes have the same, and no more than left that is due soon.
func (p *player) isSettled(left int) bool {
	if !slices.ContainsFunc(p.nodes, func(n *node) bool { return n.running() && n.broker.Leading() }) {
		return false // nodes that have just started know nothing yet
	}
	var state storage.State
	for i, n := range p.nodes {
		if !n.running() {
			return false
		}
		other := n.raft().Store().State()
		if i > 0 && (other.AppliedIndex != state.AppliedIndex || other.Pending != state.Pending) {
			return false
		}
		state = other
	}
	if p.positions(p.leader()) != "" { // first: what is taken in after that is in the schedule
		return false
	}
	soon := time.Now().Add(horizon).UnixMilli()
	store := p.nodes[0].raft().Store()
	before := store.Scanned()
	items, _, done, err := store.Scan(storage.Ref{}, storage.Ref{}, left+1, nil, nil)
	p.must(err)
	p.observer.own += int64(store.Scanned() - before)
	return len(items) <= left && done || len(items) > left && items[left].Due >= soon
}

// check holds what happened against the promises.
func (p *player) check(settings arguments) {
	p.t.Helper()
	p.checkStores()
	l := p.gather() // with what the stores have shown
	for _, problem := range l.Judge() {
		p.t.Errorf("%s: %s", problem.Check, problem.Text)
	}
	p.checkSettings(settings, l)
	if problem := p.positions(p.leader()); problem != "" {
		p.t.Errorf("positions: %s", problem)
	}
	p.tell(l)
}

// checkSettings holds what came out against what the script itself says of it.
func (p *player) checkSettings(settings arguments, l *ledger.Ledger) {
	p.t.Helper()
	letters := make(map[ledger.Identity]bool)
	for _, d := range l.Deliveries {
		letters[d.Identity] = letters[d.Identity] || d.Topic == l.DeadLetters
	}
	dead := 0
	for _, r := range l.Records {
		if r.Target != l.DeadLetters && letters[r.Identity] {
			dead++
		}
	}
	duplicates := 0
	for _, n := range l.Duplicates() {
		duplicates += n
	}
	for _, said := range []struct {
		setting, check string
		got            int
	}{{"dead", "dead-letter", dead}, {"duplicates", "duplicates", duplicates}, {"left", "stuck", len(l.Pending)}} {
		if want, ok := settings.values[said.setting]; ok && want != strconv.Itoa(said.got) {
			p.t.Errorf("%s: the script says %s=%s, and it is %d", said.check, said.setting, want, said.got)
		}
	}
}

// checkStores looks at each node's schedule as a whole.
func (p *player) checkStores() {
	p.t.Helper()
	for _, n := range p.nodes {
		if err := n.raft().Store().Check(); err != nil {
			p.t.Errorf("storage: of %s: %v", n.member.ID, err)
		}
	}
	for deadline := time.Now().Add(time.Minute); p.observer.digest(p.nodes) < len(p.nodes); p.watch(time.Now().Add(time.Second)) {
		if time.Now().After(deadline) {
			var applied []string
			for _, n := range p.nodes {
				s := n.raft().Status()
				applied = append(applied, fmt.Sprintf("%s (%s) has applied %d of %d, committed %d", n.member.ID, s.State, s.AppliedIndex, s.LastIndex, s.CommitIndex))
			}
			p.t.Errorf("digest: nodes that have nothing to do have not applied the same: %s", strings.Join(applied, ", "))
			return
		}
	}
}

// expect checks something in the middle of a script.
func (p *player) expect(a arguments) error {
	switch what := a.word(0); what {
	case "delivered":
		want, err := strconv.Atoi(a.value("count", "1"))
		if err != nil {
			return err
		}
		got := map[ledger.Identity]bool{}
		for _, d := range p.consume() {
			if d.Topic == a.word(1) {
				got[d.Identity] = true
			}
		}
		if len(got) != want {
			return fmt.Errorf("%d messages delivered to %s, want %d", len(got), a.word(1), want)
		}
	case "pending":
		want := a.value("count", "0")
		if got := strconv.FormatUint(p.leader().raft().Store().Pending(), 10); got != want {
			return fmt.Errorf("%s messages pending, want %s", got, want)
		}
	case "problem", "no-problem":
		problems := p.leader().broker.Status().Problems
		isNamed := func(problem string) bool { return strings.Contains(problem, a.word(1)) }
		if slices.ContainsFunc(problems, isNamed) != (what == "problem") {
			return fmt.Errorf("the leader has the problems %q", problems)
		}
	case "level":
		if got := fmt.Sprint(p.leader().raft().Store().Level()); got != a.word(1) {
			return fmt.Errorf("feature level %s, want %s", got, a.word(1))
		}
	case "leader":
		p.leader()
	default:
		return fmt.Errorf("cannot expect %q", what)
	}
	return nil
}
