package raftfsm

import (
	"maps"
	"math"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// isClaimed reports whether the message is claimed: it was, or all that holds it lets it go now and
// nothing of that is paused.
func (m *model) isClaimed(seq uint64) bool {
	n := m.alive[seq]
	isPaused := m.paused[covered{pause.Topic, n.held}] || m.paused[covered{pause.Target, n.Target}]
	through := m.throughOf(n.held, n.Target)
	if come, ok := m.come[[2]string{n.held, n.Target}]; ok {
		through = min(through, come)
	}
	return m.claimed[seq] || !isPaused && n.Due <= through
}

// pairUp notes how far each topic's messages for each target have come, after a command that has found
// holds as they were: while one of the two is paused no further, and while the target is held as far
// as claims let it go that name it, and the hold of the topic was by then.
func (m *model) pairUp(c Command, was map[covered]int64) {
	throughOf := func(held map[covered]int64, kind pause.Kind, name string) int64 {
		if through, isHeld := held[covered{kind, name}]; isHeld {
			return through
		}
		return math.MaxInt64
	}
	let := make(map[string]int64)
	claim, _ := c.(ChangeClaim)
	for _, target := range claim.Lift {
		let[target] = math.MaxInt64
	}
	for _, hold := range claim.Set {
		let[hold.Target] = hold.Through
	}
	resume, _ := c.(Resume)
	for topic := range m.names(pause.Topic) {
		for target := range m.names(pause.Target) {
			pair := [2]string{topic, target}
			come, ok := m.come[pair]
			if !ok {
				come = math.MaxInt64
			}
			come = min(come, throughOf(was, pause.Topic, topic), throughOf(was, pause.Target, target))
			_, isHeld := m.held[covered{pause.Target, target}]
			through, named := let[target]
			switch {
			case m.paused[covered{pause.Topic, topic}] || m.paused[covered{pause.Target, target}]:
				m.come[pair] = come
			case !isHeld:
				delete(m.come, pair)
			case named:
				m.come[pair] = max(come, min(through, throughOf(m.held, pause.Topic, topic)))
			case resume.Name == topic && resume.Kind == pause.Topic || resume.Name == target && resume.Kind == pause.Target:
				m.come[pair] = come
			}
			if m.come[pair] >= throughOf(m.held, pause.Target, target) {
				delete(m.come, pair)
			}
		}
	}
}

// names yields all that was ever held, and is of the kind, and what messages that wait name.
func (m *model) names(kind pause.Kind) map[string]bool {
	all := make(map[string]bool)
	for what := range m.held {
		if what.kind == kind {
			all[what.name] = true
		}
	}
	for _, n := range m.alive {
		all[map[pause.Kind]string{pause.Topic: n.held, pause.Target: n.Target}[kind]] = true
	}
	for pair := range m.come {
		all[pair[map[pause.Kind]int{pause.Topic: 0, pause.Target: 1}[kind]]] = true
	}
	return all
}

// throughOf is how far what is held by this topic and target is claimed.
func (m *model) throughOf(topic, target string) int64 {
	through := m.through
	for _, what := range []covered{{pause.Topic, topic}, {pause.Target, target}} {
		if of, held := m.held[what]; held {
			through = min(through, of)
		}
	}
	return through
}

// change follows a claim, which takes nothing back that was claimed and changes nothing of what
// is paused.
func (m *model) change(c storage.ClaimChange) {
	held := maps.Clone(m.held)
	for _, target := range c.Lift {
		if what := (covered{pause.Target, target}); !m.paused[what] {
			delete(held, what)
		}
	}
	for _, topic := range c.LiftTopics {
		if what := (covered{pause.Topic, topic}); !m.paused[what] {
			delete(held, what)
		}
	}
	for _, hold := range c.Set {
		what, now := covered{pause.Target, hold.Target}, m.throughOf("", hold.Target)
		if m.level < storage.LevelThree {
			now = hold.Through // it may fall
		}
		held[what] = now
		if !m.paused[what] {
			held[what] = max(hold.Through, now)
		}
	}
	for _, hold := range c.Topics {
		what := covered{pause.Topic, hold.Topic}
		if now, isHeld := m.held[what]; isHeld && !m.paused[what] {
			held[what] = max(hold.Through, now)
		}
	}
	m.held, m.through = held, max(m.through, c.Through)
}
