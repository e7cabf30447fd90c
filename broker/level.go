package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// A LevelStatus says in which forms the cluster writes; see storage.Level. It is zero
// when it is not told, by a node from before there were levels.
type LevelStatus struct {
	InForce    uint32 `json:"in_force"`   // as far as this node has applied the log; 0: not known, since it has applied nothing
	Understood uint32 `json:"understood"` // by the program of this node, at most
}

// A LevelRaise is what came of a raise.
type LevelRaise struct {
	LevelStatus
	// Silent are members that did not answer while there was nothing to raise for the
	// others. Their programs may understand a newer level.
	Silent []string `json:"silent,omitempty"`
}

// RaiseLevel raises the feature level to the newest that any member's program
// understands, if every member says now that it understands that as well. Only the
// leader can. It returns the level in force; that it was raised already is no error, even
// if some members do not answer.
// It blocks for the answers, a second or so at most, and for one log entry.
func (b *Broker) RaiseLevel(ctx context.Context) (LevelRaise, error) {
	node := b.node.Status()
	if node.Leader != node.Node {
		return LevelRaise{}, fmt.Errorf("raise the feature level: %w", raftfsm.ErrNotLeader)
	}
	levels, err := b.node.Understood(ctx)
	if err != nil {
		return LevelRaise{}, fmt.Errorf("%w: %w", errRaise, err)
	}
	newest := slices.Max(slices.Collect(maps.Values(levels)))
	silent := unanswered(node.Members, levels)
	obstacles := notUnderstood(newest, node.Members, levels)
	if newest <= node.Level && len(obstacles) == len(silent) {
		return LevelRaise{levelStatus(node), silent}, nil
	}
	if len(obstacles) > 0 {
		return LevelRaise{}, fmt.Errorf("%w to %d: %s; then raise it again", errRaise, newest, strings.Join(obstacles, "; "))
	}
	if err := b.commitLevel(ctx, b.users(), newest); err != nil {
		return LevelRaise{}, err
	}
	return LevelRaise{LevelStatus: levelStatus(b.node.Status())}, nil
}

// unanswered returns the members that do not answer.
func unanswered(members []node.MemberStatus, levels map[string]storage.Level) (silent []string) {
	for _, m := range members {
		if _, answered := levels[m.ID]; !answered {
			silent = append(silent, m.ID)
		}
	}
	return silent
}

// notUnderstood says of each member that does not answer, or does not understand the
// level, what to do.
func notUnderstood(newest storage.Level, members []node.MemberStatus, levels map[string]storage.Level) []string {
	var obstacles []string
	for _, m := range members {
		level, answered := levels[m.ID]
		switch {
		case !answered:
			obstacles = append(obstacles, fmt.Sprintf("member %s does not answer at %q: start it with the new program", m.ID, m.API))
		case level < newest:
			obstacles = append(obstacles, fmt.Sprintf("member %s runs a program that understands level %d only: upgrade it", m.ID, level))
		}
	}
	return obstacles
}

// beginLevel gives a cluster without an identity the newest level that all its
// founders understand. It comes before the identity: should the term end between the
// two, the next one begins here again.
func (b *Broker) beginLevel(ctx context.Context) error {
	levels, err := b.node.Understood(ctx)
	if members := len(b.node.Status().Members); err != nil || len(levels) < members {
		b.log.Warn("the new cluster begins at the oldest feature level: raise it with `carillon cluster raise` when all members run",
			"answers", len(levels), "members", members, "error", err)
		return nil
	}
	return b.commitLevel(ctx, b.node, slices.Min(slices.Collect(maps.Values(levels))))
}

// askLevelEvery is how often the leader asks whether all members understand a higher
// feature level, if it is to raise it by itself.
const askLevelEvery = time.Minute

// raiseInTime raises the level when all members have understood a higher one for as
// long as the configuration says. It runs beside a term until ctx ends: the time begins
// anew with each term, and when a member does not answer.
func (b *Broker) raiseInTime(ctx context.Context) error {
	after := b.config.Cluster.RaiseAfter
	if after == 0 {
		return nil
	}
	ticker := time.NewTicker(askLevelEvery)
	defer ticker.Stop()
	var since time.Time // when all were found to understand it
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		node := b.node.Status()
		if node.Level == node.Understands {
			continue // nobody need be asked
		}
		levels, err := b.node.Understood(ctx)
		if err != nil || len(notUnderstood(node.Understands, node.Members, levels)) > 0 {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < after {
			continue
		}
		if err := b.commitLevel(ctx, b.users(), node.Understands); err != nil {
			return err
		}
	}
}

// A proposer takes commands into the log: that of users, or, before it is open to them, the node's.
type proposer interface {
	Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal
}

// commitLevel has every member raise the level, unless it is in force already.
func (b *Broker) commitLevel(ctx context.Context, log proposer, level storage.Level) error {
	if level <= b.node.Store().Level() {
		return nil
	}
	command := raftfsm.RaiseLevel{Time: b.now().UnixMilli(), Level: level}
	if _, err := log.Propose(ctx, command).Wait(ctx); err != nil {
		return fmt.Errorf("commit feature level %d: %w", level, err)
	}
	return nil
}

func levelStatus(node node.Status) LevelStatus {
	level := LevelStatus{Understood: uint32(node.Understands)}
	if node.AppliedIndex > 0 { // what an empty store says is no word of the cluster's
		level.InForce = uint32(node.Level)
	}
	return level
}
