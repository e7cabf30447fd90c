package raftfsm

import (
	"context"
	"errors"

	"github.com/carillonmq/carillon/storage"
)

// Understood asks every member which feature level its program understands, and
// returns the answers by member id, this node's too. A member that does not answer
// is missing; an answer of a node that is not the member asked is an error. It
// blocks for three heartbeats or a second at most. What it says is of that moment: a
// member that goes back to an older program afterwards stops when it applies a raise.
func (n *Node) Understood(ctx context.Context) (map[string]storage.Level, error) {
	answers := n.askAll(ctx)
	if wrong := strangers(n.identityNow(), n.cfg, answers); wrong != "" {
		return nil, errors.New(wrong)
	}
	levels := map[string]storage.Level{n.cfg.NodeID: n.cfg.Understands}
	for id, a := range answers {
		levels[id] = a.level()
	}
	return levels, nil
}
