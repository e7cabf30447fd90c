package brokertest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
)

// usages are the verbs, with what they take: words in capitals are of that kind, what
// stands in brackets may be left out. The line "cluster" has the settings.
const usages = `
cluster [long] [nodes=COUNT] [heartbeat=DURATION] [program=NUMBER] [start=earliest|latest]
	[flush=COUNT] [segment=COUNT] [brokers=COUNT] [kafka=memory|files] [loaded=COUNT] [handed=COUNT] [flying=COUNT] [page=COUNT] [feed=COUNT]
	[merge=COUNT] [proposal=COUNT] [sync=DURATION] [answer=DURATION]
	[missing_target_timeout=DURATION] [patience=DURATION] [left=NUMBER] [dead=NUMBER] [duplicates=NUMBER]

create TOPIC [partitions=COUNT] [count=COUNT]
delete TOPIC
recreate TOPIC [partitions=COUNT]
partitions TOPIC COUNT
trim TOPIC [keep=COUNT]
shorten TOPIC by=COUNT
forbid TOPIC
limit TOPIC bytes=COUNT
elect TOPIC [behind=COUNT] [lasts=DURATION]
allow TOPIC
slow TOPIC answer=DURATION
hush TOPIC
well TOPIC
error REQUEST err=ERROR [count=COUNT] [topic=TOPIC]
stall BROKER
revive BROKER
stale metadata [lasts=DURATION]
stale offsets [lasts=DURATION]
produce TOPIC [abort] [transactional] [backwards] [count=COUNT] [every=DURATION] [about=DURATION] [spread=DURATION] [scatter=DURATION] [bytes=COUNT] [targets=COUNT] [ids=COUNT] [keys=COUNT] [key=TEXT] [value=TEXT] [HEADERS]
change TOPIC [now] [exactly] [count=COUNT] [ids=COUNT] [about=DURATION] [spread=DURATION] [HEADERS]

start NODES
stop NODES
kill NODES
freeze NODE
thaw NODES
replace NODE
program NODES NUMBER
raise [maybe] [refused=TEXT]
pause topic TOPIC
pause target TOPIC
resume topic TOPIC
resume target TOPIC
route TOPIC
config NODE KEY=VALUE

cut NODE [from=HOST] [oneway]
silence NODE [from=HOST] [oneway]
isolate NODE
heal
heal NODE

disk NODE slow=DURATION
disk NODE full
disk NODE torn
disk NODE well
clock NODE step=SHIFT
clock NODE drift=DRIFT
clock NODE well
step NODE SHIFT

expect delivered TOPIC [count=NUMBER]
expect pending [count=NUMBER]
expect problem TEXT
expect no-problem [TEXT]
expect level NUMBER
expect leader
`

// events are what a line "on" can wait for.
func events() []string {
	return []string{
		"claim",    // committed
		"handed",   // a record to the Kafka client
		"answered", // by Kafka
		"acked",    // the Ack is committed
		"taken",    // a command of ingest is committed
		"flushed",  // the memtable is in a segment, and no manifest names it
		"named",    // the manifest names it
		"merged",
		"received", // a snapshot: the manifest names it, and Raft has not restored it
		"parked",   // a target
		"probed",   // a target that is parked
		"term",     // begins
		"term-end",
	}
}

// A usage is one way to use a verb.
type usage struct {
	text     string
	words    []string          // kinds, or the word itself, in order
	optional []string          // words after those
	needed   []string          // names of values
	values   map[string]string // kind by name
	open     string            // HEADERS or KEY=VALUE: takes names that are not in values
}

// A grammar has the usages by verb.
type grammar map[string][]usage

func newGrammar() grammar {
	g := make(grammar)
	for text := range strings.Lines(strings.ReplaceAll(usages, "\n\t", " ")) {
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		u := usage{text: strings.Join(words, " "), values: make(map[string]string)}
		for _, word := range words[1:] {
			inner := strings.Trim(word, "[]")
			name, kind, isValue := strings.Cut(inner, "=")
			switch {
			case inner == "HEADERS" || inner == "KEY=VALUE":
				u.open = inner
			case isValue:
				u.values[name] = kind
				if inner == word {
					u.needed = append(u.needed, name)
				}
			case inner == word:
				u.words = append(u.words, word)
			default:
				u.optional = append(u.optional, inner)
			}
		}
		g[words[0]] = append(g[words[0]], u)
	}
	return g
}

// check says what is wrong with the use of a verb.
func (g grammar) check(verb string, a arguments) error {
	ways, ok := g[verb]
	if !ok {
		return fmt.Errorf("there is no verb %q", verb)
	}
	var texts []string
	for _, u := range ways {
		if u.fits(a) {
			return u.checkKinds(a)
		}
		texts = append(texts, strconv.Quote(u.text))
	}
	return fmt.Errorf("want %s", strings.Join(texts, " or "))
}

// fits reports whether the arguments are those of this usage, of whatever kind.
func (u usage) fits(a arguments) bool {
	if len(a.words) < len(u.words) {
		return false
	}
	for i, word := range u.words {
		if !isKind(word) && a.words[i] != word {
			return false
		}
	}
	for i, word := range a.words[len(u.words):] {
		if !slices.Contains(u.optional, word) && !(i < len(u.optional) && isKind(u.optional[i])) {
			return false
		}
	}
	for _, name := range u.needed {
		if _, ok := a.values[name]; !ok {
			return false
		}
	}
	for _, name := range a.order {
		if _, ok := u.values[name]; !ok && !u.takes(name) {
			return false
		}
	}
	return u.open != "KEY=VALUE" || len(a.order) == 1
}

// takes reports whether a name that is not in values may stand there.
func (u usage) takes(name string) bool {
	if u.open == "HEADERS" {
		return isHeader(name)
	}
	return u.open == "KEY=VALUE"
}

func isHeader(name string) bool {
	return strings.HasPrefix(name, client.InstructionPrefix) || strings.HasPrefix(name, "h-") || strings.HasPrefix(name, "__carillon.")
}

func (u usage) checkKinds(a arguments) error {
	for i, kind := range u.words {
		if err := checkKind(kind, a.words[i]); err != nil {
			return err
		}
	}
	for i, name := range a.order {
		if slices.Contains(a.order[:i], name) {
			return fmt.Errorf("%s stands there twice", name)
		}
		if u.open == "KEY=VALUE" && !slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return k.Name == name }) {
			return fmt.Errorf("%q is no key of the configuration", name)
		}
		if err := checkKind(u.values[name], a.values[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func isKind(word string) bool { return word == strings.ToUpper(word) }

func checkKind(kind, text string) error {
	ok, want := true, kind
	switch kind {
	case "COUNT":
		n, err := strconv.ParseInt(text, 10, 62)
		ok, want = err == nil && n > 0, "number above 0"
	case "NUMBER":
		_, err := strconv.ParseUint(text, 10, 32)
		ok, want = err == nil, "number"
	case "DURATION":
		d, err := parseSpan(text)
		ok, want = err == nil && d >= 0, "duration, such as 200ms or 1d12h"
	case "SHIFT":
		_, err := time.ParseDuration(text)
		ok, want = err == nil, "shift of a clock, such as +2s or -10m"
	case "DRIFT":
		_, err := parseDrift(text)
		return err
	case "NODE":
		_, ok = nodeNumber(text)
		ok, want = ok || slices.Contains([]string{"leader", "follower", "here"}, text), "node: n1, n2, ..., leader, follower, or here for where the event was"
	case "NODES":
		_, ok = nodeNumber(text)
		ok, want = ok || slices.Contains([]string{"leader", "follower", "here", "all", "down"}, text), "node: n1, n2, ..., leader, follower, here, all or down"
	case "HOST":
		_, ok = nodeNumber(text)
		broker, isBroker := strings.CutPrefix(text, kafkaHost)
		_, numbered := nodeNumber("n" + broker)
		ok, want = ok || isBroker && (broker == "" || numbered), "host: n1, n2, ..., kafka, or kafka1, kafka2, ... for one broker"
	case "BROKER":
		_, numbered := nodeNumber("n" + strings.TrimPrefix(text, kafkaHost))
		ok, want = strings.HasPrefix(text, kafkaHost) && (text == kafkaHost || numbered), "broker: kafka, or kafka1, kafka2, ... where there are several"
	case "REQUEST":
		_, ok = requestKey(text)
		want = "request of Kafka's protocol, such as Produce or ListOffsets"
	case "ERROR":
		_, ok = kafkaError(text)
		ok, want = ok || text == noAnswer, "error of Kafka's protocol, such as NOT_LEADER_FOR_PARTITION, or "+noAnswer
	default:
		if choices := strings.Split(kind, "|"); len(choices) > 1 {
			ok, want = slices.Contains(choices, text), "choice, want one of "+strings.Join(choices, ", ")
		}
	}
	if !ok {
		return fmt.Errorf("%q is no %s", text, want)
	}
	return nil
}

// noAnswer stands for an error when Kafka is not to answer at all.
const noAnswer = "NO_ANSWER"

// namesNodes reports whether the first word after the verb is a node.
func namesNodes(verb string) bool {
	ways := newGrammar()[verb]
	return slices.ContainsFunc(ways, func(u usage) bool {
		return len(u.words) > 0 && strings.HasPrefix(u.words[0], "NODE")
	})
}

func nodeNumber(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "n")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && strconv.Itoa(n) == digits
}

// parseDrift reads how much a clock goes wrong per second, such as 1ms/s.
func parseDrift(text string) (time.Duration, error) {
	span, ok := strings.CutSuffix(text, "/s")
	d, err := time.ParseDuration(span)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is no drift, such as 1ms/s or -200us/s", text)
	}
	if d <= -time.Second/2 || d >= time.Second/2 {
		return 0, errors.New("a clock drifts by less than 500ms/s")
	}
	return d, nil
}

func requestKey(name string) (kmsg.Key, bool) {
	for key := range kmsg.Key(kmsg.MaxKey + 1) {
		if key.Name() == name {
			return key, true
		}
	}
	return 0, false
}

func kafkaError(name string) (*kerr.Error, bool) {
	for code := range int16(1000) {
		var known *kerr.Error
		if errors.As(kerr.ErrorForCode(code), &known) && known.Message == name {
			return known, true
		}
	}
	return nil, false
}
