package raftfsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// strangers says which member is not what the configuration takes it for, "" if
// none is. Answers are by member id.
func strangers(me identity, cfg Config, answers map[string]Standing) string {
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
func otherAPI(cfg Config, answers map[string]Standing) string {
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
func unanswered(cfg Config, answers map[string]Standing) string {
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

// warnOfDifferences tells what the members that answered have otherwise than we do.
// The log does not hold API addresses, and a cluster that lives serves without them:
// they may be changed node by node, and a mistake must keep no node from its work.
func (n *Node) warnOfDifferences(answers map[string]Standing) {
	text := strangers(n.identityNow(), n.cfg, answers)
	if text == "" {
		text = otherAPI(n.cfg, answers)
	}
	if text != "" {
		n.log.Warn("configured otherwise than another member: " + text)
	}
}
