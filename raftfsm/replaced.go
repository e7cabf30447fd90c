package raftfsm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// memberOf returns the member that a Raft id stands for: n3 for n3@57.
func memberOf(raftID string) string {
	id, _, _ := strings.Cut(raftID, "@")
	return id
}

// succeeds reports whether the first id was given to the same member after the
// second: n3@57 after n3, n3@102 after n3@57. The number is the log index at which
// the older one had been removed.
func succeeds(newer, older raft.ServerID) bool {
	index := func(raftID raft.ServerID) uint64 {
		_, text, _ := strings.Cut(string(raftID), "@")
		i, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0 // n3
		}
		return i
	}
	return memberOf(string(newer)) == memberOf(string(older)) && index(newer) > index(older)
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
		why := fmt.Sprintf("node.data_dir: %s holds what %s had before `carillon cluster replace` gave its place to %s, and will not be part of the cluster again:"+
			" stop this node, empty the directory and start it again, it joins and copies the schedule", n.cfg.DataDir, n.cfg.NodeID, id)
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
	c := r.ReloadableConfig()
	c.HeartbeatTimeout, c.ElectionTimeout = d, d
	if err := r.ReloadConfig(c); err != nil {
		n.log.Warn("election timeout not changed", "to", d, "err", err)
	}
}
