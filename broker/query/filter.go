package query

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// standings are the states that the log tells. That a dead letter is aside is told by the term that runs here,
// which has tried it.
func standings() []storage.Standing {
	return []storage.Standing{storage.Waiting, storage.Parked, storage.Paused, storage.Claimed, storage.Expired}
}

// A matcher is a filter that is ready to judge.
type matcher struct {
	client.Filter
	states []storage.Standing
	// wantsAside: the states have client.StateAside among them. aside are the dead letters that are: by seq, when
	// they are due, which is within asideFrom and asideTo.
	wantsAside         bool
	aside              map[uint64]int64
	asideFrom, asideTo int64
	cluster            [16]byte        // whose cursors it gives out
	record             *message.Origin // what it made alone is meant, if it has no id of its own; nil: whatever the filter means
}

// recordMatcher returns the matcher of what a record made that gave no id.
func recordMatcher(origin message.Origin) matcher {
	return matcher{Filter: client.Filter{Topic: origin.Topic, Prefix: origin.String()}, record: &origin}
}

func newMatcher(f client.Filter) (matcher, error) {
	m := matcher{Filter: f}
	for _, name := range f.States {
		if name == client.StateAside {
			m.wantsAside = true
			continue
		}
		at := slices.IndexFunc(standings(), func(g storage.Standing) bool { return g.String() == name })
		if at < 0 {
			return m, client.BadField("state", name, fmt.Sprintf("is none of %v and %s", standings(), client.StateAside))
		}
		m.states = append(m.states, standings()[at])
	}
	if f.Code != "" {
		return m, client.BadField("code", f.Code, "is of dead letters, messages that wait have none: leave it out")
	}
	if f.To != 0 && f.To <= f.From {
		return m, client.BadField("to", strconv.FormatInt(f.To, 10), fmt.Sprintf("is not after from, %d: give a later end, or leave it out", f.From))
	}
	return m, nil
}

// tellAside has the matcher know what is aside, which is little: nobody need look for it elsewhere.
func (m *matcher) tellAside(aside map[uint64]int64) {
	m.aside, m.asideFrom, m.asideTo = aside, math.MaxInt64, math.MinInt64
	for _, due := range aside {
		m.asideFrom, m.asideTo = min(m.asideFrom, due), max(m.asideTo, due)
	}
}

// first is where what is meant begins in the order of delivery, last its latest due time.
func (m *matcher) first() storage.Ref {
	first := storage.Ref{Due: math.MinInt64}
	if m.From != 0 {
		first.Due = m.From
	}
	if m.meansAsideAlone() {
		first.Due = max(first.Due, m.asideFrom)
	}
	return first
}

func (m *matcher) last() int64 {
	last := int64(math.MaxInt64)
	if m.To != 0 {
		last = m.To - 1
	}
	if m.meansAsideAlone() {
		last = min(last, m.asideTo)
	}
	return last
}

func (m *matcher) meansAsideAlone() bool { return m.wantsAside && len(m.states) == 0 }

// may reports whether an entry is meant, as far as it tells without its body. What was accepted before
// feature level 3 has topic and id in the body alone, and what nobody chose an id for its origin.
func (m *matcher) may(at *storage.Moment, e *storage.Entry) bool {
	if e.Due < m.From && m.From != 0 || e.Due > m.last() || m.Target != "" && e.Target != m.Target {
		return false
	}
	if e.Topic != "" && !m.mayName(e.Topic, e.ID) || e.ID != "" && m.record != nil {
		return false
	}
	if _, aside := m.aside[e.Seq]; aside {
		return m.wantsAside || len(m.Filter.States) == 0
	}
	return len(m.Filter.States) == 0 || slices.Contains(m.states, at.Standing(e))
}

func (m *matcher) mayName(topic, id string) bool {
	if m.Topic != "" && topic != m.Topic {
		return false
	}
	if id != "" {
		return strings.HasPrefix(id, m.Prefix)
	}
	origins := topic + "/"
	return strings.HasPrefix(origins, m.Prefix) || strings.HasPrefix(m.Prefix, origins)
}

// is reports whether a message that may be meant is, by its body.
func (m *matcher) is(found *message.Message) bool {
	if m.record != nil {
		return found.ID == "" && found.Origin == *m.record
	}
	return (m.Topic == "" || found.Origin.Topic == m.Topic) && strings.HasPrefix(found.Name(), m.Prefix)
}

// isUnreadable reports the same of one whose body cannot be read, by the topic that its entry tells.
func (m *matcher) isUnreadable(topic string) bool {
	return m.record == nil && (topic != "" || m.Topic == "")
}

// byBody reports whether many messages may have to be read of which few are meant.
func (m *matcher) byBody() bool { return strings.Contains(m.Prefix, "/") }
