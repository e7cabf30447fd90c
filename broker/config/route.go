package config

import (
	"fmt"
	"github.com/carillonmq/carillon/broker/message"
	"path"
	"slices"
	"strings"
	"time"
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

// A Destination is a target topic and what named it, which is what errors blame.
type Destination struct {
	Topic   string
	NamedBy string
}

// Destination returns where a message of the delay topic goes, given its deliver-to
// or "" if it has none.
func (r Route) Destination(topic, deliverTo string) Destination {
	switch {
	case deliverTo != "":
		return Destination{deliverTo, "deliver-to"}
	case r.To != "":
		return Destination{r.To, fmt.Sprintf("routes[].to of %q", r.From)}
	}
	return Destination{r.Target(topic), fmt.Sprintf("name of delay topic %q", topic)}
}

// Refuse returns why a message of the route may not wait for the destination until dueAt,
// or nil. Times are epoch milliseconds; what is refused is dead-lettered for that reason.
func (c Config) Refuse(route Route, to Destination, dueAt, now int64) *message.Problem {
	const another = "with deliver-to or routes[].to"
	if err := CheckTopicName(to.Topic); err != nil {
		return &message.Problem{Code: message.CodeTargetInvalid, Message: fmt.Sprintf("%s: %v", to.NamedBy, err)}
	}
	if reads, ok := c.Route(to.Topic); ok {
		return &message.Problem{Code: message.CodeTargetInvalid, Message: fmt.Sprintf("%s: topic %q is a delay topic, routes[].from %q matches it: choose a topic that no route reads, %s", to.NamedBy, to.Topic, reads.From, another)}
	}
	if c.takesDeadLetters(to.Topic) {
		return &message.Problem{Code: message.CodeTargetInvalid, Message: fmt.Sprintf("%s: topic %q is for dead letters, dead_letter names it: choose another topic, %s", to.NamedBy, to.Topic, another)}
	}
	if why, remedy := c.Targets.objection(to.Topic); why != "" {
		return &message.Problem{Code: message.CodeTargetDenied, Message: fmt.Sprintf("%s: topic %q is not among the targets, %s: %s in the node's configuration, or choose another topic, %s", to.NamedBy, to.Topic, why, remedy, another)}
	}
	if latest := now + route.MaxDelay.Milliseconds(); dueAt > latest {
		return &message.Problem{Code: message.CodeBeyondMaxDelay, Message: fmt.Sprintf("due at %s, later than routes[].max_delay %s allows: choose an earlier time or raise max_delay for %q",
			time.UnixMilli(dueAt).UTC().Format(time.RFC3339), FormatDuration(route.MaxDelay), route.From)}
	}
	return nil
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
// patterns with an error.
func matches(pattern, topic string) bool {
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
