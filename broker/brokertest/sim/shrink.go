package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shrink returns a script of which as much as possible is left out, and which still fails. It asks
// fails about each attempt, of which there are some hundred; the script itself must fail.
func shrink(script string, fails func(string) bool) string {
	lines := strings.Split(strings.TrimSpace(script), "\n")
	for before := -1; before != len(strings.Join(lines, "\n")); {
		before = len(strings.Join(lines, "\n"))
		lines = leaveOut(lines, isSettings, func(rest []string) bool { return fails(join(rest)) })
		for i := range lines {
			lines = shrinkLine(lines, i, fails)
		}
	}
	return join(lines)
}

func join(lines []string) string { return strings.Join(lines, "\n") + "\n" }

func isSettings(line string) bool { return strings.HasPrefix(line, "cluster") }

// leaveOut leaves out halves, then quarters and so on down to single ones, the last first, as
// long as what remains fails.
func leaveOut(all []string, keep func(string) bool, fails func([]string) bool) []string {
	for size := (len(all) + 1) / 2; size > 0; size /= 2 {
		for end := len(all); end > 0; end -= size {
			begin := max(end-size, 0)
			var rest []string
			for i, line := range all {
				if i < begin || i >= end || keep(line) {
					rest = append(rest, line)
				}
			}
			if len(rest) < len(all) && fails(rest) {
				all = rest
				end = min(end, len(all)+size)
			}
		}
	}
	return all
}

// shrinkLine leaves out words of a line and makes its numbers small.
func shrinkLine(lines []string, i int, fails func(string) bool) []string {
	with := func(words []string) []string {
		changed := slices.Clone(lines)
		changed[i] = strings.Join(words, " ")
		return changed
	}
	words := strings.Fields(lines[i])
	words = leaveOut(words, isNeeded, func(rest []string) bool { return fails(join(with(rest))) })
	for n, word := range words {
		for _, smaller := range smaller(word, n == 1 && words[0] == "at") {
			attempt := slices.Clone(words)
			attempt[n] = smaller
			if fails(join(with(attempt))) {
				words = attempt
				break
			}
		}
	}
	return with(words)
}

// isNeeded reports whether a line means something else without the word: only name=value may go.
func isNeeded(word string) bool { return !strings.Contains(word, "=") }

// smaller returns simpler values for a word, the simplest first. A time is only rounded.
func smaller(word string, isTime bool) []string {
	name, value, ok := strings.Cut(word, "=")
	prefix := name + "="
	if !ok {
		prefix, value = "", word
	}
	if n, err := strconv.Atoi(value); err == nil && ok && n > 1 && name != "deliver-at" {
		return numbers(prefix, n)
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return nil
	}
	var all []string
	for _, unit := range []time.Duration{time.Hour, 10 * time.Minute, time.Minute, 10 * time.Second, time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		if rounded := d.Round(unit); rounded != d && rounded > 0 && (isTime || rounded <= 2*d) {
			all = append(all, prefix+short(rounded))
		}
	}
	return all
}

// numbers are 1 and, from there, whatever doubles up to n.
func numbers(prefix string, n int) []string {
	var all []string
	for m := 1; m < n; m *= 2 {
		all = append(all, fmt.Sprintf("%s%d", prefix, m))
	}
	return all
}

// short writes a duration without the zeros that it ends with.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
