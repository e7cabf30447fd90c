package raftfsm

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// Two nodes apply one random log, each at its own pace. At moments of its own each flushes,
// merges, starts again, or takes a snapshot of the other in place of what it has missed. At every
// index both answer what the model does, and when both are at one index their digests are equal.
func TestFSM_answersAsTheModelWhateverANodeHasBeenThrough(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPlay(t, rand.New(rand.NewPCG(seed, 0)))
			for range 700 {
				p.propose(p.draw())
				for _, r := range p.replicas {
					p.step(r)
				}
				if t.Failed() {
					return
				}
			}
			p.compare()
		})
	}
}

// A play is a log, what the model answered to each of its entries, and the nodes that apply it.
type play struct {
	t        *testing.T
	random   *rand.Rand
	model    *model
	log      []Command
	answers  [][][]Answer
	replicas [2]*replica

	legacy  map[uint64]storage.Named // accepted before ids were open, with the ids in their bodies
	level   storage.Level
	idsOpen bool
}

// A replica is one node. It has applied the log up to fsm.applied.
type replica struct {
	dir    string
	fsm    *FSM
	frozen raft.FSMSnapshot // a flush that is to be written later
	meta   storage.SnapshotMeta
	asleep int // entries to miss
}

func newPlay(t *testing.T, random *rand.Rand) *play {
	p := &play{t: t, random: random, model: newModel(), legacy: make(map[uint64]storage.Named), level: storage.LevelTwo}
	for i := range p.replicas {
		r := &replica{dir: t.TempDir()}
		p.open(r)
		p.replicas[i] = r
		t.Cleanup(func() {
			if err := r.fsm.store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	p.propose(RaiseLevel{Level: storage.LevelTwo})
	p.propose(positionFrom(0))
	return p
}

func (p *play) open(r *replica) {
	p.t.Helper()
	store, err := storage.Open(storage.Config{Dir: r.dir, MergeWidth: 2 + p.random.IntN(3)})
	if err != nil {
		p.t.Fatal(err)
	}
	cfg := fsmConfig(1<<20, func(err error) { p.t.Errorf("stopped: %v", err) })
	cfg.Understands = storage.LevelFour
	r.fsm, r.frozen = NewFSM(store, cfg), nil
}

func (p *play) propose(c Command) {
	p.log = append(p.log, c)
	p.answers = append(p.answers, p.model.apply(c))
}

// step lets something happen to a node, mostly that it applies what it has not.
func (p *play) step(r *replica) {
	if r.asleep > 0 {
		r.asleep--
		return
	}
	p.catchUp(r)
	switch p.random.IntN(40) {
	case 0, 1, 2:
		p.freeze(r)
		p.persist(r)
	case 3, 4: // to be written when the log has gone on
		p.freeze(r)
	case 5, 6:
		p.persist(r)
	case 7:
		p.release(r)
	case 8, 9, 10:
		p.merge(r)
	case 11:
		p.release(r)
		if err := r.fsm.store.Close(); err != nil {
			p.t.Fatal(err)
		}
		p.open(r)
		p.catchUp(r)
	case 12:
		r.asleep = p.random.IntN(40)
	case 13:
		p.send(p.other(r), r)
	case 14:
		p.compare()
	}
}

func (p *play) other(r *replica) *replica {
	if r == p.replicas[0] {
		return p.replicas[1]
	}
	return p.replicas[0]
}

// catchUp applies the rest of the log, from where the node is, and compares the answers.
func (p *play) catchUp(r *replica) {
	p.t.Helper()
	for at := r.fsm.applied; at < uint64(len(p.log)); at++ {
		cmd := p.log[at]
		data, err := AppendCommand(nil, cmd, r.fsm.store.Level())
		if err != nil {
			p.t.Fatal(err)
		}
		res, ok := r.fsm.Apply(&raft.Log{Index: at + 1, Term: 1, Data: data}).(Result)
		if !ok {
			p.t.Fatalf("entry %d, %T: %v", at+1, cmd, r.fsm.broken)
		}
		if diff := cmp.Diff(p.answers[at], res.Answers); diff != "" {
			p.t.Fatalf("node %s, entry %d, %+v (-model +node):\n%s", r.dir, at+1, cmd, diff)
		}
	}
}

func (p *play) freeze(r *replica) {
	p.t.Helper()
	p.release(r)
	snapshot, err := r.fsm.Snapshot()
	if err != nil {
		p.t.Fatal(err)
	}
	r.frozen, r.meta = snapshot, storage.SnapshotMeta{Index: r.fsm.applied, Term: 1, Configuration: raft.EncodeConfiguration(raft.Configuration{})}
}

func (p *play) persist(r *replica) {
	p.t.Helper()
	if r.frozen == nil {
		return
	}
	if err := r.frozen.Persist(&sink{meta: r.meta}); err != nil {
		p.t.Fatal(err)
	}
	p.release(r)
}

func (p *play) release(r *replica) {
	if r.frozen != nil {
		r.frozen.Release()
		r.frozen = nil
	}
}

func (p *play) merge(r *replica) {
	p.t.Helper()
	for range 1 + p.random.IntN(3) {
		if did, err := r.fsm.store.Merge(context.Background()); err != nil {
			p.t.Fatal(err)
		} else if !did {
			return
		}
	}
}

// send has a node take a snapshot of another, which is as far as it is or further.
func (p *play) send(from, to *replica) {
	p.t.Helper()
	p.release(to)
	from.asleep = 0
	p.catchUp(from)
	p.freeze(from)
	p.persist(from)
	meta, stream, err := (&Snapshots{Store: from.fsm.store}).Open("")
	if err != nil {
		p.t.Fatal(err)
	}
	shots := &Snapshots{Store: to.fsm.store, Received: func(error) {}, Refuse: func() {}, Fail: func(err error) { p.t.Error(err) }}
	k, err := shots.Create(1, meta.Index, meta.Term, raft.Configuration{}, 0, nil)
	if err == nil {
		_, err = io.Copy(k, stream)
	}
	if err == nil {
		err = k.Close()
	}
	if err == nil {
		err = stream.Close()
	}
	if err == nil {
		err = to.fsm.Restore(io.NopCloser(nil))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// compare holds that both nodes, brought to the end of the log, are the same, and know of each id
// what the model does.
func (p *play) compare() {
	p.t.Helper()
	for _, r := range p.replicas {
		r.asleep = 0
		p.catchUp(r)
	}
	if digest(p.t, p.replicas[0].fsm.store) != digest(p.t, p.replicas[1].fsm.store) {
		p.t.Fatalf("digests differ after entry %d", len(p.log))
	}
	for _, r := range p.replicas {
		store := r.fsm.store
		if got, want := store.Pending(), uint64(len(p.model.alive)); got != want {
			p.t.Fatalf("%d are pending, want %d", got, want)
		}
		if got := store.OutcomesSince(); got != p.model.since {
			p.t.Fatalf("outcomes are known since %d, want %d", got, p.model.since)
		}
		for _, topic := range playTopics {
			for _, id := range playIDs {
				p.compareID(store, topic, id)
			}
		}
		if err := store.Check(); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *play) compareID(store *storage.Store, topic, id string) {
	p.t.Helper()
	var want storage.Found
	for _, h := range p.model.life(topic, id) {
		if h.alive {
			n := p.model.alive[h.seq]
			want = storage.Found{Ref: n.Ref, Target: n.Target, Topic: n.held, Expires: n.Expires}
		}
	}
	got, ok, err := store.Lookup(topic, id)
	if err != nil || got != want || ok != (want.Seq != 0) {
		p.t.Fatalf("%s of %s is %+v, %v, %v, want %+v", id, topic, got, ok, err, want)
	}
	life := slices.DeleteFunc(slices.Clone(p.model.ended), func(o outcomes.Outcome) bool { return o.Name != name.Of(topic, id) })
	if diff := cmp.Diff(life, store.Life(topic, id)); diff != "" && len(life) > 0 {
		p.t.Fatalf("life of %s of %s (-model +node):\n%s", id, topic, diff)
	}
}

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
	switch p.random.IntN(13) {
	case 12:
		what := covered{pause.Topic, one(p.random, playTopics)}
		if p.random.IntN(2) == 0 {
			what = covered{pause.Target, one(p.random, playTargets)}
		}
		if p.random.IntN(3) > 0 {
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

// drawMore makes of an operation one on a message without an id, or one with a key, or a replay. There are
// fewer keys than are forgotten meanwhile.
func (p *play) drawMore(o Operation) Operation {
	if n := p.model.all[p.drawSeq()]; o.Verb != Schedule && n.ID == "" && n.Topic != "" && p.random.IntN(3) > 0 {
		o.Entry.Topic, o.Entry.ID = n.Topic, ""
		o.Of = storage.Found{Ref: n.Ref, Target: n.Target, Topic: n.held, Expires: n.Expires}
		if o.Seq = 0; o.If == Exactly {
			o.Seq = n.Seq - p.random.Uint64N(2)
		}
	}
	if p.random.IntN(2) == 0 {
		o.Once = Once{Key: name.Of("", fmt.Sprint(p.random.IntN(30))), Content: p.random.Uint64N(2)}
	}
	if o.Verb == Schedule && p.random.IntN(2) == 0 {
		offset := p.random.Int64N(60)
		o.Replay = Replay{At: replayed.Partition{TopicID: topicID, Number: p.random.Int32N(2)}, Offset: offset, First: max(0, offset-50), Again: p.random.IntN(4) == 0}
	}
	return o
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
