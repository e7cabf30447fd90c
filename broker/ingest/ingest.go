package ingest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/digest"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// mostProposed is how many ingest commands wait to be settled, besides the one that settle waits for
// and the one that take has just proposed: with Limits.Proposal each it bounds the bytes that Raft
// holds for us.
const mostProposed = 8

// While fewer than fewArrivals come with a poll, and nothing that is due soon has come
// for calmAfter, the next poll waits for gatherFor: each command costs the disks a sync,
// and records that trickle in would make one for every millisecond. Where short delays
// are mixed with long ones, the next short one must not wait for the sake of a long one.
const (
	fewArrivals = 256
	gatherFor   = 5 * time.Millisecond
	calmAfter   = time.Second
)

const (
	// MostRecord bounds key, value and headers of a record that is scheduled. A command
	// that holds the message, or the dead letter in its place, stays far below
	// raftfsm.MaxCommandBytes: one that is refused would end every term. Only records
	// that the producer has compressed come near it.
	MostRecord = 16 << 20
	// MostHeaders bounds the headers of such a record: an empty one is two bytes, and forty each time that it is read.
	MostHeaders = 10_000
	// mostKept bounds key and headers that the dead letter of a larger one keeps.
	mostKept = raftfsm.ProposalBytes
)

// An Ingest takes records from the source into the log. Every command is a
// compare-and-set on the positions of the partitions in it, so a record enters the
// schedule exactly once, whoever proposes and however often.
//
//	discover: topics of Kafka --> positions in the log --> Source.Assign
//	take:     Source.Poll --> operations --> proposals, in order --> settle
type Ingest struct {
	cfg     Options
	log     *slog.Logger
	places  *places
	opening *opening
	refused *digest.Digest
	// conflicts are records whose condition did not hold.
	conflicts *digest.Digest
	judge     *Judge
}

// Options are the parts that an Ingest is made of.
type Options struct {
	Config config.Config
	Source Source
	Log    Log
	Store  Store
	Count  Count
	Now    func() time.Time // what records may ask for is judged by it
	Due    func() time.Time // by which messages are due and claimed; it stands still while the clock is not believed
	Logger *slog.Logger
	Report *report.Report
	// ClaimLead is how far ahead of its due time a message is claimed, in milliseconds: what is
	// due sooner brings its claim along.
	ClaimLead int64
	// DiscoverEvery bounds how long a new topic or partition goes unseen.
	DiscoverEvery time.Duration
	Limits        Limits // zero: DefaultLimits
}

// A Store is the part of *storage.Store that ingest needs.
type Store interface {
	State() storage.State
	Level() storage.Level
	IDsOpen() bool
	Time() int64

	// What the opening of ids reads.
	NextSeq() uint64
	Pending() uint64
	Scan(from, to storage.Ref, limit int, keep storage.Filter, out []storage.Item) (items []storage.Item, next storage.Ref, done bool, err error)
	Read(refs []storage.Ref, out []storage.Entry) ([]storage.Entry, error)
	Lookup(topic, id string) (storage.Found, bool, error)
}

// A Log takes commands into the replicated log; *node.Node implements it.
type Log interface {
	// Propose keeps nothing of the command: it has encoded it when it returns.
	Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal
	// Room returns why nothing is to be accepted for now, or nil.
	Room() error
}

// A Count counts what ingest does; broker.Metrics implements it.
type Count interface {
	// Accepted counts messages that are in the log, dead letters included.
	Accepted(messages int)
	// Answered counts operations with an id, by what came of them.
	Answered(answer string, operations int)
	// Rejected counts those of them that are refused, by the code of the Problem.
	Rejected(code string, messages int)
	// SourceLost counts records that Kafka deleted before they were read.
	SourceLost(records int64)
}

// New returns an Ingest that does nothing until Run.
func New(cfg Options) *Ingest {
	log := cfg.Logger.With("component", "ingest")
	cfg.Limits = cmp.Or(cfg.Limits, DefaultLimits())
	return &Ingest{
		cfg: cfg, log: log, places: newPlaces(), opening: newOpening(cfg, log), judge: NewJudge(cfg.Config, cfg.Store.State().ClusterID),
		refused:   digest.New(log, slog.LevelWarn, "records refused, they go to the dead-letter topic"),
		conflicts: digest.New(log, slog.LevelInfo, "records without effect, since their condition does not hold"),
	}
}

// Run ingests until ctx ends or something must end the term. Kafka being away
// does not: the backlog waits there.
func (g *Ingest) Run(ctx context.Context) error {
	defer g.refused.Close()
	defer g.conflicts.Close()
	proposed := make(chan proposedIngest, mostProposed)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return newDiscovery(g.cfg, g.places, g.log).run(ctx) })
	group.Go(func() error { return g.take(ctx, proposed) })
	group.Go(func() error { return g.settle(ctx, proposed) })
	group.Go(func() error { return g.opening.run(ctx, proposed) })
	return group.Wait()
}

// A proposedIngest is on its way through the log, or, with settled, stands behind those that are.
type proposedIngest struct {
	*raftfsm.Proposal
	parts   []packedPart
	settled chan<- struct{} // closed when all before it are settled
}

// take polls the source and proposes what it gives, in order. When too much is in
// flight or the disk is full it waits, which pauses the fetch.
func (g *Ingest) take(ctx context.Context, proposed chan<- proposedIngest) error {
	var hurried time.Time // when something last came that was due soon
	pack := packer{most: g.cfg.Limits.Proposal, lead: g.cfg.ClaimLead, propose: func(command raftfsm.Ingest, parts []packedPart) error {
		if command.ClaimThrough > 0 {
			hurried = time.Now()
		}
		if err := g.awaitRoom(ctx); err != nil {
			return err
		}
		p := proposedIngest{Proposal: g.cfg.Log.Propose(ctx, command), parts: parts}
		select {
		case proposed <- p:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	for ctx.Err() == nil {
		batches, err := g.cfg.Source.Poll(ctx)
		if err != nil {
			return fmt.Errorf("poll delay topics: %w", err)
		}
		arrivals, err := g.packAll(ctx, &pack, batches)
		if err != nil {
			return err
		}
		if arrivals < fewArrivals && time.Since(hurried) >= calmAfter {
			select {
			case <-ctx.Done():
			case <-time.After(gatherFor):
			}
		}
	}
	return ctx.Err()
}

// packAll reads and proposes the records of one poll, and returns how many there are.
func (g *Ingest) packAll(ctx context.Context, pack *packer, batches []Batch) (arrivals int, err error) {
	if err := g.opening.enter(ctx); err != nil {
		return 0, err
	}
	defer g.opening.leave()
	for i := range batches {
		batch := &batches[i]
		if !g.places.counts(batch.id(), batch.Round) {
			continue
		}
		if err := g.pack(pack, batch); err != nil {
			return 0, err
		}
		arrivals += len(batch.Arrivals)
	}
	return arrivals, pack.flush(g.now())
}

// settle waits for the proposals in order. A part that was not applied met another position
// than expected: its partition loses its place and is read from the stored position anew,
// the other parts of the command are in the log. If another leader has ingested meanwhile,
// the term is over anyway.
func (g *Ingest) settle(ctx context.Context, proposed <-chan proposedIngest) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-proposed:
			if p.settled != nil {
				close(p.settled)
				continue
			}
			result, err := p.Wait(ctx)
			if err != nil {
				return fmt.Errorf("commit records: %w", err)
			}
			first := result.FirstSeq
			for i, applied := range result.PartsApplied {
				part := p.parts[i]
				switch {
				case applied:
					g.opening.note(part.named, first)
					first += uint64(part.records)
					g.cfg.Count.Accepted(part.records - g.tellAnswers(part, answersOf(result, i)))
					g.tellRefused(part)
				case g.places.lose(part.id, part.round):
					g.log.Warn("a source position is not the expected one, the partition is read anew from there",
						"topic", part.topic, "partition", part.id.partition)
				}
			}
		}
	}
}

// tellRefused counts and logs what was refused of a part that is in the log.
func (g *Ingest) tellRefused(part packedPart) {
	for code, records := range part.refused {
		g.cfg.Count.Rejected(code, records)
	}
	if last := part.lastRefused; last.problem != nil {
		records := 0
		for _, n := range part.refused {
			records += n
		}
		g.refused.Add(part.topic, records, "partition", part.id.partition, "offset", last.offset, "code", last.problem.Code, "reason", last.problem.Message)
	}
}

// How often room is asked for while there is none: soon at first, since a flush that is behind ends in moments, and
// who waited for a second each time took in no more than a few flushes a second; rarely while a disk is full.
const (
	leastRoomWait = 10 * time.Millisecond
	mostRoomWait  = time.Second
)

// awaitRoom returns when the disk has room for more. The status says so while it has not; the log
// only when it lasts, as a disk that is behind with its flushes lacks room for moments again and again.
func (g *Ingest) awaitRoom(ctx context.Context) error {
	err := g.cfg.Log.Room()
	if err == nil {
		return nil
	}
	defer g.cfg.Report.SetProblem("ingest", "")
	wait := time.NewTimer(leastRoomWait)
	defer wait.Stop()
	told := false
	for again := leastRoomWait; err != nil; err = g.cfg.Log.Room() {
		g.cfg.Report.SetProblem("ingest", err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait.C:
		}
		again = min(2*again, mostRoomWait)
		wait.Reset(again)
		if again == mostRoomWait && !told {
			g.log.Error("not accepting messages: they wait in Kafka until there is room", "error", err)
			told = true
		}
	}
	if told {
		g.log.Info("accepting messages again")
	}
	return nil
}

func (g *Ingest) now() int64 { return g.cfg.Now().UnixMilli() }
