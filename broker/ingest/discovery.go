package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// awaitsStart is the stored position of a partition that held records when the
// cluster was born and whose route does not say where to start.
const awaitsStart = -1

// A discovery finds the partitions of the delay topics, gives each a position in
// the log and assigns them to the source. It runs in one goroutine of the ingest.
//
//	look: topics --> offsets of their partitions
//	judge: positions in the log against what was told --> moves, committed by compare-and-set
//	assign: what is to be read, from the positions on
type discovery struct {
	Options
	log      *slog.Logger
	places   *places
	topics   delayTopics
	survey   survey
	loss     loss
	listAt   time.Time // when all topics are listed again
	assigned []SourcePosition
	away     time.Time       // since when Kafka does not answer; zero while it does
	reminded time.Time       // when that was last logged
	partial  bool            // the first look is not complete yet, already complained of
	awaiting map[string]bool // topics without a start, already complained of
}

func newDiscovery(cfg Options, places *places, log *slog.Logger) *discovery {
	d := &discovery{Options: cfg, log: log, places: places, topics: make(delayTopics), awaiting: make(map[string]bool)}
	for _, position := range cfg.Store.State().Positions {
		if _, ok := cfg.Config.Route(position.Topic); ok {
			d.topics.expect(position.Topic)
		}
	}
	return d
}

func (d *discovery) run(ctx context.Context) error {
	for {
		if err := d.pass(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pauseFor(len(d.assigned), d.DiscoverEvery)):
		}
	}
}

// pass looks once at Kafka, moves what has to move and assigns. That Kafka does not answer is not an error of the term: what
// is assigned stays so.
//
// The stored positions are read before Kafka is asked: a position beyond the end
// that Kafka then tells is no race with ingest.
func (d *discovery) pass(ctx context.Context) error {
	state := d.Store.State()
	asked := time.Now()
	found, complete, err := d.look(ctx, state)
	if ctx.Err() == nil {
		d.Report.HearKafka(err == nil, asked)
	}
	if err != nil {
		if ctx.Err() == nil {
			d.missKafka(err)
		}
		d.survey = survey{} // silence agrees with nothing
		d.Report.SetLag(nil)
		d.Report.SetProblem("kafka", fmt.Sprintf("cannot list the delay topics: %v", err))
		d.tellReading(byPartition(state.Positions), errKafkaSilent)
		return nil
	}
	if !d.away.IsZero() {
		d.log.Info("Kafka answers again", "after", d.Now().Sub(d.away).Round(time.Second))
	}
	d.away = time.Time{}
	d.Report.SetProblem("kafka", "")

	if !complete && !state.Surveyed && !d.partial {
		d.partial = true
		d.log.Warn("some delay topics cannot be looked at, routes[].start holds for new ones too until all were: see to topics and partitions without a leader")
	}
	surveyed := !state.Surveyed && d.survey.hear(found, complete, asked)
	if moves := d.judge(found, state, asked); len(moves) > 0 || surveyed {
		if err := d.move(ctx, moves, surveyed); err != nil {
			return err
		}
	}
	d.assign()
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

// A move is a position to be written, and why.
type move struct {
	raftfsm.PositionSet
	kind findingKind
}

// move commits the positions, and that all there was has been looked at if surveyed:
// what is found later was added since. What was being read of a partition that is moved
// counts no more; the others read on.
func (d *discovery) move(ctx context.Context, moves []move, surveyed bool) error {
	command := raftfsm.SetPositions{Time: d.Now().UnixMilli(), Surveyed: surveyed}
	for _, m := range moves {
		command.Sets = append(command.Sets, m.PositionSet)
	}
	result, err := d.Log.Propose(ctx, command).Wait(ctx)
	if err != nil {
		return fmt.Errorf("commit source positions: %w", err)
	}
	for i, applied := range result.PartsApplied {
		if m := moves[i]; applied && m.kind != intact {
			id := partitionID{m.TopicID, m.Partition}
			round, _ := d.places.round(id)
			d.places.lose(id, round)
			d.tellMove(m)
		}
	}
	return nil
}

func (d *discovery) tellMove(m move) {
	log := d.log.With("topic", m.Topic, "partition", m.Partition)
	switch m.kind {
	case deleted:
		d.loss.note(m)
		d.Count.SourceLost(m.Next - m.From)
		log.Error("records were deleted from a delay topic before they could be read: raise its retention",
			"lost_from", m.From, "lost_to", m.Next)
	case replaced:
		log.Error("Kafka has lost records of a delay topic that were read already, what it has in their place is read now",
			"read_to", m.From, "from", m.Next)
	case shortened:
		log.Error("a delay topic is shorter than what was read of it: Kafka has lost records, reading goes on at its end",
			"read_to", m.From, "end", m.Next)
	}
}

func byPartition(positions []storage.Position) map[partitionID]storage.Position {
	stored := make(map[partitionID]storage.Position, len(positions))
	for _, p := range positions {
		stored[partitionID{p.TopicID, p.Partition}] = p
	}
	return stored
}

// judge returns the positions that have to be written before reading can begin or go on.
func (d *discovery) judge(found []foundPartition, state storage.State, now time.Time) []move {
	stored := byPartition(state.Positions)
	var moves []move
	for _, f := range found {
		position, ok := stored[f.id]
		m := move{PositionSet: raftfsm.PositionSet{
			Position: storage.Position{Topic: f.Topic, TopicID: f.id.topic, Partition: f.Partition, Epoch: f.answer.Epoch},
			From:     position.Next,
		}}
		switch {
		case !ok:
			m.From, m.Next = raftfsm.FromAbsent, f.answer.Earliest
			if !state.Surveyed && f.answer.End > f.answer.Earliest {
				m.Next = d.start(f)
			}
		case position.Next == awaitsStart:
			m.Next = d.start(f)
		case f.answer.Epoch < max(position.Epoch, f.partition.Epoch):
			continue // told by one that is behind: proves nothing
		default:
			finding := find(position, f.answer, f.ReadEpoch >= 0)
			if finding.kind == intact && f.ReadEpoch >= 0 {
				f.partition.intactAt, f.partition.intactTo = f.answer.Epoch, position.Next
			}
			if finding.kind == deleted && !f.failing {
				finding.kind = intact // what was fetched before it was deleted is still to come
			}
			f.partition.suspect = finding.kind != intact
			if f.partition.suspect && f.TopicID == (TopicID{}) {
				continue // it may be told of a topic that was deleted: the next look asks by the id
			}
			if !f.partition.doubt.hear(finding, now) {
				continue
			}
			m.kind, m.Next = finding.kind, f.partition.doubt.next
			f.partition.doubt = doubt{}
		}
		if m.Next == awaitsStart {
			m.Epoch = -1
		}
		if m.Next != m.From {
			moves = append(moves, m)
		}
	}
	return moves
}

// mayStart reports whether the position waits for a start that the route tells by now.
func (d *discovery) mayStart(topic string, at storage.Position) bool {
	if at.Next != awaitsStart {
		return false
	}
	route, _ := d.Config.Route(topic)
	return route.Start != ""
}

// start returns where the route says that a partition with records begins. What a transaction holds back that is open now was
// there before, too: what is read from the latest on lies behind it.
func (d *discovery) start(f foundPartition) int64 {
	route, _ := d.Config.Route(f.Topic)
	switch route.Start {
	case config.StartEarliest:
		return f.answer.Earliest
	case config.StartLatest:
		return f.answer.End
	}
	if !d.awaiting[f.Topic] {
		d.awaiting[f.Topic] = true
		d.log.Error("partitions of a delay topic held records when the cluster was born and are not read: set routes[].start to earliest or latest for it",
			"topic", f.Topic, "route", route.From)
	}
	return awaitsStart
}

// assign tells the source what to read, and reports that and the lag.
func (d *discovery) assign() {
	d.beginReadings()
	stored := byPartition(d.Store.State().Positions)
	positions, lag := d.positions(stored)
	d.Report.SetLag(&lag)
	d.tellAwaitingStart(stored)
	d.tellReading(stored, nil)
	same := slices.EqualFunc(positions, d.assigned, func(a, b SourcePosition) bool {
		return a.TopicID == b.TopicID && a.Partition == b.Partition && a.Round == b.Round
	})
	if !same {
		d.assigned = positions
		d.Source.Assign(positions)
	}
}

// beginReadings begins those that have lost their place, before the stored positions are read
// (see places), and those of what is not assigned.
func (d *discovery) beginReadings() {
	assigned := make(map[partitionID]bool, len(d.assigned))
	for _, a := range d.assigned {
		assigned[partitionID{a.TopicID, a.Partition}] = true
	}
	for _, t := range d.topics {
		for number := range t.partitions {
			id := partitionID{t.id, number}
			if _, ok := d.places.round(id); !ok || !assigned[id] {
				d.places.begin(id)
			}
		}
	}
}

// positions returns where the partitions are to be read that have a position, and how many
// records they hold that are not read, those that a transaction holds back included.
func (d *discovery) positions(stored map[partitionID]storage.Position) (positions []SourcePosition, lag int64) {
	for _, name := range d.topics.names() {
		t := d.topics[name]
		for _, number := range t.numbers() {
			id := partitionID{t.id, number}
			position, ok := stored[id]
			if !ok || position.Next == awaitsStart {
				continue
			}
			lag += max(t.partitions[number].end-position.Next, 0)
			round, _ := d.places.round(id)
			positions = append(positions, SourcePosition{Topic: name, TopicID: t.id, Partition: number,
				Next: position.Next, Epoch: position.Epoch, Round: round})
		}
	}
	return positions, lag
}
