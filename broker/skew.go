package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/clock"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
)

const (
	// compareEvery is how often a node asks the others for their clocks when all is well.
	compareEvery = 10 * time.Second
	// compareAgain is the time between two comparisons of a node whose clock is not
	// believed, and between the first ones of a process, whose peers may be starting too.
	compareAgain = time.Second
	// comparePatience bounds one comparison.
	comparePatience = time.Second
	// skewedLooks is how often in a row a node must be found skewed before it gives
	// leadership away.
	skewedLooks = 2
	// mostUnread is for how long no member need report its clock, though Raft hears of some: longer than a process or
	// a term takes to begin.
	mostUnread = time.Minute
)

// A ClockReading is what a node answers to another that compares clocks. Nodes of other
// versions read it: a field keeps its meaning.
type ClockReading struct {
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	Micros  int64  `json:"unix_micros"` // of its wall clock, whatever it thinks of that itself
}

// A ClockStatus is what a node knows of the clocks of its cluster.
type ClockStatus struct {
	Standing string           `json:"standing"`          // alone, agreed, skewed or divided, by the last comparison
	Skew     map[string]int64 `json:"skew_ms,omitempty"` // by member: its clock against the median of those that reported
	Stopped  bool             `json:"stopped"`           // nothing becomes due while this node leads, since its clock is not believed
}

// A skew compares this node's clock with those of the other members, and moves
// leadership away from a clock that is wrong. It belongs to the Broker and outlives terms:
// a new leader knows its standing. broker/clock says what is decided.
type skew struct {
	broker *Broker
	wanted chan chan<- struct{} // of terms that begin: closed when their comparison has come to something

	mu      sync.Mutex
	problem string
	status  ClockStatus
	judged  bool // by a majority of all members, when clocks were last compared

	// Of the goroutine that runs.
	looks    int  // that found this node skewed, in a row
	refusing bool // since then
	stops    int  // of the clock, as counted
	said     string
	failures map[string]error // by member: why it did not report when clocks were last compared
	unread   time.Time        // since then, in unreadIn, Raft hears of voters and none reports its clock; zero: it is not so
	unreadIn uint64           // a term of Raft
}

func newSkew(b *Broker) *skew {
	return &skew{broker: b, wanted: make(chan chan<- struct{})}
}

// run compares until ctx ends.
func (k *skew) run(ctx context.Context) {
	b := k.broker
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := compareAgain
	for {
		var begun chan<- struct{}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.clock.Left():
		case begun = <-k.wanted:
		}
		verdict := k.compare(ctx, begun)
		if ctx.Err() != nil {
			return
		}
		k.tell(verdict)
		k.act(ctx, verdict)
		switch {
		case b.clock.State().Stopped: // whoever leads: a term may begin here at any moment
			timer.Reset(compareAgain)
		case len(k.others()) == 0:
			timer.Stop() // until the clock is set
		default:
			timer.Reset(pause)
			if pause = min(2*pause, b.compareEvery); verdict.Standing != clock.Alone {
				pause = b.compareEvery
			}
		}
	}
}

// begin returns when a term may begin as far as its clock is concerned: at once if a majority of all
// members has judged it lately, else when clocks were compared once more. Messages that are fired
// before that cannot be taken back, so only the time that a comparison takes bounds the wait.
func (k *skew) begin(ctx context.Context) error {
	k.mu.Lock()
	judged := k.judged
	k.mu.Unlock()
	if judged || len(k.others()) == 0 {
		return nil
	}
	begun := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case k.wanted <- begun:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-begun:
		return nil
	}
}

func (k *skew) others() []member.Member {
	var others []member.Member
	for _, m := range k.broker.config.Cluster.Members {
		if m.ID != k.broker.config.Node.ID {
			others = append(others, member.Member(m))
		}
	}
	return others
}

// compare asks the other members and settles what is right. As soon as a majority of all
// members stands for or against this node's clock that is settled, and begun is closed: those that
// do not answer hold nobody up.
func (k *skew) compare(ctx context.Context, begun chan<- struct{}) clock.Verdict {
	b := k.broker
	ctx, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	settle := func(v clock.Verdict) {
		b.clock.Settle(v)
		if begun != nil {
			close(begun)
			begun = nil
		}
	}
	others := k.others()
	type answer struct {
		from    string
		reading clock.Reading
		err     error
	}
	answers := make(chan answer, len(others)) // of those who come late, too
	k.failures = make(map[string]error)
	for _, m := range others {
		k.failures[m.ID] = fmt.Errorf("no answer within %v", comparePatience)
		go func() {
			reading, err := k.ask(ctx, m)
			answers <- answer{m.ID, reading, err}
		}()
	}
	var readings []clock.Reading
	for range others {
		select {
		case a := <-answers:
			if k.failures[a.from] = a.err; a.err != nil {
				continue
			}
			readings = append(readings, a.reading)
			if v := b.clock.Judge(readings); v.Proven(len(others) + 1) {
				settle(v)
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	v := b.clock.Judge(readings)
	settle(v)
	k.note(v, readings)
	return v
}

// ask returns what the member's clock says, or why it says nothing that is of use.
func (k *skew) ask(ctx context.Context, m member.Member) (clock.Reading, error) {
	b := k.broker
	asked := b.clock.Elapsed()
	said, err := b.askClock(ctx, m)
	came := b.clock.Elapsed()
	switch {
	case err != nil: // members before this version do not report
		return clock.Reading{}, err
	case said.Node != m.ID || said.Cluster != b.config.Cluster.Name:
		return clock.Reading{}, fmt.Errorf("node %q of cluster %q answers at its API address", said.Node, said.Cluster)
	}
	reading, usable := b.clock.Measure(m.ID, time.UnixMicro(said.Micros), asked, came)
	if !usable {
		return clock.Reading{}, fmt.Errorf("its answer took %v, more than clock.max_skew %v", (came - asked).Round(time.Millisecond), b.config.Clock.MaxSkew)
	}
	return reading, nil
}

// unreadable lists the voters that Raft hears of, and why each does not report its clock, when no member has for longer
// than is excused; else it returns "". One that Raft does not hear of either is down, which is told elsewhere.
func (k *skew) unreadable(v clock.Verdict) string {
	var heard []string
	if v.Standing == clock.Alone && len(k.others()) > 0 {
		node := k.broker.node.Status()
		for _, m := range node.Members {
			isHeard := m.ID == node.Leader || time.Since(m.LastContact) < compareEvery // a follower hears of its leader only
			if m.Voter && m.ID != node.Node && isHeard {
				heard = append(heard, fmt.Sprintf("%s (%v)", m.ID, k.failures[m.ID]))
			}
		}
		if node.Term != k.unreadIn {
			k.unread, k.unreadIn = time.Time{}, node.Term
		}
	}
	switch {
	case len(heard) == 0:
		k.unread = time.Time{}
		return ""
	case k.unread.IsZero():
		k.unread = time.Now()
	}
	if time.Since(k.unread) <= mostUnread {
		return ""
	}
	return strings.Join(heard, ", ")
}

// note keeps what was measured for the status.
func (k *skew) note(v clock.Verdict, readings []clock.Reading) {
	status := ClockStatus{Standing: string(v.Standing)}
	if len(readings) > 0 {
		status.Skew = map[string]int64{k.broker.config.Node.ID: v.Skew.Milliseconds()}
	}
	for _, r := range readings {
		status.Skew[r.Member] = (r.Shift - v.Median).Milliseconds()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status, k.judged = status, v.Proven(len(k.others())+1)
}

// tell counts and logs what has changed, and says in the status what is wrong.
func (k *skew) tell(v clock.Verdict) {
	b := k.broker
	state, unreadable := b.clock.State(), k.unreadable(v)
	problem := ""
	switch {
	case v.Standing == clock.Skewed:
		problem = fmt.Sprintf("the clock of this node is %s the median of those that reported (%s), more than clock.max_skew %v: it does not lead; see to NTP here",
			aheadOf(v.Skew), k.skews(), b.config.Clock.MaxSkew)
	case state.Stopped && v.Standing == clock.Alone:
		problem = fmt.Sprintf("firing is stopped: the clock of this node was set and is %s what it was, and no other member reports its clock: it goes on when the clock was steady for ten seconds", aheadOf(state.Off))
	case state.Stopped:
		problem = fmt.Sprintf("firing is stopped: the clock of this node was set and is %s what it was, and no majority agrees (%s): see to NTP on all nodes", aheadOf(state.Off), k.skews())
	case v.Standing == clock.Divided:
		problem = fmt.Sprintf("no majority of the clocks agrees within clock.max_skew %v (%s): the present leader stays; see to NTP on all nodes", b.config.Clock.MaxSkew, k.skews())
	case unreadable != "":
		problem = fmt.Sprintf("no other member reports its clock, so a wrong one is not noticed here; Raft hears of %s: see that this node reaches their API addresses, to api.tls.ca and to the certificates", unreadable)
	}
	k.mu.Lock()
	k.problem = problem
	k.mu.Unlock()
	if stopped := state.Stops - k.stops; stopped > 0 && b.leads() {
		b.metrics.FiringStopped(stopped)
		b.log.Warn("firing stopped: the clock left the time that was held right", "by", state.Off, "times", stopped)
	}
	k.stops = state.Stops
	// What is wrong with clocks is logged once, not with each second of skew.
	said := string(v.Standing)
	switch {
	case state.Stopped:
		said += " and stopped"
	case unreadable != "":
		said += " and unreadable"
	}
	if said == k.said {
		return
	}
	before := k.said
	k.said = said
	if v.Believed {
		b.log.Warn("firing goes on by the new time: no other member reports its clock, and it has been steady")
	}
	switch {
	case problem != "":
		b.log.Warn("clocks: " + problem)
	case v.Believed, before == "":
	case v.Standing == clock.Alone && len(k.others()) > 0:
		b.log.Info("no other member reports its clock", "before", before)
	default:
		b.log.Info("clocks agree", "standing", said, "before", before)
	}
}

// skews lists the members' clocks against the median.
func (k *skew) skews() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, id := range slices.Sorted(maps.Keys(k.status.Skew)) {
		all = append(all, fmt.Sprintf("%s %+v", id, time.Duration(k.status.Skew[id])*time.Millisecond))
	}
	return strings.Join(all, ", ")
}

func aheadOf(d time.Duration) string {
	if d < 0 {
		return d.Abs().Round(time.Millisecond).String() + " behind"
	}
	return d.Round(time.Millisecond).String() + " ahead of"
}

// act gives leadership to a voter whose clock is right, if this node has it and was found
// skewed twice in a row.
func (k *skew) act(ctx context.Context, v clock.Verdict) {
	b := k.broker
	if v.Standing != clock.Skewed {
		k.looks, k.refusing = 0, false
		return
	}
	if k.looks++; k.looks < skewedLooks {
		return
	}
	to, err := b.node.TransferLeadershipTo(ctx, v.Able)
	if errors.Is(err, raftfsm.ErrNotLeader) {
		k.refusing = false
		return
	}
	if !k.refusing {
		k.refusing = true
		b.metrics.LeadershipRefused()
		b.log.Warn("refusing to lead: this node's clock is wrong", "by", v.Skew, "right_members", v.Able)
	}
	if err != nil {
		k.mu.Lock()
		k.problem += fmt.Sprintf("; leadership cannot be handed to one of %s: %v", strings.Join(v.Able, ", "), err)
		k.mu.Unlock()
		return
	}
	k.refusing = false
	b.log.Warn("leadership handed over", "to", to, "reason", "the clock of this node is "+aheadOf(v.Skew)+" the median")
}

// isSkewed reports whether this node's clock was wrong when clocks were last compared. Any goroutine may call it.
func (k *skew) isSkewed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status.Standing == string(clock.Skewed)
}

// read returns what is known, and what is wrong or "".
func (k *skew) read() (status ClockStatus, problem string) {
	stopped := k.broker.clock.State().Stopped
	k.mu.Lock()
	defer k.mu.Unlock()
	status = k.status
	status.Stopped = stopped
	return status, k.problem
}

// Clock returns what this node answers to one that compares clocks.
func (b *Broker) Clock() ClockReading {
	return ClockReading{Node: b.config.Node.ID, Cluster: b.config.Cluster.Name, Micros: b.clock.Wall().UnixMicro()}
}
