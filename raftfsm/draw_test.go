package raftfsm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
)

var (
	playTopics  = []string{"a.delay", "b.delay"}
	playIDs     = []string{"one", "two", "three", "four", "five"}
	playTargets = []string{"a", "b", "c"}
)

// one draws an element.
func one[E any](random *rand.Rand, of []E) E { return of[random.IntN(len(of))] }

// draw makes up the next command: at first as programs before ids did, then the level is raised
// and ids are opened, batch by batch.
func (p *play) draw() Command {
	now := p.model.time + p.random.Int64N(30) - 3
	switch at := len(p.log); {
	case at < 40:
		return p.drawOld(now)
	case p.level < storage.LevelThree:
		p.level = storage.LevelThree
		return RaiseLevel{Time: now, Level: p.level}
	case at < 60 && p.random.IntN(2) == 0:
		return p.drawOld(now)
	case !p.idsOpen && (at > 80 || p.random.IntN(3) > 0):
		return p.drawOpening(now)
	case !p.idsOpen:
		return p.drawAck(now)
	case at > 200 && p.level < storage.LevelFour:
		p.level = storage.LevelFour
		return RaiseLevel{Time: now, Level: p.level}
	}
	switch p.random.IntN(14) {
	case 13:
		if p.level >= storage.LevelFour {
			return p.drawBulk(now)
		}
		return p.drawAck(now)
	case 12:
		what := covered{pause.Topic, one(p.random, playTopics)}
		if p.random.IntN(2) == 0 {
			what = covered{pause.Target, one(p.random, playTargets)}
		}
		if p.random.IntN(2) > 0 {
			return Resume{Time: now, Kind: what.kind, Name: what.name}
		}
		return Pause{Time: now, Kind: what.kind, Name: what.name, Who: "ann"}
	case 0:
		return p.drawAck(now)
	case 1, 2:
		return p.drawClaim(now)
	case 3:
		return p.drawReplace(now)
	case 4:
		return KeepOutcomes{Time: now, Keep: outcomes.Keep{For: 50 + p.random.Int64N(2000), Count: 1 + p.random.Uint64N(60)}}
	case 5, 6, 7:
		c := Operate{Time: now}
		for range 1 + p.random.IntN(4) {
			o := p.drawOperation(now)
			if p.level >= storage.LevelFour && p.random.IntN(2) == 0 {
				o = p.drawMore(o)
			}
			c.Operations = append(c.Operations, o)
		}
		return c
	}
	topic := one(p.random, playTopics)
	part := Part{TopicID: topicID, Topic: topic, From: p.model.position}
	if p.random.IntN(10) == 0 {
		part.From-- // of a leader that is behind
	}
	for range 1 + p.random.IntN(5) {
		o := p.drawOperation(now)
		if p.random.IntN(3) == 0 {
			o = Operation{Verb: Schedule, Entry: p.drawEntry(now)}
		}
		o.Entry.Topic = topic
		if p.level >= storage.LevelFour && p.random.IntN(3) > 0 {
			o.Record = uint64(len(part.Operations)) + 1
		}
		part.Operations = append(part.Operations, o)
	}
	part.Next = part.From + int64(len(part.Operations))
	c := Ingest{Time: now, Parts: []Part{part}}
	if p.random.IntN(4) == 0 {
		c.ClaimThrough = now + p.random.Int64N(50)
	}
	return c
}

func (p *play) drawEntry(now int64) storage.Entry {
	e := storage.Entry{Due: now + p.random.Int64N(400) - 20, Target: one(p.random, playTargets), Topic: one(p.random, playTopics), Body: make([]byte, p.random.IntN(30))}
	if p.random.IntN(4) == 0 {
		e.Expires = e.Due + p.random.Int64N(100)
	}
	return e
}

func (p *play) drawOperation(now int64) Operation {
	o := Operation{Verb: one(p.random, []Verb{Schedule, Schedule, Cancel, Change}), Entry: p.drawEntry(now)}
	o.If = one(p.random, []Condition{Always, Always, Always, Absent, Present, Exactly})
	if p.random.IntN(20) > 0 {
		o.Entry.ID = one(p.random, playIDs)
	}
	if o.If == Exactly {
		o.Seq = p.random.Uint64N(p.model.next)
		if life := p.model.life(o.Entry.Topic, o.Entry.ID); len(life) > 0 && p.random.IntN(3) > 0 {
			o.Seq = life[len(life)-1].seq
		}
	}
	if o.Verb == Cancel {
		o.Entry = storage.Entry{Topic: o.Entry.Topic, ID: o.Entry.ID}
	}
	return o
}

// drawMore makes of an operation one on a message by its seq, or one with a key, or a replay. There are
// fewer keys than are forgotten meanwhile.
func (p *play) drawMore(o Operation) Operation {
	n := p.model.all[p.drawSeq()]
	if canBeMeant := o.Verb == Cancel || o.Verb == Change && n.ID == ""; canBeMeant && n.Topic != "" && p.random.IntN(3) > 0 {
		o.Entry.Topic, o.Entry.ID = n.Topic, n.ID
		o.Of = &storage.Found{Ref: n.Ref, Target: n.Target, Topic: n.held, Expires: n.Expires}
		if o.Seq = 0; o.If == Exactly {
			o.Seq = n.Seq - p.random.Uint64N(2)
		}
	}
	if p.random.IntN(2) == 0 {
		o.Once = &Once{Key: name.Of("", fmt.Sprint(p.random.IntN(30))), Content: p.random.Uint64N(2)}
	}
	if o.Verb == Schedule && p.random.IntN(2) == 0 {
		offset := p.random.Int64N(60)
		o.Replay = &Replay{At: replayed.Partition{TopicID: topicID, Number: p.random.Int32N(2)}, Offset: offset, First: max(0, offset-50), Again: p.random.IntN(4) == 0}
	}
	return o
}

// drawBulk starts, carries on, or stops an operation on many messages, as its leader would or as one that
// has been deposed.
func (p *play) drawBulk(now int64) Command {
	id := 1 + p.random.Uint64N(p.model.started+1)
	switch p.random.IntN(7) {
	case 0, 1:
		c := StartBulk{Time: now, What: fmt.Sprint("what ", now), Who: "ann"}
		if p.random.IntN(2) == 0 {
			c.Once = Once{Key: name.Of("", fmt.Sprint(p.random.IntN(30))), Content: p.random.Uint64N(2)}
		}
		return c
	case 2:
		return StopBulk{Time: now, ID: id, Problem: "ann"}
	}
	c := StepBulk{Time: now, ID: id, Next: fmt.Sprint(p.random.IntN(3)), Finished: p.random.IntN(6) == 0}
	at := slices.IndexFunc(p.model.bulks, func(o bulk.Operation) bool { return o.State == bulk.Running })
	if at >= 0 && p.random.IntN(4) > 0 {
		c.ID, c.From = p.model.bulks[at].ID, p.model.bulks[at].Cursor
	}
	plain := p.random.IntN(5) == 0
	for range p.random.IntN(4) {
		o := p.drawOperation(now)
		if p.random.IntN(2) == 0 {
			o = p.drawMore(o)
		}
		if plain {
			o = Operation{Verb: Schedule, Entry: p.drawEntry(now)}
		}
		c.Operations = append(c.Operations, o)
	}
	if p.random.IntN(3) == 0 {
		c.Passed, c.Problem = bulk.Counts{TooLate: p.random.Uint64N(3), NotFound: p.random.Uint64N(3), Failed: p.random.Uint64N(3)}, "why"
	}
	return c
}

// drawOld is what came before ids were open.
func (p *play) drawOld(now int64) Command {
	if p.random.IntN(5) == 0 {
		return p.drawClaim(now)
	}
	part := Part{TopicID: topicID, Topic: "a.delay", From: p.model.position}
	for range 1 + p.random.IntN(3) {
		e := p.drawEntry(now)
		n := storage.Named{Ref: storage.Ref{Due: e.Due, Seq: p.model.next + uint64(len(part.Entries))}, Target: e.Target, Topic: e.Topic, ID: one(p.random, playIDs), Expires: e.Expires}
		p.legacy[n.Seq] = n
		e.Topic, e.Expires = "", 0 // these are in the body
		part.Entries = append(part.Entries, e)
	}
	part.Next = part.From + int64(len(part.Entries))
	return Ingest{Time: now, Parts: []Part{part}}
}

// drawOpening names the next few of what came before.
func (p *play) drawOpening(now int64) Command {
	seqs := slices.Sorted(maps.Keys(p.legacy))
	n := min(len(seqs), 1+p.random.IntN(20))
	c := OpenIDs{Time: now, UpTo: p.model.next - 1}
	for _, seq := range seqs[:n] {
		c.Named = append(c.Named, p.legacy[seq])
		delete(p.legacy, seq)
	}
	if p.idsOpen = len(p.legacy) == 0; !p.idsOpen {
		c.UpTo = seqs[n] - 1
	}
	return c
}

func (p *play) drawAck(now int64) Command {
	c := Ack{Time: now}
	for range 1 + p.random.IntN(6) {
		seq := p.drawSeq()
		if slices.ContainsFunc(c.Runs, func(r storage.SeqRun) bool { return r.First == seq }) {
			continue
		}
		c.Runs = append(c.Runs, storage.SeqRun{First: seq, Last: seq})
		if n := p.model.all[seq]; n.ID != "" { // of some it is the second end
			e := outcomes.Outcome{Name: name.Of(n.Topic, n.ID), Kind: outcomes.Expired, Seq: seq, Due: n.Due, At: now - p.random.Int64N(5), Target: n.Target}
			if p.random.IntN(4) > 0 {
				e.Kind, e.Partition, e.Offset = outcomes.Delivered, p.random.Int32N(9), p.random.Int64N(1000)-1
			}
			c.Ended = append(c.Ended, e)
		}
	}
	return c
}

// drawSeq prefers what is due first, as a leader does.
func (p *play) drawSeq() uint64 {
	if len(p.model.alive) == 0 || p.random.IntN(8) == 0 {
		return 1 + p.random.Uint64N(p.model.next)
	}
	named := slices.SortedFunc(maps.Values(p.model.alive), func(a, b message) int { return a.Ref.Compare(b.Ref) })
	return named[p.random.IntN(min(len(named), 10))].Seq
}

func (p *play) drawReplace(now int64) Command {
	seq := p.drawSeq()
	c := Replace{Time: now, Kills: []uint64{seq}, Entries: []storage.Entry{{Due: now, Target: "dead", Topic: "a.delay", Body: []byte("letter")}}}
	if n := p.model.all[seq]; n.ID != "" {
		c.Ended = []Ended{{Name: name.Of(n.Topic, n.ID), Kind: outcomes.DeadLettered, Seq: seq, Due: n.Due, At: now, Target: "dead", Offset: -1}}
	}
	return c
}

func (p *play) drawClaim(now int64) Command {
	c := ChangeClaim{Time: now, ClaimChange: storage.ClaimChange{Through: now + p.random.Int64N(100) - 20}}
	for _, target := range playTargets {
		switch p.random.IntN(8) {
		case 0:
			c.Set = append(c.Set, storage.Hold{Target: target, Through: now + p.random.Int64N(100) - 80})
		case 1, 2:
			c.Lift = append(c.Lift, target)
		}
	}
	if p.level < storage.LevelThree {
		return c
	}
	for _, topic := range playTopics {
		switch p.random.IntN(4) {
		case 0:
			c.Topics = append(c.Topics, storage.TopicHold{Topic: topic, Through: now + p.random.Int64N(100) - 80})
		case 1:
			c.LiftTopics = append(c.LiftTopics, topic)
		}
	}
	return c
}
