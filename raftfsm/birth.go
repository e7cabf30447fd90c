package raftfsm

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// askEvery is how often an unborn node asks the others again.
const askEvery = time.Second

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
func judge(me identity, cfg Config, answers map[string]Standing) verdict {
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
func founding(cfg Config, answers map[string]Standing) verdict {
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
func joining(me identity, cfg Config, answers map[string]Standing) verdict {
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

// birthLoop asks until this node may be born, then starts it.
func (n *Node) birthLoop(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		answers := n.askAll(ctx)
		v := judge(n.identityNow(), n.cfg, answers)
		if v.wait == "" {
			n.warnOfDifferences(answers)
			if err := n.beBorn(v, answers); err != nil && ctx.Err() == nil {
				n.failWith(fmt.Errorf("birth: %w", err))
			}
			return
		}
		if v.wait != said {
			said = v.wait
			if v.remedy {
				n.log.Error("not started: " + v.wait)
			} else {
				n.log.Info("not started yet: " + v.wait)
			}
		}
		n.setWaiting(v.wait)
		pause(ctx, askEvery)
	}
}

// askAll returns the answers of the other members, by member id.
func (n *Node) askAll(ctx context.Context) map[string]Standing {
	ctx, cancel := context.WithTimeout(ctx, n.patience())
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[string]Standing{}
	for _, m := range n.cfg.Members {
		if m.ID == n.cfg.NodeID {
			continue
		}
		wg.Go(func() {
			a, err := n.cfg.AskMember(ctx, m)
			if err != nil {
				level := slog.LevelInfo
				// By member alone: the errors of resets differ in our port.
				if n.ctx.Err() != nil || n.silent.again(m.ID) {
					level = slog.LevelDebug
				}
				n.log.Log(ctx, level, "member does not answer", "member", m.ID, "api", m.API, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[m.ID] = a
		})
	}
	wg.Wait()
	return answers
}

// beBorn writes down who we are now, and starts Raft.
func (n *Node) beBorn(v verdict, answers map[string]Standing) error {
	id := n.identityNow()
	id.Members, id.Log = n.cfg.Members, n.cfg.Log
	id.RaftID = v.raftID
	if v.found {
		id.RaftID = id.NodeID
		id.Founders = founders(id, answers)
	}
	if err := id.save(n.cfg.DataDir); err != nil {
		return err
	}
	n.setIdentity(id)
	n.setWaiting("")
	return n.start()
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
