package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// keepEvery is how often a term looks whether the feature level has come to where outcomes are kept.
const keepEvery = time.Second

// keepOutcomes has every node keep as many outcomes as this node's configuration says: the leader's
// counts, and is committed, since all must forget alike. It runs beside a term, until that is done or
// ctx ends.
func (b *Broker) keepOutcomes(ctx context.Context) error {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	store := b.node.Store()
	for store.Level() < storage.LevelThree {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	keep := outcomes.Keep{For: b.config.Outcomes.Keep.Milliseconds(), Count: uint64(b.config.Outcomes.Max)}
	if store.OutcomesKept() == keep {
		return nil
	}
	command := raftfsm.KeepOutcomes{Time: b.now().UnixMilli(), Keep: keep}
	if _, err := b.node.Propose(ctx, command).Wait(ctx); err != nil {
		return fmt.Errorf("commit how many outcomes are kept: %w", err)
	}
	return nil
}
