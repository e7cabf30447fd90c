package broker

import (
	"errors"
	"fmt"
)

// reportUnwritable names a dead-letter topic that cannot be written to among the
// problems of the node. It stays there while the lane is on trial, until a record
// gets through: Kafka may let us look at a topic that it does not let us write to.
func (l *lane) reportUnwritable(cause error) {
	l.report(fmt.Sprintf("dead letters wait: %v: create the topic or repair it, and allow Write and Describe on it", cause))
}

// reportRefused names a dead-letter topic that does not take some dead letters.
func (l *lane) reportRefused(cause error) {
	others := ""
	if len(l.aside.refused) > mostHanded-pageSize {
		others = " and all that come after them"
	}
	remedy := refusedRemedy
	if errors.Is(cause, ErrRecordTooLarge) {
		remedy = "raise max.message.bytes of the topic above that of the delay topics, and allow DescribeConfigs on it"
	}
	l.report(fmt.Sprintf("dead letters wait, %d of them%s: %v: %s", len(l.aside.refused), others, cause, remedy))
}

// refusedRemedy is what to do about ErrRecordRefused.
const refusedRemedy = "set cleanup.policy=delete if the topic is compacted, since it takes no record without a key then, or compare the record with the topic's configuration"

func (l *lane) report(text string) {
	if !l.takesDeadLetters {
		return
	}
	l.reported = true
	l.p.cfg.Report.setProblem(l.part(), text)
}

// relieve takes the alarm back when a record got through and none is aside.
func (l *lane) relieve() {
	if l.reported && len(l.aside.refused) == 0 {
		l.reported = false
		l.p.cfg.Report.setProblem(l.part(), "")
	}
}

func (l *lane) part() string { return "dead-letter topic " + l.target }
