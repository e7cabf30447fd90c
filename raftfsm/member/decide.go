package member

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A node with an empty disk must not simply found a cluster: its disk may have
// been wiped, its vote and log forgotten, and with one lagging member it would
// make a majority without committed entries. So it asks the others first.

// A Decision is what follows from their answers.
type Decision struct {
	Found  bool   // bootstrap: we are a founder
	First  bool   // with Found: nobody is one yet, see Confirm
	RaftID string // join under this id: we were replaced
	Wait   error  // neither yet; why, ErrOtherDisk among others
	Remedy bool   // waiting alone will not help
}

// Decide decides from the answers of the other members, by member id; a member
// that did not answer is missing.
func Decide(me Identity, cfg Config, answers map[string]Standing) Decision {
	if wrong := Strangers(me, cfg, answers); wrong != "" {
		return Decision{Remedy: true, Wait: errors.New(wrong)}
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
			return Decision{Found: true} // they founded it with us while we were slow
		}
	}
	return joining(me, cfg, answers)
}

// replaced reports whether a member knows a group that we, as a founder, are no
// part of any more.
func replaced(me Identity, lived []Standing) bool {
	return slices.ContainsFunc(lived, func(a Standing) bool {
		in := slices.ContainsFunc(a.Servers, func(s Server) bool { return s.RaftID == me.NodeID })
		return len(a.Servers) > 0 && !in // none while Raft starts there
	})
}

// founding wants every member to have answered with the same list as ours: where an
// API address differs, one could found that the others never hear of. The same wrong
// address in all lists shows when the node asks itself (Confirm).
func founding(cfg Config, answers map[string]Standing) Decision {
	if !cfg.Bootstrap {
		return Decision{Remedy: true, Wait: errors.New("cluster.bootstrap: false, and no member has a cluster to join: set it to true on all members to found one")}
	}
	if differs := otherAPI(cfg, answers); differs != "" {
		return Decision{Remedy: true, Wait: errors.New(differs)}
	}
	if silent := unanswered(cfg, answers); silent != "" {
		return Decision{Wait: fmt.Errorf("before founding a cluster all members must say that they are empty; %s", silent)}
	}
	return Decision{Found: true, First: true}
}

// Confirm returns what becomes of a decision to be among the first founders, by what answers at this node's own API address.
// A second process with this node's id, a pod of an upgrade say, would found the cluster as well with a disk of
// its own. The others, who ask at that address, know one of the two; but both would ask them for votes under one id,
// and lead in one term. The one that is not there must wait even while nobody is: the other may be about to start.
func (d Decision) Confirm(me Identity, cfg Config, said Standing, err error) Decision {
	at := ""
	for _, m := range cfg.Members {
		if m.ID == me.NodeID {
			at = m.API
		}
	}
	switch {
	case err != nil:
		return Decision{Wait: fmt.Errorf("before founding a cluster this node must answer at its own api address in cluster.members, %q: %w", at, err)}
	case said.NodeID != me.NodeID || said.Incarnation != me.Incarnation:
		return Decision{Remedy: true, Wait: fmt.Errorf("cluster.members: another process, %s, answers at %q, the api address of this node: stop one of the two, or correct node.id or the address", said.NodeID, at)}
	}
	return d
}

// joining looks for the non-voter that replacing has made of us. Enough
// members must agree for the answers to meet any majority that might have made
// a voter of it since: then this disk was wiped once more.
func joining(me Identity, cfg Config, answers map[string]Standing) Decision {
	refuse := Decision{Remedy: true, Wait: ErrOtherDisk}
	raftID, agree := "", 0
	for _, a := range answers {
		for _, s := range a.Servers {
			if Of(s.RaftID) != me.NodeID {
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
		return Decision{Wait: errors.New(why)}
	}
	return Decision{RaftID: raftID}
}

// founders are the incarnations that founded the cluster: as those tell who
// founded it already, else as all say of themselves.
func founders(me Identity, answers map[string]Standing) map[string]string {
	all := map[string]string{me.NodeID: me.Incarnation}
	for id, a := range answers {
		if a.Founders[me.NodeID] == me.Incarnation {
			return maps.Clone(a.Founders)
		}
		all[id] = a.Incarnation
	}
	return all
}

// Strangers says which member is not what the configuration takes it for, "" if
// none is. Answers are by member id.
func Strangers(me Identity, cfg Config, answers map[string]Standing) string {
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		a := answers[id]
		switch {
		case a.ClusterName != me.ClusterName:
			return fmt.Sprintf("cluster.name: %q, but member %s is of cluster %q: make them equal", me.ClusterName, id, a.ClusterName)
		case a.NodeID != id:
			return fmt.Sprintf("cluster.members: the api address of %s is answered by node %q: correct the address", id, a.NodeID)
		case !sameGroup(a.Members, cfg.Members):
			return fmt.Sprintf("cluster.members: %s, but member %s has %s: make them equal", Describe(cfg.Members), id, Describe(a.Members))
		}
	}
	return ""
}

// Differences tells what the members that answered have otherwise than we do, "" if
// nothing. The log does not hold API addresses, and a cluster that lives serves without
// them: they may be changed node by node, and a mistake must keep no node from its work.
func Differences(me Identity, cfg Config, answers map[string]Standing) string {
	if text := Strangers(me, cfg, answers); text != "" {
		return text
	}
	return otherAPI(cfg, answers)
}

// otherAPI names the first API address that a member has otherwise, "" if all have
// the same. The members are the same but for that (see Strangers).
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
