package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/storage"
)

const (
	// asideAgain is the time between two tries of what is aside, while none succeeds.
	asideAgain = 5 * time.Second
	// warnAgain is the time between two lines of the log about a dead-letter topic that cannot be written to.
	warnAgain = time.Minute
	// One try is of so many bytes of stored bodies at most, and of mostChunk dead
	// letters, one of them at least; and of the smallest that was too large.
	asideBytes = 1 << 20
)

// An aside is the dead letters that their topic refuses, each when it was sent alone,
// for what is in them. They wait here, without payload, until the topic is repaired, so
// that none is dropped (invariant 7) and none holds another up. There are some thousands at
// most, since they count for schedule.MostHanded like all that is handed over.
//
//	ready --refused--> letters --every 5 s, a few in turn--> waiting
type aside struct {
	letters []asideLetter       // that are not tried at present, the next one first
	refused map[uint64]struct{} // seqs of these, and of those that are tried at present
	again   time.Time           // when the next ones are tried
	warned  time.Time           // when the last refusal was logged
}

type asideLetter struct {
	ref      storage.Ref
	size     int // bytes of the stored body
	tooLarge bool
}

func (a *aside) isEmpty() bool { return len(a.letters) == 0 }

// mayTry reports whether some wait and the last try is over. Where Kafka takes long to
// refuse, tries would queue up before what was never refused.
func (a *aside) mayTry() bool { return len(a.letters) > 0 && len(a.letters) == len(a.refused) }

// writtenAside notes that the topic took a record. If it was one that it had refused, the
// topic has changed, and the next ones are tried at once.
func (l *lane) writtenAside(seq uint64) {
	a := &l.aside
	if _, ok := a.refused[seq]; ok {
		delete(a.refused, seq)
		l.p.cfg.Report.EndAside(seq)
		a.again = time.Time{}
	}
}

// setAside keeps a dead letter that is refused out of the way of the others.
func (l *lane) setAside(ctx context.Context, o *outgoing, cause error) {
	l.unload(o)
	if l.aside.isEmpty() {
		l.aside.again = time.Now().Add(asideAgain)
	}
	l.aside.letters = append(l.aside.letters, asideLetter{o.ref, o.size, errors.Is(cause, ErrRecordTooLarge)})
	if _, ok := l.aside.refused[o.ref.Seq]; !ok {
		if l.aside.refused == nil {
			l.aside.refused = make(map[uint64]struct{})
		}
		l.aside.refused[o.ref.Seq] = struct{}{}
		l.p.cfg.Report.SetAside(o.ref.Seq, o.ref.Due)
		l.p.cfg.Count.DeadLetterStuck()
		level := slog.LevelDebug
		if time.Since(l.aside.warned) >= time.Second {
			level = slog.LevelError
			l.aside.warned = time.Now()
		}
		l.log.Log(ctx, level, "dead letter is refused and waits: repair the dead-letter topic", "origin", o.message.Origin.String(), "bytes", o.size, "error", cause)
	}
	l.reportRefused(cause)
}

// tryAside has a few of the dead letters sent again when it is time: the next in turn,
// and the one that fits first when the topic is made to take larger ones.
func (l *lane) tryAside() {
	a := &l.aside
	if !a.mayTry() || time.Now().Before(a.again) {
		return
	}
	if i := a.smallest(); i >= 0 {
		l.waiting = append(l.waiting, a.letters[i].ref)
		a.letters = slices.Delete(a.letters, i, i+1)
	}
	n, bytes := 0, 0
	for n < min(len(a.letters), mostChunk) && (n == 0 || bytes+a.letters[n].size <= asideBytes) {
		bytes += a.letters[n].size
		l.waiting = append(l.waiting, a.letters[n].ref)
		n++
	}
	a.letters = slices.Delete(a.letters, 0, n)
	a.again = time.Now().Add(asideAgain)
}

// smallest returns the index of the smallest letter that was too large, or -1.
func (a *aside) smallest() int {
	least := -1
	for i, letter := range a.letters {
		if letter.tooLarge && (least < 0 || letter.size < a.letters[least].size) {
			least = i
		}
	}
	return least
}

// letters says among the problems of the node that the dead letters of a topic wait.
type letters struct {
	report   *report.Report
	target   string
	takes    bool      // the topic takes dead letters: by the configuration, or some were handed over
	reported bool      // the problem is in the report
	warned   time.Time // when it was logged that the topic cannot be written to
}

func (p *Publisher) lettersFor(target string) letters {
	return letters{report: p.cfg.Report, target: target, takes: slices.Contains(p.cfg.DeadLetterTopics, target)}
}

// kept returns what is kept of it without a lane: nothing if the topic takes no dead letters.
func (l letters) kept() *letters {
	if !l.takes {
		return nil
	}
	return &l
}

// alarm names a dead-letter topic that cannot be written to, and rings when it was not
// named yet. It stays among the problems while the target is on trial, until a record
// gets through: Kafka may let us look at a topic that it does not let us write to.
func (p *Publisher) alarm(l *letters, cause error) {
	if l == nil || !l.takes {
		return
	}
	if !l.reported {
		tell := p.log.Debug
		if time.Since(l.warned) >= warnAgain {
			tell = p.log.Error
			l.warned = time.Now()
		}
		tell("dead letters cannot be written and wait: repair the dead-letter topic or let this node write to it", "target", l.target, "error", cause)
		p.cfg.Count.DeadLetterStuck()
	}
	l.say(fmt.Sprintf("dead letters wait: %v: create the topic or repair it, and allow Write and Describe on it", cause))
}

func (l *letters) say(text string) {
	if !l.takes {
		return
	}
	l.reported = true
	l.report.SetProblem(l.part(), text)
}

// relieve ends the alarm.
func (l *letters) relieve() {
	if l != nil && l.reported {
		l.reported = false
		l.report.SetProblem(l.part(), "")
	}
}

func (l *letters) part() string { return "dead-letter topic " + l.target }

// reportRefused names a dead-letter topic that does not take some dead letters.
func (l *lane) reportRefused(cause error) {
	others := ""
	if len(l.aside.refused) > l.p.limits.Aside {
		others = " and all that come after them"
	}
	remedy := refusedRemedy
	if errors.Is(cause, ErrRecordTooLarge) {
		remedy = "raise max.message.bytes of the topic above that of the delay topics, and allow DescribeConfigs on it"
	}
	l.letters.say(fmt.Sprintf("dead letters wait, %d of them%s: %v: %s", len(l.aside.refused), others, cause, remedy))
}

// refusedRemedy is what to do about ErrRecordRefused.
const refusedRemedy = "set cleanup.policy=delete if the topic is compacted, since it takes no record without a key then, or compare the record with the topic's configuration"

// relieve ends the alarm when a record got through and none is aside.
func (l *lane) relieve() {
	if len(l.aside.refused) == 0 {
		l.letters.relieve()
	}
}
