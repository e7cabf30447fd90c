package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/storage"
)

// Status is what a node knows of itself and its cluster.
type Status struct {
	Node   string
	State  string // leader, follower, candidate; unborn before there is a Raft group, replaced when another disk has our place, failed after an error
	Leader string // member id, "" if unknown
	Term   uint64

	Waiting string // why the node is unborn, out of the group or failed

	Level       storage.Level // feature level in force, as far as the log is applied here
	Understands storage.Level // the newest that this node understands

	Members []MemberStatus // sorted by id

	AppliedIndex  uint64 // handed to the state machine
	CommitIndex   uint64 // the last entry that is known to be on a majority, be it that this node does not have it
	LastIndex     uint64 // of the log
	SnapshotIndex uint64 // of the manifest
	UnsavedBytes  int64  // of log since the last flush
	LogError      string // of the last write to the log, "" if it succeeded, and of one that hangs
	FlushError    string // of the last flush, "" if it succeeded
	ReceiveError  string // of the last snapshot that a leader sent, "" if it was received or is needed no longer
}

// MemberStatus is one member as this node sees it.
type MemberStatus struct {
	member.Member
	RaftID      string // "" while the member is not in the group
	Voter       bool
	LastIndex   uint64    // of its log, known to the leader only
	LastContact time.Time // known to the leader only
}

// Standing returns what this node answers to one that asks whether it may be born.
func (n *Node) Standing() member.Standing {
	id := n.identityNow()
	s := member.Standing{
		NodeID: id.NodeID, ClusterName: id.ClusterName, Incarnation: id.Incarnation,
		Empty: !id.Born(), Founders: id.Founders, Members: n.cfg.Members,
		Understands: n.cfg.Understands,
	}
	if r := n.running(); r != nil {
		s.Servers = known(r)
	}
	return s
}

// Status returns what this node knows at this moment. It does not block.
func (n *Node) Status() Status {
	s := Status{Node: n.cfg.NodeID, State: "unborn", SnapshotIndex: n.store.ManifestMeta().Index}
	s.UnsavedBytes, _ = n.fsm.Backlog().Unsaved()
	s.Level, s.Understands = n.store.Level(), n.cfg.Understands
	if err := n.logs.Failure(); err != nil {
		s.LogError = err.Error()
	}
	if err := n.fsm.Backlog().Failure(); err != nil {
		s.FlushError = err.Error()
	}
	n.mu.Lock()
	s.Waiting = n.waiting
	if n.receiving != nil {
		s.ReceiveError = n.receiving.Error()
	}
	if n.failure != nil {
		s.State, s.Waiting = "failed", n.cfg.Advise(n.failure).Error()
	}
	n.mu.Unlock()
	for _, m := range n.cfg.Members {
		s.Members = append(s.Members, MemberStatus{Member: m})
	}
	r := n.running()
	if r == nil {
		return s
	}
	switch {
	case s.State == "failed":
	case s.Waiting != "":
		s.State = "replaced"
	default:
		s.State = strings.ToLower(r.State().String())
	}
	if n.transport.hang.lasts() {
		s.LogError = fmt.Sprintf("the log has waited for the disk for more than %v", mostHang)
	}
	s.Leader, s.Term = member.Of(string(n.leader())), r.CurrentTerm()
	s.AppliedIndex, s.CommitIndex, s.LastIndex = r.AppliedIndex(), max(r.CommitIndex(), n.transport.committed.Load()), r.LastIndex()
	for _, server := range servers(r) {
		for i := range s.Members {
			if m := &s.Members[i]; m.ID == member.Of(string(server.ID)) {
				p := n.transport.peer(server.ID)
				m.RaftID, m.Voter = string(server.ID), server.Suffrage == raft.Voter
				m.LastIndex, m.LastContact = p.lastIndex, p.contact
			}
		}
	}
	return s
}

// leader returns the Raft id of the leader, "" when none is known.
func (n *Node) leader() raft.ServerID {
	r := n.running()
	if r == nil {
		return ""
	}
	_, id := r.LeaderWithID()
	return id
}
