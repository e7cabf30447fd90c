package raftfsm

import (
	gocmp "cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
		p.compareClaimed(store)
		for _, topic := range playTopics {
			for _, id := range playIDs {
				p.compareID(store, topic, id)
			}
		}
		bulks := slices.SortedFunc(slices.Values(p.model.bulks), func(a, b bulk.Operation) int { return gocmp.Compare(b.ID, a.ID) })
		if diff := cmp.Diff(bulks, store.Bulks(), cmpopts.EquateEmpty()); diff != "" {
			p.t.Fatalf("operations (-model +node):\n%s", diff)
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
