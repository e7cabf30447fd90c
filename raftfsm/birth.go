package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// askEvery is how often an unborn node asks the others again.
const askEvery = time.Second

// birthLoop asks until this node may be born, then starts it.
func (n *Node) birthLoop(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		answers := n.askAll(ctx)
		v := judge(n.identityNow(), n.self, answers)
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

// warnOfDifferences tells what the members that answered have otherwise than we do.
// The log does not hold API addresses, and a cluster that lives serves without them:
// they may be changed node by node, and a mistake must keep no node from its work.
func (n *Node) warnOfDifferences(answers map[string]Standing) {
	text := strangers(n.identityNow(), n.self, answers)
	if text == "" {
		text = otherAPI(n.self, answers)
	}
	if text != "" {
		n.log.Warn("configured otherwise than another member: " + text)
	}
}

// Understood asks every member which feature level its program understands, and
// returns the answers by member id, this node's too. A member that does not answer
// is missing; an answer of a node that is not the member asked is an error. It
// blocks for three heartbeats or a second at most. What it says is of that moment: a
// member that goes back to an older program afterwards stops when it applies a raise.
func (n *Node) Understood(ctx context.Context) (map[string]storage.Level, error) {
	answers := n.askAll(ctx)
	if wrong := strangers(n.identityNow(), n.self, answers); wrong != "" {
		return nil, errors.New(wrong)
	}
	levels := map[string]storage.Level{n.cfg.NodeID: n.cfg.Understands}
	for id, a := range answers {
		levels[id] = a.level()
	}
	return levels, nil
}
