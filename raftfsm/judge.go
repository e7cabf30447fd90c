package raftfsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A node with an empty disk must not simply found a cluster: its disk may have
// been wiped, its vote and log forgotten, and with one lagging member it would
// make a majority without committed entries. So it asks the others first.

// A verdict is what follows from their answers.
type verdict struct {
	found  bool   // bootstrap: we are a founder
	raftID string // join under this id: we were replaced
	wait   string // neither yet; why
	remedy bool   // waiting alone will not help
}

// judge decides from the answers of the other members, by member id; a member
// that did not answer is missing.
func judge(me identity, cfg memberConfig, answers map[string]Standing) verdict {
	if wrong := strangers(me, cfg, answers); wrong != "" {
		return verdict{remedy: true, wait: wrong}
	}
	var lived []Standing
	for _, a := range answers {
		if !a.Empty {
			lived = append(lived, a)
		}
	}
	if len(lived) == 0 {
		return founding(cfg, answers)
	}
	for _, a := range lived {
		if a.Founders[me.NodeID] == me.Incarnation && !replaced(me, lived) {
			return verdict{found: true} // they founded it with us while we were slow
		}
	}
	return joining(me, cfg, answers)
}

// replaced reports whether a member knows a group that we, as a founder, are no
// part of any more.
func replaced(me identity, lived []Standing) bool {
	return slices.ContainsFunc(lived, func(a Standing) bool {
		in := slices.ContainsFunc(a.Servers, func(s Server) bool { return s.RaftID == me.NodeID })
		return len(a.Servers) > 0 && !in // none while Raft starts there
	})
}

// founding wants every member to have answered with the same list as ours: where an
// API address differs, one could found that the others never hear of. It does not show
// when the same wrong address is in all lists: then those who ask there name it.
func founding(cfg memberConfig, answers map[string]Standing) verdict {
	if !cfg.Bootstrap {
		return verdict{remedy: true, wait: "cluster.bootstrap: false, and no member has a cluster to join: set it to true on all members to found one"}
	}
	if differs := otherAPI(cfg, answers); differs != "" {
		return verdict{remedy: true, wait: differs}
	}
	if silent := unanswered(cfg, answers); silent != "" {
		return verdict{wait: "before founding a cluster all members must say that they are empty; " + silent}
	}
	return verdict{found: true}
}

// joining looks for the non-voter that `cluster replace` has made of us. Enough
// members must agree for the answers to meet any majority that might have made
// a voter of it since: then this disk was wiped once more.
func joining(me identity, cfg memberConfig, answers map[string]Standing) verdict {
	refuse := verdict{remedy: true, wait: fmt.Sprintf("the cluster lives and knew another disk of this node: run `carillon cluster replace %s` against one of the others;"+
		" if a majority of the members has lost its disks, nothing replaces them: restore the disks", me.NodeID)}
	raftID, agree := "", 0
	for _, a := range answers {
		for _, s := range a.Servers {
			if memberOf(s.RaftID) != me.NodeID {
				continue
			}
			if s.Voter || s.RaftID == me.NodeID || raftID != "" && s.RaftID != raftID {
				return refuse
			}
			raftID = s.RaftID
			agree++
		}
	}
	need := min(len(cfg.Members)-1, len(cfg.Members)/2+1)
	switch {
	case raftID == "":
		return refuse
	case agree < need:
		why := fmt.Sprintf("replaced as %s, which %d of %d members know yet", raftID, agree, need)
		if silent := unanswered(cfg, answers); silent != "" {
			why += "; " + silent
		}
		return verdict{wait: why}
	}
	return verdict{raftID: raftID}
}

// founders are the incarnations that founded the cluster: as those tell who
// founded it already, else as all say of themselves.
func founders(me identity, answers map[string]Standing) map[string]string {
	all := map[string]string{me.NodeID: me.Incarnation}
	for id, a := range answers {
		if a.Founders[me.NodeID] == me.Incarnation {
			return maps.Clone(a.Founders)
		}
		all[id] = a.Incarnation
	}
	return all
}

// strangers says which member is not what the configuration takes it for, "" if
// none is. Answers are by member id.
func strangers(me identity, cfg memberConfig, answers map[string]Standing) string {
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		a := answers[id]
		switch {
		case a.ClusterName != me.ClusterName:
			return fmt.Sprintf("cluster.name: %q, but member %s is of cluster %q: make them equal", me.ClusterName, id, a.ClusterName)
		case a.NodeID != id:
			return fmt.Sprintf("cluster.members: the api address of %s is answered by node %q: correct the address", id, a.NodeID)
		case !sameGroup(a.Members, cfg.Members):
			return fmt.Sprintf("cluster.members: %s, but member %s has %s: make them equal", describe(cfg.Members), id, describe(a.Members))
		}
	}
	return ""
}

// otherAPI names the first API address that a member has otherwise, "" if all have
// the same. The members are the same but for that (see strangers).
func otherAPI(cfg memberConfig, answers map[string]Standing) string {
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		for i, theirs := range answers[id].Members {
			if ours := cfg.Members[i]; ours.API != theirs.API {
				return fmt.Sprintf("cluster.members[%s].api: %q, but %s is configured with %q: make cluster.members the same on all nodes",
					ours.ID, ours.API, id, theirs.API)
			}
		}
	}
	return ""
}

// unanswered names the members that did not answer and where they were asked, "" if
// all did.
func unanswered(cfg memberConfig, answers map[string]Standing) string {
	var silent []string
	for _, m := range cfg.Members {
		if _, ok := answers[m.ID]; !ok && m.ID != cfg.NodeID {
			silent = append(silent, fmt.Sprintf("%s at %q", m.ID, m.API))
		}
	}
	if len(silent) == 0 {
		return ""
	}
	return "no answer from " + strings.Join(silent, ", ") + ": start it, or correct its api address in cluster.members, which must be the same on all nodes"
}
