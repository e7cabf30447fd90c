package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/storage"
)

// askEvery is how often an unborn node asks the others again.
const askEvery = time.Second

// birthLoop asks until this node may be born, then starts it.
func (n *Node) birthLoop(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		answers := n.askAll(ctx)
		d := member.Decide(n.identityNow(), n.self, answers)
		if d.First && len(n.cfg.Members) > 1 {
			said, err := n.askSelf(ctx)
			d = d.Confirm(n.identityNow(), n.self, said, err)
		}
		if d.Wait == nil {
			n.warnOfDifferences(answers)
			if err := n.beBorn(d, answers); err != nil && ctx.Err() == nil {
				n.failWith(fmt.Errorf("birth: %w", err))
			}
			return
		}
		why := n.cfg.Advise(d.Wait).Error()
		if why != said {
			said = why
			if d.Remedy {
				n.log.Error("not started: " + why)
			} else {
				n.log.Info("not started yet: " + why)
			}
		}
		n.setWaiting(why)
		pause(ctx, askEvery)
	}
}

// askAll returns the answers of the other members, by member id.
func (n *Node) askAll(ctx context.Context) map[string]member.Standing {
	ctx, cancel := context.WithTimeout(ctx, n.patience())
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[string]member.Standing{}
	for _, m := range n.cfg.Members {
		if m.ID == n.cfg.NodeID {
			continue
		}
		wg.Go(func() {
			a, err := n.cfg.AskMember(ctx, m)
			if err != nil {
				level := slog.LevelInfo
				// By member alone: the errors of resets differ in our port.
				if n.ctx.Err() != nil || n.silent.Again(m.ID) {
					level = slog.LevelDebug
				}
				n.log.Log(ctx, level, "member does not answer", "member", m.ID, "api", m.API, "error", err)
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

// askSelf returns what answers at this node's own API address.
func (n *Node) askSelf(ctx context.Context) (member.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, n.patience())
	defer cancel()
	for _, m := range n.cfg.Members {
		if m.ID == n.cfg.NodeID {
			return n.cfg.AskMember(ctx, m)
		}
	}
	return member.Standing{}, errors.New("cluster.members does not name this node")
}

// beBorn writes down who we are now, and starts Raft.
func (n *Node) beBorn(d member.Decision, answers map[string]member.Standing) error {
	id := n.identityNow().Birth(d, n.self, answers)
	if err := id.Save(n.cfg.DataDir); err != nil {
		return err
	}
	n.setIdentity(id)
	n.setWaiting("")
	return n.start()
}

// warnOfDifferences tells what the members that answered have otherwise than we do.
func (n *Node) warnOfDifferences(answers map[string]member.Standing) {
	if text := member.Differences(n.identityNow(), n.self, answers); text != "" {
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
	if wrong := member.Strangers(n.identityNow(), n.self, answers); wrong != "" {
		return nil, errors.New(wrong)
	}
	levels := map[string]storage.Level{n.cfg.NodeID: n.cfg.Understands}
	for id, a := range answers {
		levels[id] = a.Level()
	}
	return levels, nil
}
