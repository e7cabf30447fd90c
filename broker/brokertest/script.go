package brokertest

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A script is what happens to a cluster: at a time, or when something has happened in it.
//
//	# a comment
//	cluster nodes=3 heartbeat=10s
//	at 0s   produce orders.delay key=a value=hello deliver-after=24h
//	at 3h   kill leader
//	at 4h   start n1
//	on claim nth=3 after=1m freeze leader
//	at 25h  expect delivered orders count=1
//
// The lines may stand in any order; those of one time are carried out as they stand. What a
// verb takes is in grammar.go. The word "long" on the line "cluster" keeps a script of some
// seconds out of -short. Durations are Go's, with d for days and y for years in front: 1y30d12h.
type script struct {
	settings arguments // of the line "cluster"
	settled  int       // number of that line; 0: there is none
	steps    []step    // of lines "at", by time
	armed    []step    // of lines "on"
}

// A step is one line of a script.
type step struct {
	line int
	at   time.Duration // of a line "at"
	on   trigger       // of a line "on"
	verb string
	args arguments
}

// A trigger is when a line "on" is carried out.
type trigger struct {
	event string
	nth   int           // 1: the first time
	after time.Duration // counting begins
}

// arguments are the words after a verb: plain ones in order, and name=value.
type arguments struct {
	words  []string
	values map[string]string
	order  []string // the names, as written
}

func (a arguments) word(i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	return ""
}

func (a arguments) value(name, otherwise string) string {
	if v, ok := a.values[name]; ok {
		return v
	}
	return otherwise
}

func (a arguments) has(word string) bool { return slices.Contains(a.words, word) }

// long reports whether -short leaves the script out.
func (s script) long() bool { return s.settings.has("long") }

// parseScript reads a script, and refuses one that could not be carried out.
func parseScript(r io.Reader) (script, error) {
	s := script{settings: parseArguments(nil)}
	grammar := newGrammar()
	lines := bufio.NewScanner(r)
	produces := false
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		step, err := parseLine(grammar, words)
		if err != nil {
			return s, fmt.Errorf("line %d: %q: %w", number, strings.Join(words, " "), err)
		}
		step.line = number
		switch words[0] {
		case "cluster":
			if s.settled > 0 {
				return s, fmt.Errorf("line %d: the line \"cluster\" stands there twice, in line %d as well: want one with all settings", number, s.settled)
			}
			s.settings, s.settled = step.args, number
		case "at":
			s.steps = append(s.steps, step.apart()...)
		case "on":
			if _, apart := step.args.values["about"]; apart && step.verb == "produce" {
				return s, fmt.Errorf("line %d: about= is for lines \"at\": here all come at once", number)
			}
			s.armed = append(s.armed, step)
		}
		produces = produces || step.verb == "produce"
	}
	if err := lines.Err(); err != nil {
		return s, err
	}
	slices.SortStableFunc(s.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	if len(s.steps) == 0 {
		return s, fmt.Errorf("%w: it has no line \"at DURATION VERB ...\"", errChecksNothing)
	}
	if !produces {
		return s, fmt.Errorf("%w: it has no line \"at DURATION produce TOPIC ...\"", errChecksNothing)
	}
	if limits := limitsOf(s.settings).Schedule; limits.Page < 1 {
		return s, fmt.Errorf("line \"cluster\": loaded=%d: a page is a quarter of that at most, and one message at least: use 4 or more", limits.Loaded)
	}
	if width, err := strconv.Atoi(s.settings.value("merge", "2")); err != nil || width < 2 {
		return s, fmt.Errorf("line \"cluster\": merge=%s: one segment is none less: use 2 or more", s.settings.value("merge", ""))
	}
	return s, s.checkNodes()
}

func parseLine(g grammar, words []string) (step, error) {
	var s step
	switch words[0] {
	case "cluster":
		s.verb, words = "cluster", words[1:]
	case "at":
		if len(words) < 3 {
			return s, errors.New(`want "at DURATION VERB ..."`)
		}
		at, err := parseSpan(words[1])
		if err != nil {
			return s, err
		}
		if at < 0 {
			return s, fmt.Errorf("%q lies before the script begins: want a time from 0s on", words[1])
		}
		s.at, s.verb, words = at, words[2], words[3:]
	case "on":
		var err error
		if s.on, words, err = parseTrigger(words[1:]); err != nil {
			return s, err
		}
		s.verb, words = words[0], words[1:]
	default:
		return s, errors.New(`want a line "cluster SETTING...", "at DURATION VERB ..." or "on EVENT [nth=COUNT] [after=DURATION] VERB ..."`)
	}
	s.args = parseArguments(words)
	return s, g.check(s.verb, s.args)
}

// parseTrigger returns what a line "on" waits for, and the words after that, one at least.
func parseTrigger(words []string) (trigger, []string, error) {
	t := trigger{nth: 1}
	if len(words) == 0 || !slices.Contains(events(), words[0]) {
		return t, nil, fmt.Errorf("no such event: want one of %s", strings.Join(events(), ", "))
	}
	t.event, words = words[0], words[1:]
	for len(words) > 0 {
		name, value, _ := strings.Cut(words[0], "=")
		var err error
		switch name {
		case "nth":
			if t.nth, err = strconv.Atoi(value); err != nil || t.nth < 1 {
				return t, nil, fmt.Errorf("nth: %q is no number above 0", value)
			}
		case "after":
			if t.after, err = parseSpan(value); err != nil {
				return t, nil, fmt.Errorf("after: %w", err)
			}
			if t.after < 0 {
				return t, nil, fmt.Errorf("after: %q lies before the script begins: want a time from 0s on", value)
			}
		default:
			return t, words, nil
		}
		words = words[1:]
	}
	return t, nil, errors.New(`want "on EVENT [nth=COUNT] [after=DURATION] VERB ..."`)
}

// stopsTime reports whether the step may leave a request to Kafka without an answer. One broker that cannot be connected to is
// no such step: others answer.
func stopsTime(s step) bool {
	from := s.args.value("from", kafkaHost)
	return s.verb == "freeze" || s.verb == "silence" && strings.HasPrefix(from, kafkaHost) || s.verb == "cut" && from == kafkaHost ||
		s.verb == "error" && s.args.value("err", "") == noAnswer && s.args.word(0) == "InitProducerID"
}

// checkNodes refuses names of nodes and brokers that there are not, and what cannot be played.
func (s script) checkNodes() error {
	count, _ := strconv.Atoi(s.settings.value("nodes", "3"))
	brokers, _ := strconv.Atoi(s.settings.value("brokers", "1"))
	for _, step := range slices.Concat(s.steps, s.armed) {
		if topic := step.args.word(0); step.verb == "shorten" && (s.settings.value("kafka", "") != "files" || !isDelayTopic(topic)) {
			return fmt.Errorf("line %d: shorten %s: want kafka=files on the line \"cluster\", and a delay topic (*.delay): of others nothing is promised once Kafka has answered", step.line, topic)
		}
		if brokers > 1 && stopsTime(step) {
			return fmt.Errorf("line %d: %s needs brokers=1: a Kafka client asks for its producer id under a lock, for which the senders to other brokers wait while one does not answer, and that stops virtual time", step.line, step.verb)
		}
		host := step.args.value("from", "")
		if step.verb == "stall" || step.verb == "revive" {
			host = step.args.word(0)
		}
		if digits, ok := strings.CutPrefix(host, kafkaHost); ok {
			if n, _ := strconv.Atoi(digits); n > brokers {
				return fmt.Errorf("line %d: there is no broker %s: Kafka has %d", step.line, digits, brokers)
			}
		}
		for _, name := range []string{step.args.word(0), step.args.value("from", "")} {
			if n, ok := nodeNumber(name); ok && n > count && namesNodes(step.verb) {
				return fmt.Errorf("line %d: there is no node %s: the cluster has %d", step.line, name, count)
			}
		}
	}
	return nil
}

func parseArguments(words []string) arguments {
	a := arguments{values: make(map[string]string)}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			a.words = append(a.words, word)
			continue
		}
		a.values[name] = value
		a.order = append(a.order, name)
	}
	return a
}

// parseSpan reads a duration that may begin with years of 365 days and days.
func parseSpan(text string) (time.Duration, error) {
	var total time.Duration
	rest := text
	for _, unit := range []struct {
		letter string
		span   time.Duration
	}{{"y", 365 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		count, after, ok := strings.Cut(rest, unit.letter)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(count)
		if err != nil {
			return 0, fmt.Errorf("duration %q: %q is not a number", text, count)
		}
		total += time.Duration(n) * unit.span
		rest = after
	}
	if rest == "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, fmt.Errorf("duration %q: %w", text, err)
	}
	return total + d, nil
}
