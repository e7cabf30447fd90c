package raftfsm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// configChangeTimeout bounds the queueing of a membership change.
const configChangeTimeout = 5 * time.Second

// transferTimeout bounds a hand-over: to a hung follower raft would try longer.
const transferTimeout = time.Second

// patience is how long a member may be silent before it counts as gone.
func (n *Node) patience() time.Duration { return max(time.Second, 3*n.cfg.Heartbeat) }

func servers(r *raft.Raft) []raft.Server { return r.GetConfiguration().Configuration().Servers }

// Replace takes the member out of the group and puts it back under a new Raft
// id as a non-voter, which a node with an empty disk then adopts; the leader
// makes it a voter when it has caught up. The others serve meanwhile. Only the
// leader can do it (ErrNotLeader), and it refuses (ErrReplace) what would stop
// the cluster or is not needed. After an error it can be called again. It blocks
// for a second, to see who answers, and for two log entries.
func (n *Node) Replace(ctx context.Context, memberID string) error {
	r := n.running()
	if r == nil || r.State() != raft.Leader {
		return ErrNotLeader
	}
	m, ok := n.cfg.member(memberID)
	if !ok {
		return fmt.Errorf("%w: %q: not one of cluster.members %v", ErrReplace, memberID, n.cfg.memberIDs())
	}
	if memberID == n.cfg.NodeID {
		return fmt.Errorf("%w: %s: it leads: stop it first", ErrReplace, memberID)
	}
	begin := time.Now() // a leader of this moment has heard of nobody yet
	pause(ctx, n.patience())
	if i := slices.IndexFunc(servers(r), func(s raft.Server) bool { return memberOf(string(s.ID)) == memberID }); i >= 0 {
		old := servers(r)[i]
		if old.Suffrage == raft.Nonvoter && string(old.ID) != memberID {
			return nil // on its way already
		}
		if n.transport.peer(old.ID).contact.After(begin) {
			return fmt.Errorf("%w: %s: it answers: stop it and empty its node.data_dir first", ErrReplace, memberID)
		}
		if err := n.canLose(r, old.ID, begin); err != nil {
			return err
		}
		if err := n.await(ctx, r.RemoveServer(old.ID, 0, configChangeTimeout)); err != nil {
			return fmt.Errorf("remove %s: %w", old.ID, err)
		}
	}
	// The log's end as a name: no later replacement can end up with the same.
	id := raft.ServerID(fmt.Sprintf("%s@%d", memberID, r.LastIndex()))
	if err := n.await(ctx, r.AddNonvoter(id, raft.ServerAddress(m.Raft), 0, configChangeTimeout)); err != nil {
		return fmt.Errorf("add %s: %w", id, err)
	}
	n.log.Info("member replaced, it votes when it has caught up", "member", memberID, "raft_id", id)
	return nil
}

// canLose refuses to remove a voter when the others that answered since begin are
// too few to commit even that.
func (n *Node) canLose(r *raft.Raft, id raft.ServerID, begin time.Time) error {
	rest, alive := 0, 0
	for _, s := range servers(r) {
		if s.Suffrage != raft.Voter || s.ID == id {
			continue
		}
		rest++
		if s.ID == n.raftID() || n.transport.peer(s.ID).contact.After(begin) {
			alive++
		}
	}
	if alive < rest/2+1 {
		return fmt.Errorf("%w: %s: only %d of the other %d voters answer: start them first", ErrReplace, memberOf(string(id)), alive, rest)
	}
	return nil
}

// promoteLoop makes voters of non-voters that have caught up, while this node
// leads. It keeps nothing between rounds but the commit index, so a new leader
// goes on where the old one stopped.
func (n *Node) promoteLoop(ctx context.Context, r *raft.Raft) {
	ticker := time.NewTicker(max(n.cfg.Heartbeat, 100*time.Millisecond))
	defer ticker.Stop()
	committed := r.CommitIndex()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if r.State() == raft.Leader {
			n.promote(ctx, r, committed)
		}
		committed = r.CommitIndex()
	}
}

// promote takes those as caught up whose log holds what was committed one round ago.
func (n *Node) promote(ctx context.Context, r *raft.Raft, committed uint64) {
	for _, s := range servers(r) {
		p := n.transport.peer(s.ID)
		if s.Suffrage == raft.Voter || !p.recent(n.patience()) || p.lastIndex < committed {
			continue
		}
		if err := n.await(ctx, r.AddVoter(s.ID, s.Address, 0, configChangeTimeout)); err != nil {
			n.log.Warn("member has caught up but was not made a voter", "raft_id", s.ID, "err", err)
			continue
		}
		n.log.Info("member has caught up and votes", "raft_id", s.ID)
	}
}

// TransferLeadership hands leadership to the voter whose log reaches furthest,
// of those that answer. It blocks for a second at most; commands are refused
// with ErrNotLeader meanwhile. ErrNotLeader and ErrNoTarget say that there was
// nothing to do.
func (n *Node) TransferLeadership(ctx context.Context) error {
	_, err := n.transfer(ctx, func(string) bool { return true })
	return err
}

// TransferLeadershipTo is TransferLeadership to one of the members, whose ids are
// given, and returns which.
func (n *Node) TransferLeadershipTo(ctx context.Context, members []string) (string, error) {
	return n.transfer(ctx, func(id string) bool { return slices.Contains(members, id) })
}

func (n *Node) transfer(ctx context.Context, fits func(member string) bool) (string, error) {
	r := n.running()
	if r == nil || r.State() != raft.Leader {
		return "", ErrNotLeader
	}
	var target raft.Server
	var best peer
	for _, s := range servers(r) {
		p := n.transport.peer(s.ID)
		if s.Suffrage != raft.Voter || s.ID == n.raftID() || !p.recent(n.patience()) || !fits(memberOf(string(s.ID))) {
			continue
		}
		if target.ID == "" || p.lastIndex > best.lastIndex {
			target, best = s, p
		}
	}
	if target.ID == "" {
		return "", ErrNoTarget
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	to := memberOf(string(target.ID))
	if err := n.await(ctx, r.LeadershipTransferToServer(target.ID, target.Address)); err != nil {
		return "", fmt.Errorf("hand leadership to %s: %w", to, err)
	}
	return to, nil
}
