package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A delivered record, as a consumer of its topic sees it.
type delivered struct {
	topic     string
	partition int32
	offset    int64
	value     string
	at        int64 // the record's timestamp
	origin    string
	due       int64
	seq       uint64
}

// An identity tells records apart. The origin alone does not: a topic that is
// created anew has the same offsets again.
type identity struct{ origin, value string }

func (d delivered) identity() identity { return identity{d.origin, d.value} }

// settle makes everything run again and waits until nothing is pending but what the
// script's setting "left" says.
func (p *player) settle(settings arguments) {
	p.t.Helper()
	for _, n := range p.nodes {
		n.thaw()
		p.network.set(open, n.member.ID, p.hosts()...)
		if !n.running() {
			n.start()
		}
	}
	left, err := strconv.ParseUint(settings.value("left", "0"), 10, 64)
	p.must(err)
	p.await(p.span(settings.value("patience", "1h")), "quiet: all delivered, all nodes equal", func() bool {
		if p.positions(p.leader()) != "" {
			return false
		}
		for _, n := range p.nodes {
			if !n.running() || n.raft().Store().Pending() != left {
				return false
			}
		}
		return true
	})
}

// check holds what happened against the promises.
func (p *player) check(settings arguments) {
	p.t.Helper()
	left, _ := strconv.Atoi(settings.value("left", "0"))
	all := p.consume()
	first := make(map[identity]delivered)
	duplicates := 0
	for _, d := range all {
		if at := d.at + p.offset(d.at); d.due > 0 && at < d.due {
			p.t.Errorf("early: %s, due %d, was delivered at %d by the leader's clock", d.origin, d.due, at)
		}
		if _, again := first[d.identity()]; again {
			duplicates++
			continue
		}
		first[d.identity()] = d
	}
	lost, dead := 0, 0
	for _, want := range p.produced {
		got, ok := first[identity{want.origin, want.value}]
		switch {
		case !ok:
			lost++
			if lost > left {
				p.t.Errorf("lost: %s (%s) for %s", want.origin, want.value, want.target)
			}
		case got.topic == want.target:
		case got.topic == p.config.DeadLetter.Topic:
			dead++
		default:
			p.t.Errorf("%s (%s): delivered to %s, want %s", want.origin, want.value, got.topic, want.target)
		}
	}
	if text := settings.value("dead", "0"); text != strconv.Itoa(dead) {
		p.t.Errorf("%d good messages ended in the dead-letter topic, want %s", dead, text)
	}
	p.checkOrder(all, p.span(settings.value("slack", "200ms")))
	if text, ok := settings.values["duplicates"]; ok && text != strconv.Itoa(duplicates) {
		p.t.Errorf("%d duplicates, want %s", duplicates, text)
	}
	if problem := p.positions(p.leader()); problem != "" {
		p.t.Error(problem)
	}
	p.checkStores()
	p.t.Logf("%d produced, %d delivered, %d duplicates", len(p.produced), len(first), duplicates)
}

// checkOrder looks at first copies: those of one target partition come in order of
// (due, seq), unless the later one was accepted when the other was due already.
// When it was accepted is not known, only when it was produced; slack is what may lie
// between, a claim's lead included.
func (p *player) checkOrder(all []delivered, slack time.Duration) {
	p.t.Helper()
	producedAt := make(map[identity]time.Time)
	for _, r := range p.produced {
		producedAt[identity{r.origin, r.value}] = r.at
	}
	seen := make(map[identity]bool)
	highest := make(map[string]delivered) // by target partition
	for _, d := range all {
		if d.seq == 0 || seen[d.identity()] {
			continue
		}
		seen[d.identity()] = true
		where := fmt.Sprintf("%s/%d", d.topic, d.partition)
		last, ok := highest[where]
		if !ok || last.due < d.due || last.due == d.due && last.seq < d.seq {
			highest[where] = d
			continue
		}
		if accepted := producedAt[d.identity()].UnixMilli(); accepted < last.due-slack.Milliseconds() {
			p.t.Errorf("order: in %s, %s (due %d, seq %d) came after %s (due %d, seq %d)",
				where, d.origin, d.due, d.seq, last.origin, last.due, last.seq)
		}
	}
}

// offset returns by how much the clock of the only node was wrong at that time, in
// milliseconds; the larger if it was set at that very moment. The clocks of larger
// clusters are not set.
func (p *player) offset(at int64) int64 {
	var offset int64
	for _, step := range p.steps {
		if step.at < at {
			offset = step.offset
		} else if step.at == at {
			offset = max(offset, step.offset)
		}
	}
	return offset
}

// checkStores holds the nodes' schedules against each other.
func (p *player) checkStores() {
	p.t.Helper()
	var want [32]byte
	p.await(time.Hour, "equal applied index on all nodes", func() bool {
		index := p.nodes[0].raft().Store().State().AppliedIndex
		for _, n := range p.nodes {
			if n.raft().Store().State().AppliedIndex != index {
				return false
			}
		}
		return true
	})
	for i, n := range p.nodes {
		if err := n.raft().Store().Check(); err != nil {
			p.t.Errorf("storage of %s: %v", n.member.ID, err)
		}
		got, err := n.raft().Store().Digest()
		p.must(err)
		if i > 0 && !bytes.Equal(got[:], want[:]) {
			p.t.Errorf("storage of %s differs from that of %s", n.member.ID, p.nodes[0].member.ID)
		}
		want = got
	}
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
		if !strings.HasSuffix(o.Topic, ".delay") {
			return
		}
		if got, ok := stored[fmt.Sprintf("%s/%d", o.Topic, o.Partition)]; !ok || got != o.Offset {
			problem = fmt.Sprintf("position of %s/%d is %d, want %d", o.Topic, o.Partition, got, o.Offset)
		}
	})
	return problem
}

// consume reads every topic that is not a delay topic, whole.
func (p *player) consume() []delivered {
	p.t.Helper()
	user, admin := p.user()
	defer user.Close()
	ends, err := admin.ListEndOffsets(context.Background())
	p.must(err)
	from := make(map[string]map[int32]kgo.Offset)
	remaining := 0
	ends.Each(func(o kadm.ListedOffset) {
		if strings.HasSuffix(o.Topic, ".delay") || o.Offset == 0 {
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
	var all []delivered
	for remaining > 0 {
		fetches := reader.PollFetches(context.Background())
		p.must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			all = append(all, read(r))
			remaining--
		})
	}
	return all
}

func read(r *kgo.Record) delivered {
	d := delivered{topic: r.Topic, partition: r.Partition, offset: r.Offset, value: string(r.Value), at: r.Timestamp.UnixMilli()}
	deadLetter := map[string]string{}
	for _, h := range r.Headers {
		switch h.Key {
		case client.HeaderDeliveredFrom:
			d.origin = string(h.Value)
		case client.HeaderDeliveredFor:
			d.due, _ = strconv.ParseInt(string(h.Value), 10, 64)
		case client.HeaderDeliveredSeq:
			_, seq, _ := strings.Cut(string(h.Value), "/")
			d.seq, _ = strconv.ParseUint(seq, 10, 64)
		default:
			if field, ok := strings.CutPrefix(h.Key, "__carillon.errors."); ok {
				deadLetter[field] = string(h.Value)
			}
		}
	}
	if d.origin == "" {
		d.origin = deadLetter["topic"] + "/" + deadLetter["partition"] + "/" + deadLetter["offset"]
	}
	return d
}

// expect checks something in the middle of a script.
func (p *player) expect(a arguments) error {
	switch what := a.word(0); what {
	case "delivered":
		want, err := strconv.Atoi(a.value("count", "1"))
		if err != nil {
			return err
		}
		got := map[identity]bool{}
		for _, d := range p.consume() {
			if d.topic == a.word(1) {
				got[d.identity()] = true
			}
		}
		if len(got) != want {
			return fmt.Errorf("%d messages delivered to %s, want %d", len(got), a.word(1), want)
		}
	case "pending":
		want := a.value("count", "0")
		if got := strconv.FormatUint(p.leader().raft().Store().Pending(), 10); got != want {
			return fmt.Errorf("%s messages pending, want %s", got, want)
		}
	case "problem", "no-problem":
		problems := p.leader().broker.Status().Problems
		isNamed := func(problem string) bool { return strings.Contains(problem, a.word(1)) }
		if slices.ContainsFunc(problems, isNamed) != (what == "problem") {
			return fmt.Errorf("the leader has the problems %q", problems)
		}
	case "level":
		if got := fmt.Sprint(p.leader().raft().Store().Level()); got != a.word(1) {
			return fmt.Errorf("feature level %s, want %s", got, a.word(1))
		}
	case "leader":
		p.leader()
	default:
		return fmt.Errorf("cannot expect %q", what)
	}
	return nil
}
