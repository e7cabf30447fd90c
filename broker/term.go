package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
)

// runTerm does the leader's work until leadership or ctx ends, or anything is in
// doubt; then everything that it built is gone. The next term, here or on another
// node, builds its own from storage: there is no other way to recover.
//
//	feed --> scheduler --> publisher --> sink
//	source --> ingest --> log            |
//	                       ^--- acks ----'
func (b *Broker) runTerm(running context.Context, leadership *node.Leadership, report *report.Report) error {
	ctx, end := context.WithCancelCause(running)
	defer end(nil)
	go func() {
		select {
		case <-leadership.Done():
			end(errLeadershipLost)
		case <-ctx.Done():
		}
	}()
	log := b.log.With("term", leadership.Term)
	logger := b.logger.With("term", leadership.Term) // each part names its component

	// The feed comes before the barrier, and the state after it: what is applied
	// in between is in both, and the window knows what it holds.
	feed := b.node.Subscribe(b.limits.Schedule.Feed)
	defer feed.Close()
	if err := b.node.Barrier(ctx); err != nil {
		return fmt.Errorf("commit barrier: %w", err)
	}
	if err := b.skew.begin(ctx); err != nil {
		return err
	}
	if err := b.found(ctx); err != nil {
		return err
	}
	b.hasBegun.Store(true)
	state := b.node.Store().State()
	log.Info("leading", "pending", state.Pending, "claimed_through", time.UnixMilli(state.Claim.Through).UTC())

	sink, err := b.newSink()
	if err != nil {
		return fmt.Errorf("open sink: %w", err)
	}
	defer sink.Close()
	source, err := b.newSource()
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer source.Close()

	alarm := b.newAlarm(log)
	defer alarm.Close()
	verdicts := mailbox.New[schedule.Verdict]()
	publishing := b.publisherOptions(state.ClusterID, sink, logger)
	publishing.Verdicts, publishing.Report = verdicts, report
	publisher := deliver.New(publishing)
	scheduler := schedule.New(schedule.Options{
		Store:     b.ahead(b.node.Store()),
		Feed:      feed,
		Log:       b.node,
		Publisher: publisher,
		Verdicts:  verdicts,
		Searched:  &b.searched,
		Now:       b.clock.Due,
		Alarm:     alarm,
		Limits:    b.limits.Schedule,
		Report:    report,
		Logger:    logger,
	})
	intake := ingest.New(ingest.Options{
		Config: b.config,
		Source: source,
		Log:    b.node,
		Store:  b.node.Store(),
		Count:  b.metrics,
		Now:    b.now,
		Due:    b.clock.Due,
		Logger: logger,
		Report: report,

		ClaimLead:     schedule.ClaimLead,
		DiscoverEvery: b.discover,
		Limits:        b.limits.Ingest,
	})
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return scheduler.Run(working) })
	group.Go(func() error { return publisher.Run(working) })
	group.Go(func() error { return intake.Run(working) })
	group.Go(func() error {
		return keepDeadLetterTopics(working, b.config.DeadLetterTopics(), sink.CreateTopic, log)
	})
	group.Go(func() error { return b.reach.watch(working, report, sink) })
	group.Go(func() error { return b.raiseInTime(working) })
	group.Go(func() error { return b.keepOutcomes(working) })
	group.Go(func() error { return b.operations.Run(working) })
	report.SetRunning()
	err = group.Wait()
	if running.Err() != nil {
		b.handOver() // before the connections are closed, which can take a while
	}
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	return err
}

// found gives a new cluster its feature level and its identity.
func (b *Broker) found(ctx context.Context) error {
	if b.node.Store().State().ClusterID != [16]byte{} {
		return nil
	}
	if err := b.beginLevel(ctx); err != nil {
		return err
	}
	command := raftfsm.Found{Time: b.now().UnixMilli(), Mode: b.config.Delivery}
	if _, err := rand.Read(command.ClusterID[:]); err != nil {
		return fmt.Errorf("choose cluster id: %w", err)
	}
	if _, err := b.node.Propose(ctx, command).Wait(ctx); err != nil {
		return fmt.Errorf("commit cluster id: %w", err)
	}
	return nil
}

// publisherOptions returns all but what the publisher shares with other parts of the term.
func (b *Broker) publisherOptions(clusterID [16]byte, sink deliver.Sink, logger *slog.Logger) deliver.Options {
	return deliver.Options{
		Sink:      sink,
		Store:     b.node.Store(),
		Log:       b.node,
		ClusterID: clusterID,
		MissingTimeout: func(origin string) time.Duration {
			return b.config.RouteOfPending(origin).MissingTargetTimeout
		},
		LeastMissingTimeout: b.config.LeastMissingTimeout(),
		MostMissing: func(origin string) int {
			return b.config.RouteOfPending(origin).MaxMissingTargets
		},
		LeastMostMissing: b.config.LeastMostMissing(),
		DeadLetterFor: func(origin string) string {
			return b.config.DeadLetterTopic(b.config.RouteOfPending(origin))
		},
		DeadLetterTopics: b.config.DeadLetterTopics(),
		Count:            b.metrics,
		Limits:           b.limits.Deliver,
		Now:              b.now,
		Due:              b.clock.Due,
		Logger:           logger,
	}
}
