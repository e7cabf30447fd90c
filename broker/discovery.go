package broker

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// awaitsStart is the stored position of a partition that held records when the
// cluster was born and whose route does not say where to start.
const awaitsStart = -1

// A discovery finds the partitions of the delay topics, gives each a position in
// the log and assigns them to the source. It runs in one goroutine of the ingest.
type discovery struct {
	ingestConfig
	log      *slog.Logger
	assigned []SourcePosition
	away     time.Time       // since when Kafka does not answer; zero while it does
	reminded time.Time       // when that was last logged
	partial  bool            // the first look is not complete yet, already complained of
	awaiting map[string]bool // topics without a start, already complained of
}

func newDiscovery(cfg ingestConfig, log *slog.Logger) *discovery {
	return &discovery{ingestConfig: cfg, log: log, awaiting: make(map[string]bool)}
}

func (d *discovery) run(ctx context.Context) error {
	tick := time.NewTicker(d.DiscoverEvery)
	defer tick.Stop()
	for {
		if err := d.round(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// round looks once. That Kafka does not answer is not an error of the term: what
// is assigned stays so.
//
// The stored positions are read before Kafka is asked: a position beyond the end
// that Kafka then tells is no race with ingest, but records that Kafka has lost.
func (d *discovery) round(ctx context.Context) error {
	state := d.Store.State()
	asked := time.Now()
	found, complete, err := d.Source.Discover(ctx)
	if ctx.Err() == nil {
		d.Report.hearKafka(err == nil, asked)
	}
	if err != nil {
		if ctx.Err() == nil {
			d.missKafka(err)
		}
		d.Report.setLag(nil)
		d.Report.setProblem("kafka", fmt.Sprintf("cannot list the delay topics: %v", err))
		return nil
	}
	if !d.away.IsZero() {
		d.log.Info("Kafka answers again", "after", d.Now().Sub(d.away).Round(time.Second))
	}
	d.away = time.Time{}
	d.Report.setProblem("kafka", "")

	if !complete && !state.Surveyed && !d.partial {
		d.partial = true
		d.log.Warn("some delay topics cannot be looked at, routes[].start holds for new ones too until all were: see to topics and partitions without a leader")
	}
	if moves := d.moves(found, state); len(moves) > 0 || complete && !state.Surveyed {
		if err := d.move(ctx, moves, complete); err != nil {
			return err
		}
	}
	d.assign(found, byPartition(d.Store.State().Positions))
	return nil
}

// remindEvery is how often the log says that Kafka is still away.
const remindEvery = time.Minute

// missKafka logs that Kafka does not answer: at once, and then every minute.
func (d *discovery) missKafka(err error) {
	now := d.Now()
	if d.away.IsZero() {
		d.away, d.reminded = now, now
		d.log.Error("cannot list the delay topics, trying on", "error", err)
	}
	if now.Sub(d.reminded) >= remindEvery {
		d.reminded = now
		d.log.Error("still cannot list the delay topics", "for", now.Sub(d.away).Round(time.Second), "error", err)
	}
}

// move commits the positions, and that all there was has been looked at if surveyed:
// what is found later was added since. A position that was being read already ends the term, since
// what the source has fetched is not what the log expects any more.
func (d *discovery) move(ctx context.Context, moves []raftfsm.PositionSet, surveyed bool) error {
	command := raftfsm.SetPositions{Time: d.Now().UnixMilli(), Surveyed: surveyed, Sets: moves}
	result, err := d.Log.Propose(ctx, command).Wait(ctx)
	if err != nil {
		return fmt.Errorf("commit source positions: %w", err)
	}
	for i, applied := range result.PartsApplied {
		if applied && moves[i].From >= 0 {
			return fmt.Errorf("partition %d of %s goes on at offset %d: %w", moves[i].Partition, moves[i].Topic, moves[i].Next, errPositionMoved)
		}
	}
	return nil
}

type partitionID struct {
	topic     TopicID
	partition int32
}

func byPartition(positions []storage.Position) map[partitionID]storage.Position {
	stored := make(map[partitionID]storage.Position, len(positions))
	for _, p := range positions {
		stored[partitionID{p.TopicID, p.Partition}] = p
	}
	return stored
}

// moves returns the positions that have to be written before reading can begin or
// go on.
func (d *discovery) moves(found []SourcePartition, state storage.State) []raftfsm.PositionSet {
	stored := byPartition(state.Positions)
	var moves []raftfsm.PositionSet
	for _, p := range found {
		position, ok := stored[partitionID{p.TopicID, p.Partition}]
		expected, next := position.Next, position.Next
		switch {
		case !ok:
			expected, next = raftfsm.FromAbsent, p.Earliest
			if !state.Surveyed && p.Latest > p.Earliest {
				next = d.start(p)
			}
		case position.Next == awaitsStart:
			next = d.start(p)
		case position.Next < p.Earliest:
			d.log.Error("records were deleted from a delay topic before they could be read: raise its retention",
				"topic", p.Topic, "partition", p.Partition, "lost_from", position.Next, "lost_to", p.Earliest)
			next = p.Earliest
		case position.Next > p.Latest:
			d.log.Error("a delay topic is shorter than what was read of it: Kafka has lost records, reading goes on at its end",
				"topic", p.Topic, "partition", p.Partition, "read_to", position.Next, "end", p.Latest)
			next = p.Latest
		}
		if next != expected {
			moves = append(moves, raftfsm.PositionSet{
				Position: storage.Position{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition, Next: next, Epoch: -1},
				From:     expected,
			})
		}
	}
	return moves
}

// start returns where the route says that a partition with records begins.
func (d *discovery) start(p SourcePartition) int64 {
	route, _ := d.Config.Route(p.Topic)
	switch route.Start {
	case StartEarliest:
		return p.Earliest
	case StartLatest:
		return p.Latest
	}
	if !d.awaiting[p.Topic] {
		d.awaiting[p.Topic] = true
		d.log.Error("partitions of a delay topic held records when the cluster was born and are not read: set routes[].start to earliest or latest for it",
			"topic", p.Topic, "route", route.From)
	}
	return awaitsStart
}

// assign tells the source what to read and reports the lag.
func (d *discovery) assign(found []SourcePartition, stored map[partitionID]storage.Position) {
	var positions []SourcePosition
	var waiting []string
	var lag int64
	for _, p := range found {
		position, ok := stored[partitionID{p.TopicID, p.Partition}]
		if ok && position.Next == awaitsStart {
			waiting = append(waiting, fmt.Sprintf("%s/%d", p.Topic, p.Partition))
		}
		if !ok || position.Next == awaitsStart {
			continue
		}
		lag += max(p.Latest-position.Next, 0)
		positions = append(positions, SourcePosition{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition, Next: position.Next, Epoch: position.Epoch})
	}
	d.Report.setLag(&lag)
	problem := ""
	if len(waiting) > 0 {
		problem = "not read, since they held records when the cluster was born: " + strings.Join(waiting, ", ") +
			": set routes[].start to earliest or latest for them"
	}
	d.Report.setProblem("start", problem)
	slices.SortFunc(positions, func(a, b SourcePosition) int {
		return cmp.Or(bytes.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Partition, b.Partition))
	})
	same := slices.EqualFunc(positions, d.assigned, func(a, b SourcePosition) bool {
		return a.TopicID == b.TopicID && a.Partition == b.Partition
	})
	if !same {
		d.assigned = positions
		d.Source.Assign(positions)
	}
}
