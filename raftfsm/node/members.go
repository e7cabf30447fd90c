package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
)

// configChangeTimeout bounds the queueing of a membership change.
const configChangeTimeout = 5 * time.Second

// patience is how long a member may be silent before it counts as gone.
func (n *Node) patience() time.Duration { return max(time.Second, 3*n.cfg.Heartbeat) }

// known returns the group as this node's log has it.
func known(r *raft.Raft) []member.Server {
	var group []member.Server
	for _, s := range servers(r) {
		group = append(group, member.Server{RaftID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return group
}

func servers(r *raft.Raft) []raft.Server { return r.GetConfiguration().Configuration().Servers }

// Replace takes the member out of the group and puts it back under a new Raft
// id as a non-voter, which a node with an empty disk then adopts; the leader
// makes it a voter when it has caught up. The others serve meanwhile. Only the
// leader can do it (raftfsm.ErrNotLeader), and it refuses (member.ErrReplace) what
// would stop the cluster or is not needed. After an error it can be called again. It
// blocks for a second, to see who answers, and for two log entries.
func (n *Node) Replace(ctx context.Context, memberID string) error {
	r := n.running()
	if r == nil || r.State() != raft.Leader {
		return raftfsm.ErrNotLeader
	}
	m, err := n.self.Replaceable(memberID)
	if err != nil {
		return err
	}
	begin := time.Now() // a leader of this moment has heard of nobody yet
	pause(ctx, n.patience())
	do, err := member.Replacing(memberID, known(r), func(raftID string) bool {
		id := raft.ServerID(raftID)
		return id == n.raftID() || n.transport.peer(id).contact.After(begin)
	})
	if err != nil || do.Done {
		return err
	}
	if do.Remove != "" {
		if err := n.await(ctx, r.RemoveServer(raft.ServerID(do.Remove), 0, configChangeTimeout)); err != nil {
			return fmt.Errorf("remove %s: %w", do.Remove, err)
		}
	}
	id := raft.ServerID(member.NextRaftID(memberID, r.LastIndex()))
	if err := n.await(ctx, r.AddNonvoter(id, raft.ServerAddress(m.Raft), 0, configChangeTimeout)); err != nil {
		return notAdded(id, do.Remove, err)
	}
	n.log.Info("member replaced, it votes when it has caught up", "member", memberID, "raft_id", id)
	return nil
}

// notAdded is the error of a replacement that ended before the member had its new place. If the old one was
// taken from it by then, something was done, whatever the error says of the rest.
func notAdded(id raft.ServerID, removed string, err error) error {
	err = fmt.Errorf("add %s: %w", id, err)
	if removed == "" {
		return err
	}
	return fmt.Errorf("%w: %s is removed, replace the member again: %w", raftfsm.ErrInDoubt, removed, err)
}

// promoteLoop makes voters of non-voters that have caught up, while this node
// leads. It keeps nothing between rounds but where the log ended, so a new leader
// goes on where the old one stopped: not how far it was committed, of which one that has started
// again knows nothing before an entry of its own term is. Raft tells of each peer that a leader has, when it
// begins to lead and when one is added: until then there is nothing to look for.
func (n *Node) promoteLoop(ctx context.Context, r *raft.Raft) {
	added := make(chan raft.Observation, 1) // one that does not fit comes behind one that is not read yet
	observer := raft.NewObserver(added, false, func(o *raft.Observation) bool {
		peer, ok := o.Data.(raft.PeerObservation)
		return ok && !peer.Removed
	})
	r.RegisterObserver(observer)
	defer r.DeregisterObserver(observer)
	for {
		end := r.LastIndex()
		for r.State() == raft.Leader && slices.ContainsFunc(servers(r), waitsToVote) {
			pause(ctx, max(n.cfg.Heartbeat, 100*time.Millisecond))
			if ctx.Err() != nil {
				return
			}
			n.promote(ctx, r, end)
			end = r.LastIndex()
		}
		select {
		case <-ctx.Done():
			return
		case <-added:
		}
	}
}

func waitsToVote(s raft.Server) bool { return s.Suffrage != raft.Voter }

// promote takes those as caught up whose log holds what this leader's held one round ago.
func (n *Node) promote(ctx context.Context, r *raft.Raft, end uint64) {
	for _, s := range servers(r) {
		p := n.transport.peer(s.ID)
		if !waitsToVote(s) || !p.recent(n.patience()) || p.lastIndex < end {
			continue
		}
		if err := n.await(ctx, r.AddVoter(s.ID, s.Address, 0, configChangeTimeout)); err != nil {
			n.log.Warn("member has caught up but was not made a voter", "raft_id", s.ID, "error", err)
			continue
		}
		n.log.Info("member has caught up and votes", "raft_id", s.ID)
	}
}

// campaignRarely paces the elections that a node calls whose place is taken: it can
// win none, and each costs it and the members some lines of log. A greeting by mistake
// keeps a node from calling one for up to twice as long.
const campaignRarely = time.Minute

// succeededBy notes that the leader looks for another disk at our address. No log
// entry tells: that of the removal is not sent to who was removed. Anybody can send
// such a greeting, so that it counts only while we know no leader.
func (n *Node) succeededBy(id raft.ServerID) {
	if n.leader() != "" {
		return
	}
	select {
	case n.successors <- id:
	default: // told already
	}
}

// replacedLoop says that our place is taken when no leader shows for a while: one
// that removed us may go on sending for seconds. It takes the word back once there
// is one after all: then somebody greeted us by mistake.
func (n *Node) replacedLoop(ctx context.Context, r *raft.Raft) {
	for {
		var id raft.ServerID
		select {
		case <-ctx.Done():
			return
		case id = <-n.successors:
		}
		pause(ctx, n.patience())
		if n.leader() != "" || ctx.Err() != nil {
			continue
		}
		why := n.cfg.Advise(fmt.Errorf("node.data_dir: %s %w: %s took the place of %s", n.cfg.DataDir, member.ErrReplaced, id, n.raftID())).Error()
		n.log.Error("replaced: " + why)
		n.setWaiting(why)
		n.setElectionTimeout(r, max(campaignRarely, n.cfg.Heartbeat))
		for n.leader() == "" {
			if pause(ctx, n.cfg.Heartbeat); ctx.Err() != nil {
				return
			}
		}
		n.log.Info("not replaced: there is a leader again", "leader", n.leader())
		n.setElectionTimeout(r, n.cfg.Heartbeat)
		n.setWaiting("")
	}
}

// setElectionTimeout sets how long Raft waits for a leader or votes.
func (n *Node) setElectionTimeout(r *raft.Raft, d time.Duration) {
	if err := n.reload(r, func(c *raft.ReloadableConfig) { c.HeartbeatTimeout, c.ElectionTimeout = d, d }); err != nil {
		n.log.Warn("election timeout not changed", "to", d, "error", err)
	}
}

// reload changes what of Raft's configuration may change while it runs. Raft exchanges the whole, so that of two who change
// a part of it beside each other one would take the other's back.
func (n *Node) reload(r *raft.Raft, change func(*raft.ReloadableConfig)) error {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	c := r.ReloadableConfig()
	change(&c)
	return r.ReloadConfig(c)
}
