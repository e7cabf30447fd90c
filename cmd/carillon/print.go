package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// printJSON prints for programs.
func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false) // nobody shows it in a page
	if err := out.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// moment says epoch milliseconds as people read them.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// momentAndDistance says as well how far away it is.
func momentAndDistance(ms int64, now time.Time) string {
	return moment(ms) + ", " + distance(time.UnixMilli(ms).Sub(now))
}

// mostShown is how many names of a list are printed for people.
const mostShown = 10

// someOf names the first ones of a long list, and says how many there are.
func someOf(names []string) string {
	if len(names) <= mostShown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%d: %s and %d more", len(names), strings.Join(names[:mostShown], ", "), len(names)-mostShown)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// distance says how far away a moment is, in a precision that people read.
func distance(d time.Duration) string {
	precision := time.Millisecond
	if d.Abs() >= time.Minute {
		precision = time.Second
	}
	if d < 0 {
		return (-d).Round(precision).String() + " ago"
	}
	return "in " + d.Round(precision).String()
}
