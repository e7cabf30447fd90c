package raftfsm

import (
	"fmt"
	"strconv"
	"strings"

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

// succeededBy notes that the leader looks for another disk at our address. No log
// entry tells: nobody sends any to a Raft id that was removed. Anybody can send such
// a greeting, so that it counts only while we know no leader (see Status as well).
func (n *Node) succeededBy(id raft.ServerID) {
	if n.leader() != "" {
		return
	}
	n.mu.Lock()
	told := n.waiting != ""
	n.waiting = fmt.Sprintf("node.data_dir: %s holds what %s had before `carillon cluster replace` gave its place to %s, and will not be part of the cluster again:"+
		" stop this node, empty the directory and start it again, it joins and copies the schedule", n.cfg.DataDir, n.cfg.NodeID, id)
	why := n.waiting
	n.mu.Unlock()
	if !told {
		n.log.Error("replaced: " + why)
	}
}
