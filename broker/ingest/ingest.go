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
	"github.com/carillonmq/carillon/broker/message"
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
	// mostKept bounds key and headers that the dead letter of a larger one keeps.
	mostKept = raftfsm.ProposalBytes
)

// An Ingest takes records from the source into the log. Every command is a
// compare-and-set on the positions of the partitions in it, so a record enters the
// schedule exactly once, whoever proposes and however often.
//
//	discover: topics of Kafka --> positions in the log --> Source.Assign
//	take:     Source.Poll --> entries --> proposals, in order --> settle
type Ingest struct {
	cfg     Options
	log     *slog.Logger
	places  *places
	refused *digest.Digest
}

// Options are the parts that an Ingest is made of.
type Options struct {
	Config config.Config
	Source Source
	Log    Log
	Store  Store
	Count  Count
	Now    func() time.Time
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
}

// A Log takes commands into the replicated log; *node.Node implements it.
type Log interface {
	Propose(ctx context.Context, command raftfsm.Command) *raftfsm.Proposal
	// Room returns why nothing is to be accepted for now, or nil.
	Room() error
}

// A Count counts what ingest does; broker.Metrics implements it.
type Count interface {
	// Accepted counts messages that are in the log, refused ones included.
	Accepted(messages int)
	// Rejected counts those of them that are refused, by the code of the Problem.
	Rejected(code string, messages int)
	// SourceLost counts records that Kafka deleted before they were read.
	SourceLost(records int64)
}

// New returns an Ingest that does nothing until Run.
func New(cfg Options) *Ingest {
	log := cfg.Logger.With("component", "ingest")
	cfg.Limits = cmp.Or(cfg.Limits, DefaultLimits())
	return &Ingest{cfg: cfg, log: log, places: newPlaces(), refused: digest.New(log, "records refused, they go to the dead-letter topic")}
}

// Run ingests until ctx ends or something must end the term. Kafka being away
// does not: the backlog waits there.
func (g *Ingest) Run(ctx context.Context) error {
	defer g.refused.Close()
	proposed := make(chan proposedIngest, mostProposed)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return newDiscovery(g.cfg, g.places, g.log).run(ctx) })
	group.Go(func() error { return g.take(ctx, proposed) })
	group.Go(func() error { return g.settle(ctx, proposed) })
	return group.Wait()
}

type proposedIngest struct {
	*raftfsm.Proposal
	parts []packedPart
}

// take polls the source and proposes what it gives, in order. When too much is in
// flight or the disk is full it waits, which pauses the fetch.
func (g *Ingest) take(ctx context.Context, proposed chan<- proposedIngest) error {
	var hurried time.Time // when something last came that was due soon
	for ctx.Err() == nil {
		batches, err := g.cfg.Source.Poll(ctx)
		if err != nil {
			return fmt.Errorf("poll delay topics: %w", err)
		}
		pack := packer{most: g.cfg.Limits.Proposal, lead: g.cfg.ClaimLead, propose: func(command raftfsm.Ingest, parts []packedPart) error {
			if command.ClaimThrough > 0 {
				hurried = time.Now()
			}
			if err := g.awaitRoom(ctx); err != nil {
				return err
			}
			p := proposedIngest{g.cfg.Log.Propose(ctx, command), parts}
			select {
			case proposed <- p:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		arrivals := 0
		for _, batch := range batches {
			if !g.places.counts(batch.id(), batch.Round) {
				continue
			}
			if err := g.pack(&pack, batch); err != nil {
				return err
			}
			arrivals += len(batch.Arrivals)
		}
		if err := pack.flush(g.now()); err != nil {
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

// pack turns the batch into entries.
func (g *Ingest) pack(pack *packer, batch Batch) error {
	route, ok := g.cfg.Config.Route(batch.Topic)
	if !ok {
		return fmt.Errorf("pack records of %s: no route matches the topic", batch.Topic)
	}
	now := g.now()
	pack.begin(batch)
	to := g.destination(route, batch.Topic, "")
	for i := range batch.Arrivals {
		arrival := &batch.Arrivals[i]
		if arrival.Instruction.To != to.deliverTo {
			to = g.destination(route, batch.Topic, arrival.Instruction.To)
		}
		entry, problem := g.entry(route, to, batch, arrival, now)
		if err := pack.add(batch, arrival.Offset, entry, problem, now); err != nil {
			return err
		}
	}
	pack.end(batch)
	return nil
}

// A destination is where messages with the same deliver-to go, all of one delay topic, and what
// speaks against it. It is judged once for a run of them: patterns cost more than the rest of an
// entry.
type destination struct {
	deliverTo string
	target    string
	problem   *message.Problem
}

func (g *Ingest) destination(route config.Route, topic, deliverTo string) destination {
	target, problem := g.cfg.Config.Destination(route, topic, deliverTo)
	return destination{deliverTo, target, problem}
}

// entry returns what one record becomes in the schedule: a message for its target,
// or, when it cannot be one, a dead letter, and why. Both go the same way from here on.
func (g *Ingest) entry(route config.Route, to destination, batch Batch, a *Arrival, now int64) (storage.Entry, *message.Problem) {
	level := g.cfg.Store.Level()
	due := max(a.Instruction.DueAt, 0) // the wheel counts from 1970
	m := message.Message{
		ID:          a.Instruction.ID,
		Origin:      message.Origin{Topic: batch.Topic, Partition: batch.Partition, Offset: a.Offset},
		PlannedFor:  a.Instruction.DueAt,
		Overdue:     max(now-due, 0),
		Partition:   a.Instruction.Partition,
		Partitioner: route.Partitioner,
		Key:         a.Key,
		Value:       a.Value,
		Headers:     a.Headers,
	}
	problem := a.Problem
	if size := a.size(); size > MostRecord {
		problem = shorten(&m, size)
	}
	if problem == nil {
		problem = to.problem
	}
	if problem == nil {
		problem = route.RefuseDue(a.Instruction.DueAt, now)
	}
	if problem == nil {
		problem = m.TooNew(level)
	}
	if problem != nil {
		letter := m.AsDeadLetter(*problem, now)
		return letter.Entry(now, g.cfg.Config.DeadLetterTopic(route), level), problem
	}
	return m.Entry(due, to.target, level), nil
}

// shorten leaves out the value of a record of that many bytes, and key and headers if they
// are large by themselves, and returns the problem.
func shorten(m *message.Message, size int) *message.Problem {
	problem := &message.Problem{Code: message.CodeTooLarge, Message: fmt.Sprintf("record of %d bytes, uncompressed: send %d at most", size, MostRecord)}
	dropped := len(m.Value)
	if size-dropped > mostKept {
		m.Key, m.Headers = nil, nil
		problem.Message += "; key and headers are left out here"
	}
	m.DropValue()
	return problem
}

// A packer gathers entries into ingest commands of at most so many bytes, or of one
// entry that is larger by itself.
type packer struct {
	most     int   // bytes of a command
	lead     int64 // milliseconds: what is due sooner brings its claim along
	propose  func(command raftfsm.Ingest, parts []packedPart) error
	parts    []raftfsm.Part
	packed   []packedPart // in the order of parts
	bytes    int
	messages int
	soon     bool // something is due before a claim of its own could be committed in time
}

// A packedPart says where a part of a command comes from and what it holds.
type packedPart struct {
	topic       string
	id          partitionID
	round       uint64
	messages    int
	refused     map[string]int // of them, by code; nil: none
	lastRefused refusal
}

// A refusal is why the record at the offset cannot be scheduled.
type refusal struct {
	offset  int64
	problem *message.Problem
}

// begin starts a part at the batch's first offset.
func (p *packer) begin(batch Batch) { p.open(batch, batch.From) }

func (p *packer) open(batch Batch, from int64) {
	part := raftfsm.Part{TopicID: batch.TopicID, Topic: batch.Topic, Partition: batch.Partition, From: from, Next: from, Epoch: batch.Epoch}
	p.parts = append(p.parts, part)
	p.packed = append(p.packed, packedPart{topic: batch.Topic, id: batch.id(), round: batch.Round})
	p.bytes += part.Size()
}

// add appends the entry of the record at offset, proposing what is there if the
// entry does not fit beside it.
func (p *packer) add(batch Batch, offset int64, entry storage.Entry, problem *message.Problem, now int64) error {
	size := raftfsm.EntrySize(&entry)
	if p.messages > 0 && p.bytes+size > p.most {
		// The gap before the record belongs to this command, so that the next one
		// begins at the record.
		p.parts[len(p.parts)-1].Next = offset
		if err := p.flush(now); err != nil {
			return err
		}
		p.open(batch, offset)
	}
	part := &p.parts[len(p.parts)-1]
	part.Entries = append(part.Entries, entry)
	part.Next = offset + 1
	p.bytes += size
	p.messages++
	packed := &p.packed[len(p.packed)-1]
	packed.messages++
	if problem != nil {
		if packed.refused == nil {
			packed.refused = make(map[string]int)
		}
		packed.refused[problem.Code]++
		packed.lastRefused = refusal{offset, problem}
	}
	p.soon = p.soon || entry.Due <= now+p.lead
	return nil
}

// end takes what follows the last record of the batch, markers and gaps.
func (p *packer) end(batch Batch) {
	p.parts[len(p.parts)-1].Next = batch.Next
}

// flush proposes what was gathered. A command with something that is due soon
// brings its claim, so that a short delay costs no further commit.
func (p *packer) flush(now int64) error {
	if len(p.parts) == 0 {
		return nil
	}
	command := raftfsm.Ingest{Time: now, Parts: p.parts}
	if p.soon {
		command.ClaimThrough = now + p.lead
	}
	err := p.propose(command, p.packed)
	*p = packer{most: p.most, lead: p.lead, propose: p.propose}
	return err
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
			result, err := p.Wait(ctx)
			if err != nil {
				return fmt.Errorf("commit records: %w", err)
			}
			for i, applied := range result.PartsApplied {
				part := p.parts[i]
				switch {
				case applied:
					g.cfg.Count.Accepted(part.messages)
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

// awaitRoom returns when the disk has room for more, saying so while it has not.
func (g *Ingest) awaitRoom(ctx context.Context) error {
	err := g.cfg.Log.Room()
	if err == nil {
		return nil
	}
	g.log.Error("not accepting messages: they wait in Kafka until there is room", "error", err)
	defer g.cfg.Report.SetProblem("ingest", "")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ; err != nil; err = g.cfg.Log.Room() {
		g.cfg.Report.SetProblem("ingest", err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	g.log.Info("accepting messages again")
	return nil
}

func (g *Ingest) now() int64 { return g.cfg.Now().UnixMilli() }
