package raftfsm

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
)

// A model is what a schedule with ids has to be, in plain maps and lists, all of them searched
// from end to end. It has no files, no index and no filters.
type model struct {
	level    storage.Level
	idsOpen  bool
	time     int64
	through  int64             // of the claim
	held     map[covered]int64 // through of the holds
	paused   map[covered]bool
	come     map[[2]string]int64 // how far what came by a topic for a target that is held has come; if it is not there, as far as that is
	position int64
	part     *Part // whose operations are carried out
	next     uint64
	alive    map[uint64]message
	claimed  map[uint64]bool    // of those alive, as they were after the last command
	all      map[uint64]message // that ever were
	ended    []outcomes.Outcome // those that are known, oldest end first
	since    int64
	keep     outcomes.Keep
	replayed map[letter]bool
	started  uint64
	bulks    []bulk.Operation // that are known: first those that have ended, in that order, then those that run
}

// covered names what can be held and paused.
type covered struct {
	kind pause.Kind
	name string
}

type message struct {
	storage.Named
	held string // the topic by which it is held
	lost bool   // its id, to a newer one, before ids were open
}

func newModel() *model {
	return &model{held: make(map[covered]int64), paused: make(map[covered]bool), come: make(map[[2]string]int64), next: 1, alive: make(map[uint64]message), claimed: make(map[uint64]bool), all: make(map[uint64]message), keep: outcomes.DefaultKeep, replayed: make(map[letter]bool)}
}

// apply returns what the command answers.
func (m *model) apply(c Command) [][]Answer {
	was := maps.Clone(m.held)
	defer func() {
		m.pairUp(c, was)
		m.claimAll()
	}()
	switch c := c.(type) {
	case Ingest:
		m.setTime(c.Time)
		m.through = max(m.through, c.ClaimThrough)
		answers, answered := make([][]Answer, len(c.Parts)), false
		for i, p := range c.Parts {
			if p.From != m.position {
				continue
			}
			m.position = p.Next
			for _, e := range p.Entries {
				if m.idsOpen {
					e.Topic = p.Topic
				}
				m.accept(e)
			}
			m.part = &c.Parts[i]
			answers[i] = m.operate(p.Operations)
			m.part = nil
			answered = answered || answers[i] != nil
		}
		if answered {
			return answers
		}
	case Operate:
		m.setTime(c.Time)
		return [][]Answer{m.operate(c.Operations)}
	case StartBulk:
		m.setTime(c.Time)
		return [][]Answer{{m.startBulk(c)}}
	case StepBulk:
		m.setTime(c.Time)
		for _, o := range m.bulks {
			if o.ID == c.ID && o.State == bulk.Running && o.Cursor == c.From {
				return [][]Answer{m.stepBulk(o, c)}
			}
		}
	case StopBulk:
		m.setTime(c.Time)
		for _, o := range m.bulks {
			if o.ID == c.ID && o.State == bulk.Running {
				o.State, o.Ended, o.Problem = bulk.Stopped, m.time, c.Problem
				m.setBulk(o)
			}
		}
	case Ack:
		m.setTime(c.Time)
		m.end(c.Ended)
		for _, run := range c.Runs {
			for seq := run.First; seq <= run.Last; seq++ {
				delete(m.alive, seq)
			}
		}
	case Replace:
		m.setTime(c.Time)
		m.end(c.Ended)
		var entries []storage.Entry
		for i, seq := range c.Kills {
			if _, alive := m.alive[seq]; alive {
				delete(m.alive, seq)
				entries = append(entries, c.Entries[i])
			}
		}
		for _, e := range entries {
			m.accept(e)
		}
	case ChangeClaim:
		m.setTime(c.Time)
		m.change(c.ClaimChange)
	case OpenIDs:
		m.setTime(c.Time)
		for _, n := range c.Named {
			if before, alive := m.alive[n.Seq]; alive {
				m.alive[n.Seq] = message{Named: n, held: before.held, lost: before.lost}
				m.all[n.Seq] = m.alive[n.Seq]
				m.loseOlder(n.Topic, n.ID)
			}
		}
		if !m.idsOpen && c.UpTo >= m.next-1 {
			if m.idsOpen = true; m.next > 1 {
				m.since = max(m.since, m.time+1)
			}
		}
	case RaiseLevel:
		m.setTime(c.Time)
		m.level = c.Level
	case KeepOutcomes:
		m.setTime(c.Time)
		m.keep = c.Keep
	case Pause:
		m.setTime(c.Time)
		what := covered{c.Kind, c.Name}
		if now, held := m.held[what]; !m.paused[what] {
			m.held[what] = m.through
			if held {
				m.held[what] = min(now, m.through)
			}
		}
		m.paused[what] = true
	case Resume:
		m.setTime(c.Time)
		delete(m.paused, covered{c.Kind, c.Name})
	}
	return nil
}

// loseOlder takes the id from all that wait with it but the newest.
func (m *model) loseOlder(topic, id string) {
	var newest uint64
	for seq, n := range m.alive {
		if n.Topic == topic && n.ID == id && !n.lost {
			newest = max(newest, seq)
		}
	}
	for seq, n := range m.alive {
		if n.Topic == topic && n.ID == id && seq < newest {
			n.lost = true
			m.alive[seq] = n
		}
	}
}

// claimAll notes what is claimed now. It stays so from LevelThree on.
func (m *model) claimAll() {
	if m.level < storage.LevelThree {
		return
	}
	for seq := range m.alive {
		m.claimed[seq] = m.isClaimed(seq)
	}
}

func (m *model) setTime(ms int64) {
	m.time = max(m.time, ms)
	m.forget(1000)
	m.bulks = slices.DeleteFunc(m.bulks, func(o bulk.Operation) bool { return o.State != bulk.Running && o.Ended < m.time-bulk.KeptFor })
}

// forget gives up what is too old or too much among the ends of messages, the refusals and the answers to keys,
// each from the oldest on, so many of each at a time.
func (m *model) forget(most int) {
	for class, count := range []uint64{m.keep.Count, (m.keep.Count + 9) / 10, m.keep.Count} {
		for range most {
			oldest, known := -1, uint64(0)
			for i := len(m.ended) - 1; i >= 0; i-- {
				if classOf(m.ended[i].Kind) == class {
					oldest = i
					known++
				}
			}
			if oldest < 0 || known <= count && m.ended[oldest].At >= m.time-m.keep.For {
				break
			}
			if class == 0 {
				m.since = max(m.since, m.ended[oldest].At+1)
			}
			m.ended = slices.Delete(m.ended, oldest, oldest+1)
		}
	}
}

// classOf returns what the outcome counts among.
func classOf(k outcomes.Kind) int {
	return map[outcomes.Kind]int{outcomes.Refused: 1, outcomes.RefusedRecord: 1, outcomes.Answered: 2}[k]
}

func (m *model) note(o outcomes.Outcome) {
	m.ended = append(m.ended, o)
	m.forget(2)
}

func (m *model) end(ended []Ended) {
	for _, e := range ended {
		if _, alive := m.alive[e.Seq]; alive {
			m.note(e)
		}
	}
}

func (m *model) accept(e storage.Entry) (seq uint64) {
	seq = m.next
	m.next++
	named := storage.Named{Ref: storage.Ref{Due: e.Due, Seq: seq}, Target: e.Target, Topic: e.Topic, ID: e.ID, Expires: e.Expires}
	m.alive[seq] = message{Named: named, held: e.Topic}
	m.all[seq] = m.alive[seq]
	return seq
}

func (m *model) operate(operations []Operation) (answers []Answer) {
	plain := true
	for _, o := range operations {
		plain = plain && o.Verb == Schedule && o.If == Always && o.Entry.ID == "" && o.Once == nil && o.Replay == nil
		answers = append(answers, m.operateOnce(o))
	}
	if plain {
		return nil
	}
	return answers
}

func (m *model) operateOnce(o Operation) Answer {
	if o.Once == nil {
		return m.operateReplay(o)
	}
	return m.once(*o.Once, func() Answer { return m.operateReplay(o) })
}

func (m *model) once(o Once, do func() Answer) Answer {
	if o == (Once{}) {
		return do()
	}
	for _, e := range m.ended {
		switch {
		case e.Kind != outcomes.Answered || e.Name != o.Key:
		case e.By == o.Content:
			return Answer{Code: Code(e.Partition), Seq: e.Seq, Again: true}
		default:
			return Answer{Code: KeyReused}
		}
	}
	a := do()
	if a.Seq != manyRun {
		m.note(outcomes.Outcome{Name: o.Key, Kind: outcomes.Answered, Seq: a.Seq, By: o.Content, At: m.time, Partition: int32(a.Code)})
	}
	return a
}

// manyRun is the Seq of an answer that is not kept.
const manyRun = math.MaxUint64

func (m *model) operateReplay(o Operation) Answer {
	if o.Replay == nil {
		return m.operateOne(o)
	}
	at := letter{o.Replay.At, o.Replay.Offset}
	if m.replayed[at] && !o.Replay.Again {
		return Answer{Code: Replayed}
	}
	a := m.operateOne(o)
	if a.Code == Scheduled || a.Code == Superseded {
		maps.DeleteFunc(m.replayed, func(other letter, _ bool) bool { return other.at == at.at && other.offset < o.Replay.First })
		m.replayed[at] = true
	}
	return a
}

// A letter is a dead letter by its place.
type letter struct {
	at     replayed.Partition
	offset int64
}

// A happening is all that is known of one message of an id.
type happening struct {
	seq     uint64
	alive   bool
	claimed bool
	end     outcomes.Outcome // also of what has expired, be it alive or not
}

// life lists what is known of the messages of an id, by seq. What a node has forgotten, and a
// message that others of its id have outlived, is not in it twice.
func (m *model) life(topic, id string) (life []happening) {
	for _, o := range m.ended {
		if o.Name == name.Of(topic, id) && o.Kind != outcomes.Refused && o.Kind != outcomes.RefusedRecord {
			life = append(life, happening{seq: o.Seq, end: o})
		}
	}
	for _, n := range m.alive {
		if n.Topic != topic || n.ID != id || n.lost {
			continue
		}
		life = append(life, m.happening(n))
	}
	slices.SortFunc(life, func(a, b happening) int { return cmp.Compare(a.seq, b.seq) })
	return life
}

// happening is what a message does that is alive.
func (m *model) happening(n message) happening {
	h := happening{seq: n.Seq, alive: true, claimed: m.isClaimed(n.Seq)}
	if n.Expires != 0 && n.Expires <= m.time {
		h.end = outcomes.Outcome{Kind: outcomes.Expired, Seq: n.Seq, Due: n.Due, At: n.Expires, Target: n.Target}
		if n.ID != "" {
			h.end.Name = name.Of(n.Topic, n.ID)
		}
	}
	return h
}

func (m *model) operateOne(o Operation) Answer {
	e := o.Entry
	var last, newest happening // of all, and of those alive
	var onWay uint64
	if e.ID != "" {
		for _, h := range m.life(e.Topic, e.ID) {
			last = h
			if h.alive {
				newest, onWay = h, 0
				if h.claimed {
					onWay = h.seq
				}
			}
		}
		if newest.alive && !newest.claimed && newest.end.Kind == 0 {
			last = newest
		}
	}
	if o.Of != nil {
		if n, alive := m.alive[o.Of.Seq]; alive {
			last = m.happening(n)
		}
	}
	pending := uint64(0)
	if last.alive && !last.claimed && last.end.Kind == 0 {
		pending = last.seq
	}
	holds := o.If == Always || o.If == Absent && pending == 0 || o.If == Present && pending != 0 ||
		o.If == Exactly && pending != 0 && pending == o.Seq
	finish := func(kind outcomes.Kind, by uint64) {
		n := m.alive[pending]
		delete(m.alive, pending)
		if e.ID == "" {
			return
		}
		m.note(outcomes.Outcome{Name: name.Of(e.Topic, e.ID), Kind: kind, Seq: pending, By: by, Due: n.Due, At: m.time, Target: n.Target})
	}

	if !holds && (o.Verb == Schedule || pending != 0) {
		if e.ID != "" {
			refused := outcomes.Outcome{Name: name.Of(e.Topic, e.ID), Kind: outcomes.Refused, Due: e.Due, At: m.time, Target: e.Target}
			if o.Record > 0 {
				refused.Kind, refused.Partition, refused.Offset = outcomes.RefusedRecord, m.part.Partition, m.part.From+int64(o.Record)-1
			}
			m.note(refused)
		}
		return Answer{Code: Conflict, Seq: pending}
	}
	if pending != 0 {
		if o.Verb == Cancel {
			finish(outcomes.Cancelled, 0)
			return Answer{Code: WasCancelled, Seq: pending}
		}
		seq := m.accept(e)
		finish(outcomes.Replaced, seq)
		return Answer{Code: Superseded, Seq: seq, Before: pending}
	}
	if o.Verb == Schedule {
		return Answer{Code: Scheduled, Seq: m.accept(e), Before: onWay}
	}
	switch {
	case last.seq == 0 && o.Of != nil:
		return Answer{Code: NotFound, Since: m.time}
	case last.seq == 0:
		return Answer{Code: NotFound, Since: m.since}
	case last.end.Kind == outcomes.Cancelled && o.Verb == Cancel:
		return Answer{Code: AlreadyCancelled, Seq: last.seq, Outcome: &last.end}
	case last.end.Kind != 0:
		return Answer{Code: TooLate, Seq: last.seq, Outcome: &last.end}
	}
	return Answer{Code: TooLate, Seq: last.seq}
}
