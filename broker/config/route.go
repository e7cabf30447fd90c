package config

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/message"
)

// delaySuffix ends the name of a delay topic whose target is the name without it.
const delaySuffix = ".delay"

// A Route says which topics are delay topics and how their messages are delivered.
type Route struct {
	// From is a pattern over topic names: * stands for any run of characters, ?
	// for any one, [abc] for one of these.
	From string `yaml:"from"`
	// To is the target of messages without deliver-to; empty: the name of the
	// delay topic without .delay.
	To          string              `yaml:"to"`
	Partitioner message.Partitioner `yaml:"partitioner"`
	// MaxDelay bounds how far in the future a message may be due.
	MaxDelay time.Duration `yaml:"max_delay"`
	// Start says where to begin with topics that hold records already when the
	// cluster is born: StartEarliest or StartLatest; empty: refuse to choose.
	Start string `yaml:"start"`
	// MissingTargetTimeout is how long a due message waits for a target topic
	// that does not exist, or is forbidden to us, before it is dead-lettered.
	MissingTargetTimeout time.Duration `yaml:"missing_target_timeout"`
	// MaxMissingTargets is for how many target topics that do not exist messages of one
	// delay topic may wait. Messages for others that do not exist are dead-lettered
	// when Kafka has said so for two seconds. 0: there is no bound.
	MaxMissingTargets int `yaml:"max_missing_targets"`
	// DeadLetter takes the place of the general dead-letter topic; empty: that one.
	DeadLetter string `yaml:"dead_letter"`
}

// Where a route begins with a topic that holds records already.
const (
	StartEarliest = "earliest"
	StartLatest   = "latest"
)

// A hundred years, so that no mistaken date is taken for a plan.
const defaultMaxDelay = 36500 * 24 * time.Hour

// defaultMaxMissing is far more than the topics that somebody forgot to create, and with
// some hundred bytes for each, and a question to Kafka a minute, costs little.
const defaultMaxMissing = 10_000

// NewRoute returns the route of the topics that the pattern matches, all else at
// its default.
func NewRoute(from string) Route {
	return Route{From: from, MaxDelay: defaultMaxDelay, MissingTargetTimeout: 5 * time.Minute, MaxMissingTargets: defaultMaxMissing}
}

// Matches reports whether the topic is a delay topic of this route.
func (r Route) Matches(topic string) bool { return matches(r.From, topic) }

// Target returns where messages of the delay topic go that do not say it.
func (r Route) Target(topic string) string {
	if r.To != "" {
		return r.To
	}
	return strings.TrimSuffix(topic, delaySuffix)
}

// Destination returns the target of a message of the route's delay topic, given its deliver-to
// or "" if it has none, and why nothing may be delivered there, or nil: a message with such a
// target is dead-lettered for that reason. What routes[].to names was judged by Validate.
func (c Config) Destination(route Route, topic, deliverTo string) (string, *message.Problem) {
	if deliverTo == "" && route.To != "" {
		return route.To, nil
	}
	target := cmp.Or(deliverTo, route.Target(topic))
	code, objection := c.object(target)
	if objection == "" {
		return target, nil
	}
	namedBy := fmt.Sprintf("name of delay topic %q", topic)
	if deliverTo != "" {
		namedBy = "deliver-to"
	}
	return target, &message.Problem{Code: code, Message: namedBy + ": " + objection}
}

// object returns the code of what speaks against the topic as a target and what it is, with the
// remedy, or nothing.
func (c Config) object(topic string) (code, objection string) {
	const another = "with deliver-to or routes[].to"
	if err := CheckTopicName(topic); err != nil {
		return message.CodeTargetInvalid, err.Error()
	}
	if reads, ok := c.Route(topic); ok {
		return message.CodeTargetInvalid, fmt.Sprintf("topic %q is a delay topic, routes[].from %q matches it: choose a topic that no route reads, %s", topic, reads.From, another)
	}
	if c.takesDeadLetters(topic) {
		return message.CodeTargetInvalid, fmt.Sprintf("topic %q is for dead letters, dead_letter names it: choose another topic, %s", topic, another)
	}
	if why, remedy := c.Targets.objection(topic); why != "" {
		return message.CodeTargetDenied, fmt.Sprintf("topic %q is not among the targets, %s: %s in the node's configuration, or choose another topic, %s", topic, why, remedy, another)
	}
	return "", ""
}

// RefuseDue returns why a message that arrives now may not wait until dueAt, or nil. Both are
// epoch milliseconds.
func (r Route) RefuseDue(dueAt, now int64) *message.Problem {
	if dueAt <= now+r.MaxDelay.Milliseconds() {
		return nil
	}
	return &message.Problem{Code: message.CodeBeyondMaxDelay, Message: fmt.Sprintf("due at %s, later than routes[].max_delay %s allows: choose an earlier time or raise max_delay for %q",
		time.UnixMilli(dueAt).UTC().Format(time.RFC3339), FormatDuration(r.MaxDelay), r.From)}
}

// Allows reports whether messages may be delivered to the topic.
func (t Targets) Allows(topic string) bool {
	why, _ := t.objection(topic)
	return why == ""
}

// objection returns why messages may not be delivered to the topic, and what to change
// so that they may, or nothing.
func (t Targets) objection(topic string) (why, remedy string) {
	found := func(pattern string) bool { return matches(pattern, topic) }
	if i := slices.IndexFunc(t.Deny, found); i >= 0 {
		return fmt.Sprintf("targets.deny %q matches it", t.Deny[i]), "take that pattern out or narrow it"
	}
	if !slices.ContainsFunc(t.Allow, found) {
		return "no pattern of targets.allow matches it", "extend targets.allow"
	}
	return "", ""
}

// matches is path.Match; Kafka's topic names hold no slash, Validate has refused
// patterns with an error. Most targets differ from a pattern like *.delay in its end, which is quick to see: path.Match
// tries each place for the star, for each message in whose deliver-to is not that of the last one.
func matches(pattern, topic string) bool {
	end := pattern[strings.LastIndexAny(pattern, `*?[]\`)+1:]
	if !strings.HasSuffix(topic, end) {
		return false
	}
	ok, err := path.Match(pattern, topic)
	return ok && err == nil
}

// maxTopicLength is Kafka's: the name and a suffix must fit into a file name.
const maxTopicLength = 249

// CheckTopicName returns why the name is not one that Kafka takes for a topic, or nil.
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("topic name is empty: give 1 to %d characters", maxTopicLength)
	case name == "." || name == "..":
		return fmt.Errorf("topic name %q is reserved: choose another", name)
	case len(name) > maxTopicLength:
		return fmt.Errorf("topic name of %d characters is too long: give %d at most", len(name), maxTopicLength)
	}
	for _, c := range name {
		isWord := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !isWord && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("topic name %q holds %q: use letters, digits, dot, hyphen and underscore", name, c)
		}
	}
	return nil
}
