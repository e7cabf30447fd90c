package brokertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// gather completes the ledger when the script is over.
func (p *player) gather() *ledger.Ledger {
	p.t.Helper()
	o := p.observer
	o.sampleErrors()
	l := &o.ledger
	l.Costs = o.costs() // before what is gathered costs something
	l.Begin, l.End = p.start, time.Now()
	l.Heartbeat, l.Discovery = p.config.Raft.Heartbeat, min(3*p.config.Raft.Heartbeat, time.Minute)
	timeout, usual := p.config.Routes[0].MissingTargetTimeout, config.NewRoute("").MissingTargetTimeout
	l.MissingTimeout, l.LongestMissingTimeout, l.DeadLetters = timeout, timeout, p.config.DeadLetter.Topic
	if o.routed { // what waits then has the default
		l.MissingTimeout, l.LongestMissingTimeout = min(timeout, usual), max(timeout, usual)
	}
	if !slices.ContainsFunc(p.nodes, func(n *node) bool { return n.everOld }) {
		l.MaxSkew = p.config.Clock.MaxSkew
	}
	l.Each = p.perMessage()
	for _, r := range p.produced {
		topic, _, _ := strings.Cut(r.origin, "/")
		l.Records = append(l.Records, ledger.Record{
			Identity: ledger.Identity{Origin: r.origin, Value: r.value},
			Topic:    topic, At: r.at, Target: r.target, Due: r.due,
			Aborted: r.aborted, Large: r.large, Gone: r.gone,
		})
		if !o.created[r.target] && r.target != "" && r.target != l.DeadLetters {
			o.began("missing "+r.target, ledger.Fault{Kind: "missing", Topic: r.target, From: p.start})
		}
	}
	for _, c := range p.changes {
		l.Changes = append(l.Changes, c.Change)
		p.report.Counters["changes answered: "+c.Answer]++
	}
	for _, n := range p.nodes {
		for _, s := range n.clock.settings() {
			l.Clocks = append(l.Clocks, ledger.Clock{Node: n.member.ID, At: s.at, Offset: s.offset, Drift: s.drift})
		}
	}
	l.Deliveries = p.consume()
	store := p.leader().raft().Store()
	l.Pending = p.pending(store)
	claim := store.Claim()
	l.Marks = ledger.Marks{Main: ledger.Mark(claim.Mark), Holds: make(map[string]ledger.Mark)}
	for _, hold := range store.Holds() {
		l.Marks.Holds[hold.Target] = ledger.Mark(hold.Mark)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	l.Terms = append(l.Terms, o.terms...)
	return l
}

// gathered is how long what Kafka has answered may wait until it goes into the log with others.
const gathered = 10 * time.Millisecond

// perMessage returns how long a message keeps the next one of its target waiting while all is well: as many as may be
// handed over are when Kafka has answered those before and that is in the log, behind what is on its way there: two
// commits, of two syncs each, since followers get what the leader has synced. Crowds of 1,424 and 2,504 with handed=4 to
// 200 took 0.8 to 1.1 times as long.
func (p *player) perMessage() time.Duration {
	var sync time.Duration
	for _, n := range p.nodes {
		sync = max(sync, n.files.ordinary)
	}
	return (p.faults.ordinary + gathered + 4*sync) / time.Duration(p.limits.Schedule.Handed)
}

// pending reads all that waits in a store.
func (p *player) pending(store *storage.Store) []ledger.Message {
	p.t.Helper()
	var items []storage.Item
	for from, done := (storage.Ref{}), false; !done; {
		var err error
		items, from, done, err = store.Scan(from, storage.Ref{}, len(items)+1024, nil, items)
		p.must(err)
	}
	refs := make([]storage.Ref, len(items))
	for i, item := range items {
		refs[i] = item.Ref
	}
	entries, err := store.Read(refs, nil)
	p.must(err)
	var all []ledger.Message
	for _, e := range entries {
		all = append(all, messageOf(e))
	}
	return all
}

// tell sums the run up in the report.
func (p *player) tell(l *ledger.Ledger) {
	r := p.report
	seen := make(map[ledger.Identity]bool)
	for _, d := range l.Deliveries {
		seen[d.Identity] = true
	}
	r.Produced, r.Delivered = len(l.Records), len(seen)
	for kind, n := range l.Duplicates() {
		r.Duplicates += n
		r.Counters["duplicates of "+kind] += int64(n)
	}
	for pair, n := range l.Pairs() {
		r.Pairs[pair] += n
	}
	r.Counters["terms"] = int64(len(l.Terms))
	for _, b := range l.Bounds() {
		r.Counters[b.What], r.Counters["budget for "+b.What] = b.Spent, b.Budget
	}
	for line, n := range p.observer.lines {
		if figures := strings.IndexFunc(line, unicode.IsDigit); figures > 0 { // lines that differ in these are of one kind
			line = strings.TrimRight(line[:figures], " (-")
		}
		r.Counters["logged: "+line] += int64(n)
	}
	p.t.Logf("%d produced, %d delivered, %d duplicates; %v", r.Produced, r.Delivered, r.Duplicates, r.Counters)
}

// positions returns what is wrong with the stored source positions, or nothing.
func (p *player) positions(n *node) string {
	user, admin := p.user()
	defer user.Close()
	ends, err := admin.ListEndOffsets(context.Background())
	p.must(err)
	stored := make(map[string]int64)
	topics, err := admin.ListTopics(context.Background())
	p.must(err)
	for _, position := range n.raft().Store().State().Positions {
		if position.TopicID == [16]byte(topics[position.Topic].ID) {
			stored[fmt.Sprintf("%s/%d", position.Topic, position.Partition)] = position.Next
		}
	}
	problem := ""
	ends.Each(func(o kadm.ListedOffset) {
		if !isDelayTopic(o.Topic) {
			return
		}
		if got, ok := stored[fmt.Sprintf("%s/%d", o.Topic, o.Partition)]; !ok || got != o.Offset {
			problem = fmt.Sprintf("position of %s/%d is %d, want %d", o.Topic, o.Partition, got, o.Offset)
		}
	})
	return problem
}

// consume returns all that came to topics that are not delay topics, also to those that were deleted since.
func (p *player) consume() []ledger.Delivery {
	p.t.Helper()
	return slices.Concat(p.deleted, p.read())
}

// read reads topics whole, all that are not delay topics if none is named.
func (p *player) read(topics ...string) []ledger.Delivery {
	p.t.Helper()
	user, admin := p.user()
	defer user.Close()
	ends, err := admin.ListEndOffsets(context.Background(), topics...)
	p.must(err)
	from := make(map[string]map[int32]kgo.Offset)
	remaining := 0
	ends.Each(func(o kadm.ListedOffset) {
		if isDelayTopic(o.Topic) || o.Offset == 0 {
			return
		}
		if from[o.Topic] == nil {
			from[o.Topic] = make(map[int32]kgo.Offset)
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().AtStart()
		remaining += int(o.Offset)
	})
	if remaining == 0 {
		return nil
	}
	reader, _ := p.user(kgo.ConsumePartitions(from))
	defer reader.Close()
	var all []ledger.Delivery
	for remaining > 0 {
		fetches := reader.PollFetches(context.Background())
		p.must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			all = append(all, delivery(r))
			remaining--
		})
	}
	return all
}

// deadLetterPrefix begins the names of the headers that tell why a record is a dead letter.
const deadLetterPrefix = "__carillon.errors."

func delivery(r *kgo.Record) ledger.Delivery {
	d := ledger.Delivery{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: r.Timestamp}
	d.Key, d.Value = string(r.Key), string(r.Value)
	deadLetter := map[string]string{}
	for _, h := range r.Headers {
		switch h.Key {
		case client.HeaderDeliveredFrom:
			d.Origin = string(h.Value)
		case client.HeaderDeliveredFor:
			d.Due, _ = strconv.ParseInt(string(h.Value), 10, 64)
		case client.HeaderDeliveredSeq:
			_, seq, _ := strings.Cut(string(h.Value), "/")
			d.Seq, _ = strconv.ParseUint(seq, 10, 64)
		case changeHeader:
			d.Number, _ = strconv.Atoi(string(h.Value))
		default:
			if field, ok := strings.CutPrefix(h.Key, deadLetterPrefix); ok {
				deadLetter[field] = string(h.Value)
			}
		}
	}
	if d.Origin == "" {
		d.Origin = deadLetter["topic"] + "/" + deadLetter["partition"] + "/" + deadLetter["offset"]
	}
	d.Unplaced = deadLetter["code"] == message.CodeTargetInvalid
	d.Absent = deadLetter["code"] == message.CodeTargetMissing || deadLetter["code"] == message.CodeTargetForbids
	return d
}
