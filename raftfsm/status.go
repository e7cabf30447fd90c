package raftfsm

import (
	"strings"

	"github.com/hashicorp/raft"
)

// Standing returns what this node answers to one that asks whether it may be born.
func (n *Node) Standing() Standing {
	id := n.identityNow()
	s := Standing{
		NodeID: id.NodeID, ClusterName: id.ClusterName, Incarnation: id.Incarnation,
		Empty: !id.born(), Founders: id.Founders, Members: n.cfg.Members,
		Understands: n.cfg.Understands,
	}
	if r := n.running(); r != nil {
		for _, server := range servers(r) {
			s.Servers = append(s.Servers, Server{RaftID: string(server.ID), Address: string(server.Address), Voter: server.Suffrage == raft.Voter})
		}
	}
	return s
}

// Status returns what this node knows at this moment. It does not block.
func (n *Node) Status() Status {
	s := Status{Node: n.cfg.NodeID, State: "unborn", SnapshotIndex: n.store.ManifestMeta().Index, UnsavedBytes: n.fsm.backlog.unsaved()}
	s.Level, s.Understands = n.store.Level(), n.cfg.Understands
	if err := n.logs.failure(); err != nil {
		s.LogError = err.Error()
	}
	if err := n.fsm.backlog.failure(); err != nil {
		s.FlushError = err.Error()
	}
	n.mu.Lock()
	s.Waiting = n.waiting
	if n.receiving != nil {
		s.ReceiveError = n.receiving.Error()
	}
	if n.failure != nil {
		s.State, s.Waiting = "failed", n.failure.Error()
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
	s.Leader, s.Term = memberOf(string(n.leader())), r.CurrentTerm()
	s.AppliedIndex, s.CommitIndex, s.LastIndex = r.AppliedIndex(), r.CommitIndex(), r.LastIndex()
	for _, server := range servers(r) {
		for i := range s.Members {
			if m := &s.Members[i]; m.ID == memberOf(string(server.ID)) {
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
