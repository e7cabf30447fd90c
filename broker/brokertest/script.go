package brokertest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A script is what happens to a cluster, line by line in order of time:
//
//	# a comment
//	cluster nodes=3 heartbeat=10s
//	at 0s   produce orders.delay key=a value=hello deliver-after=24h
//	at 3h   kill leader
//	at 4h   start n1
//	at 25h  expect delivered orders count=1
//
// The word "long" on the line "cluster" keeps a script of some seconds out of -short.
// Durations are Go's, with d for days and y for years in front: 1y30d12h.
type script struct {
	settings arguments // of the line "cluster"
	steps    []step
}

// A step is one line of a script.
type step struct {
	line int
	at   time.Duration
	verb string
	args arguments
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

// long reports whether -short leaves the script out.
func (s script) long() bool { return slices.Contains(s.settings.words, "long") }

func parseScript(r io.Reader) (script, error) {
	var s script
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if words[0] == "cluster" {
			s.settings = parseArguments(words[1:])
			continue
		}
		if words[0] != "at" || len(words) < 3 {
			return s, fmt.Errorf("line %d: %q: want \"at DURATION VERB ...\"", number, text)
		}
		at, err := parseSpan(words[1])
		if err != nil {
			return s, fmt.Errorf("line %d: %w", number, err)
		}
		if n := len(s.steps); n > 0 && at < s.steps[n-1].at {
			return s, fmt.Errorf("line %d: %s is before the line above it", number, words[1])
		}
		s.steps = append(s.steps, step{line: number, at: at, verb: words[2], args: parseArguments(words[3:])})
	}
	return s, lines.Err()
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
		var n int
		if _, err := fmt.Sscanf(count, "%d", &n); err != nil {
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
