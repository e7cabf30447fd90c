package broker

import (
	"context"
	"errors"
	"fmt"
	"github.com/carillonmq/carillon/client"
	"slices"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// A Status is what a node tells of itself and of its cluster as it knows it. Ids
// are those of the configuration. While a cluster is upgraded, nodes and programs of
// two versions read it: a field keeps its type, what is new gets a field of its own.
type Status struct {
	Node   string `json:"node"`
	State  string `json:"state"`  // leader, follower or candidate; unborn before there is a group, replaced when another disk has our place, failed after an error
	Leader string `json:"leader"` // empty when unknown
	Term   uint64 `json:"term"`
	// NotReady is why the node does not serve yet, or empty.
	NotReady string `json:"not_ready,omitempty"`

	Pending   uint64          `json:"pending"`              // messages that wait
	OldestDue int64           `json:"oldest_due,omitempty"` // of them, epoch milliseconds; 0 when none waits
	Lag       *int64          `json:"lag,omitempty"`        // records of delay topics not read yet; known to the leader while Kafka answers
	Reading   *report.Reading `json:"reading,omitempty"`    // which partitions of delay topics are read; known to the leader
	Parked    []string        `json:"parked,omitzero"`      // targets that cannot be written to; nil, unlike empty: not known, since the node does not lead
	Paused    []client.Pause  `json:"paused,omitempty"`     // by users, as far as this node has applied the log
	Problems  []string        `json:"problems"`             // what keeps the node from its work

	Routes   []string         `json:"routes"`              // patterns of the delay topics, the first that matches counts
	MaxDelay map[string]int64 `json:"max_delay,omitempty"` // by pattern, milliseconds; nil: not told, by an older node
	Targets  *TargetsStatus   `json:"targets,omitempty"`   // nil: likewise
	// DeadLetterTopics take no messages of their own; nil: likewise.
	DeadLetterTopics []string `json:"dead_letter_topics,omitempty"`

	Level   LevelStatus    `json:"feature_level"`
	Clock   ClockStatus    `json:"clock"` // no standing: not told, by an older node
	Members []MemberStatus `json:"members"`
	Raft    RaftStatus     `json:"raft"`
	Storage StorageStatus  `json:"storage"`
}

// A TargetsStatus says by patterns which topics messages may be delivered to.
type TargetsStatus struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"` // wins
}

// A MemberStatus is one member of the cluster as a node sees it.
type MemberStatus struct {
	ID          string `json:"id"`
	API         string `json:"api"`
	Voter       *bool  `json:"voter,omitempty"`        // nil: not known, since this node has not heard of a group yet
	LastContact int64  `json:"last_contact,omitempty"` // epoch milliseconds; known to the leader
	// Silence is how long it was not heard of, since the node leads at most; nil: not known, and of the node itself.
	Silence *time.Duration `json:"-"`
}

// A RaftStatus says how far the replicated log of a node is.
type RaftStatus struct {
	AppliedIndex  uint64 `json:"applied_index"`
	CommitIndex   uint64 `json:"commit_index"`
	LastIndex     uint64 `json:"last_index"`
	SnapshotIndex uint64 `json:"snapshot_index"`
	UnsavedBytes  int64  `json:"unsaved_bytes"` // of log that a restart replays
}

// A StorageStatus says what the schedule of a node takes.
type StorageStatus struct {
	Segments        int    `json:"segments"`
	SegmentBytes    int64  `json:"segment_bytes"`
	MemtableEntries int    `json:"memtable_entries"`
	MemtableBytes   int64  `json:"memtable_bytes"`
	Flushes         uint64 `json:"flushes"`
	Merges          uint64 `json:"merges"`
}

// A Standing is what a node answers to another that asks whether it may be born, or
// which feature level all understand.
type Standing = member.Standing

// Status returns what this node knows at the moment. It reads a few pages of the
// schedule, so it is not for every message.
func (b *Broker) Status() Status {
	node, stats := b.node.Status(), b.node.Store().Stats()
	s := Status{
		Node: node.Node, State: node.State, Leader: node.Leader, Term: node.Term,
		Pending:   b.node.Store().Pending(),
		OldestDue: oldestDue(b.node.Store()),
		Paused:    pausesOf(b.node.Store()),
		Problems:  []string{},
		Targets:   new(TargetsStatus(b.config.Targets)),
		Level:     levelStatus(node),
		Members:   memberStatuses(node.Members),
		Raft: RaftStatus{
			AppliedIndex: node.AppliedIndex, CommitIndex: node.CommitIndex, LastIndex: node.LastIndex,
			SnapshotIndex: node.SnapshotIndex, UnsavedBytes: node.UnsavedBytes,
		},
		Storage: StorageStatus(stats),
	}
	s.tellRoutes(b.config.Routes)
	s.DeadLetterTopics = b.config.DeadLetterTopics()
	if report := b.report.Load(); report != nil {
		s.tell(report)
		s.tellSilence(node.Members, report.Began())
	}
	for _, problem := range []string{node.LogError, node.FlushError, node.ReceiveError} {
		if problem != "" {
			s.Problems = append(s.Problems, "disk: "+problem)
		}
	}
	if problem := b.reach.problem(); problem != "" {
		s.Problems = append(s.Problems, "leadership: "+problem)
	}
	clock, problem := b.skew.read()
	if s.Clock = clock; problem != "" {
		s.Problems = append(s.Problems, "clock: "+problem)
	}
	if problem := b.timeAhead(); problem != "" {
		s.Problems = append(s.Problems, "expiry: "+problem)
	}
	s.Problems = append(s.Problems, b.trouble()...)
	if err := b.ready(node); err != nil {
		s.NotReady = err.Error()
	}
	return s
}

// mostAhead is how far the log's time may be ahead of the leader's clock without a word: clocks that agree differ by
// less, and so do an old leader's and a new one's.
const mostAhead = time.Minute

// timeAhead says what follows when the log's time is far ahead of this node's clock, and this node leads: the clock is behind, or a
// wrong time was believed once, and nothing takes it back.
func (b *Broker) timeAhead() string {
	at := time.UnixMilli(b.node.Store().Time())
	ahead := at.Sub(b.now())
	if ahead <= mostAhead || !b.leads() {
		return ""
	}
	return fmt.Sprintf("the time of the log is %v, %v ahead of the clock: set the clock if it is behind; if it is right, a wrong one was believed, and until then what expires is dropped when it is due, and what is due before then cannot be cancelled, changed or replaced: send messages without an expiry, or begin a new cluster",
		at.UTC().Format(time.RFC3339), ahead.Round(time.Second))
}

func memberStatuses(members []node.MemberStatus) []MemberStatus {
	known := slices.ContainsFunc(members, func(m node.MemberStatus) bool { return m.RaftID != "" })
	all := make([]MemberStatus, len(members))
	for i, m := range members {
		all[i] = MemberStatus{ID: m.ID, API: m.API}
		if known {
			all[i].Voter = &m.Voter
		}
		if !m.LastContact.IsZero() {
			all[i].LastContact = m.LastContact.UnixMilli()
		}
	}
	return all
}

// mostSilent is how long a leader may hear nothing of a member without a word: longer than a node takes to start again.
const mostSilent = time.Minute

// tellSilence adds how long ago the leader has heard of the other members. It began to lead at that time, and may have
// heard of nobody before: one that was lost earlier counts from then.
func (s *Status) tellSilence(members []node.MemberStatus, began time.Time) {
	for i, m := range members {
		if m.ID == s.Node {
			continue
		}
		heard := m.LastContact
		if heard.Before(began) {
			heard = began
		}
		silence := time.Since(heard)
		s.Members[i].Silence = &silence
		if silence > mostSilent {
			s.Problems = append(s.Problems, fmt.Sprintf("members: %s was not heard of for %v: start it, or, if its disk is lost, start it with an empty one and run `carillon cluster replace %s`",
				m.ID, silence.Round(time.Second), m.ID))
		}
	}
}

func (s *Status) tellRoutes(routes []config.Route) {
	s.MaxDelay = make(map[string]int64, len(routes))
	for _, route := range routes {
		s.Routes = append(s.Routes, route.From)
		if _, told := s.MaxDelay[route.From]; !told {
			s.MaxDelay[route.From] = route.MaxDelay.Milliseconds()
		}
	}
}

// tell adds what the running term reports.
func (s *Status) tell(report *report.Report) {
	r := report.Read()
	s.Lag, s.Reading, s.Parked = r.Lag, r.Reading, r.Parked
	s.Problems = append(s.Problems, r.Problems...)
}

// oldestDue returns when the first pending message is due, 0 when there is none.
// Among a great many that were delivered lately it settles for a lower bound.
func oldestDue(store *storage.Store) int64 {
	const pages = 8
	from := store.Claim().Mark
	for _, hold := range store.Holds() {
		if hold.Mark.Compare(from) < 0 {
			from = hold.Mark
		}
	}
	for _, hold := range store.TopicHolds() {
		from = from.Min(hold.Mark)
	}
	for range pages {
		items, next, done, err := store.Scan(from, storage.Ref{}, 1, nil, nil)
		switch {
		case len(items) > 0:
			return items[0].Due
		case done || err != nil:
			return 0
		}
		from = next
	}
	return from.Due
}

// Ready returns nil when the node does its part: it is a voter of a group that
// has a leader and has applied what is committed, and if it leads, its term runs.
// Otherwise it returns why not.
func (b *Broker) Ready() error { return b.ready(b.node.Status()) }

// mostBehind is how many committed log entries may wait for Apply: what is on its
// way under load, milliseconds.
const mostBehind = 128

func (b *Broker) ready(n node.Status) error {
	self := slices.IndexFunc(n.Members, func(m node.MemberStatus) bool { return m.ID == n.Node })
	switch {
	case n.Waiting != "":
		return fmt.Errorf("%s: %s", n.State, n.Waiting)
	case n.Leader == "":
		return fmt.Errorf("%s: no leader is known", n.State)
	case self < 0 || !n.Members[self].Voter:
		return errors.New("catching up: not a voter yet")
	case n.LogError != "":
		return fmt.Errorf("%s: nothing can be written: %s", n.State, n.LogError)
	case n.CommitIndex == 0:
		return errors.New("catching up: the leader has not said yet how far the log is committed")
	case n.CommitIndex > n.AppliedIndex+mostBehind:
		return notApplied(n)
	}
	if n.Leader != n.Node {
		if b.progress.isBehind(n, time.Now()) {
			return notApplied(n)
		}
		return nil
	}
	report := b.report.Load()
	if report == nil || !report.Read().Running {
		return errors.New("leader: the term is not running yet")
	}
	silent, _ := report.Kafka()
	if silent == 0 && report.Read().Lag == nil && !b.node.Store().State().Surveyed {
		// What whoever waits for this produces next is to count as newer than the cluster.
		return errors.New("leader: it has not looked at the delay topics yet, for the first time of this cluster")
	}
	if silent >= reachPatience {
		return fmt.Errorf("leader: Kafka has not answered for %v", silent.Round(time.Second))
	}
	if b.clock.State().Stopped {
		return errors.New("leader: firing is stopped, the clock is not believed")
	}
	return nil
}

func notApplied(n node.Status) error {
	return fmt.Errorf("catching up: %d log entries are not applied yet", n.CommitIndex-n.AppliedIndex)
}

// mostLag is how long a follower may take to apply what is committed.
const mostLag = 5 * time.Second

// A progress tells a follower that is some entries behind, as all are under load, from one that applies nothing: since it is
// being sent the schedule of which they are the rest, or its disk hangs. Any goroutine may ask.
type progress struct {
	mu    sync.Mutex
	once  bool   // it has had all that was committed at some time
	goal  uint64 // it is to have applied up to here; 0: it has
	since time.Time
}

func (p *progress) isBehind(n node.Status, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.AppliedIndex >= p.goal {
		p.once = p.once || p.goal > 0 || n.AppliedIndex >= n.CommitIndex
		p.goal = 0
	}
	if p.goal == 0 && n.CommitIndex > n.AppliedIndex {
		p.goal, p.since = n.CommitIndex, now
	}
	return !p.once || p.goal > 0 && now.Sub(p.since) > mostLag
}

// Standing returns what this node answers to one that asks whether it may be born.
func (b *Broker) Standing() Standing { return b.node.Standing() }

// Replace gives the member, which has lost its disk, a new place in the group.
// Only the leader can; the member joins once it has started with an empty disk.
func (b *Broker) Replace(ctx context.Context, member string) error {
	return b.node.Replace(ctx, member)
}
