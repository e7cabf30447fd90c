package broker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/broker/schedule"
)

// letters says among the problems of the node that the dead letters of a topic wait.
type letters struct {
	report   *report.Report
	target   string
	takes    bool // the topic takes dead letters: by the configuration, or some were handed over
	reported bool // the problem is in the report
}

func (p *publisher) lettersFor(target string) letters {
	return letters{report: p.cfg.Report, target: target, takes: slices.Contains(p.cfg.DeadLetterTopics, target)}
}

// alarm names a dead-letter topic that cannot be written to, and rings when it was not
// named yet. It stays among the problems while the target is on trial, until a record
// gets through: Kafka may let us look at a topic that it does not let us write to.
func (p *publisher) alarm(l *letters, cause error) {
	if !l.takes {
		return
	}
	if !l.reported {
		p.log.Error("dead letters cannot be written and wait: repair the dead-letter topic or let this node write to it", "target", l.target, "error", cause)
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

// relieve takes the alarm back.
func (l *letters) relieve() {
	if l.reported {
		l.reported = false
		l.report.SetProblem(l.part(), "")
	}
}

func (l *letters) part() string { return "dead-letter topic " + l.target }

// reportRefused names a dead-letter topic that does not take some dead letters.
func (l *lane) reportRefused(cause error) {
	others := ""
	if len(l.aside.refused) > schedule.MostHanded-schedule.PageSize {
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

// relieve takes the alarm back when a record got through and none is aside.
func (l *lane) relieve() {
	if len(l.aside.refused) == 0 {
		l.letters.relieve()
	}
}
