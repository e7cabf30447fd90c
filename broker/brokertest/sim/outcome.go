package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest"
)

// checkScript is the name of the check that a script passes which can be played at all.
const checkScript = "script"

// An outcome is what became of one script.
type outcome struct {
	Report *report
	Output string        // of the child
	Took   time.Duration // of real time
	Cover  []byte        // the branches reached, as go test writes them
}

// A report is what the child writes.
type (
	report  = brokertest.Report
	problem = brokertest.Problem
)

func (o *outcome) add(check, text string) {
	o.Report.Problems = append(o.Report.Problems, problem{Check: check, Text: text})
}

// read takes the report of a child that has ended, and adds what only its end tells.
func (o *outcome) read(path string, failed bool) error {
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, o.Report); err != nil {
			return fmt.Errorf("read the report: %w", err)
		}
	case !failed:
		return fmt.Errorf("%w: the child wrote no report:\n%s", errNothing, o.Output)
	}
	o.readEnding()
	if failed && len(o.Report.Problems) == 0 {
		o.add("crash", tail(o.Output, 20))
	}
	for _, p := range o.Report.Problems {
		if p.Check == checkScript {
			return fmt.Errorf("%w: %s", errScript, p.Text)
		}
	}
	return nil
}

// readEnding adds what the process ended with, if it did not come to its end.
func (o *outcome) readEnding() {
	for _, end := range []struct{ check, sign string }{
		{"stuck", "panic: test timed out after"},
		{"deadlock", "panic: deadlock:"},
		{"deadlock", "fatal error: all goroutines"},
		{"race", "WARNING: DATA RACE"},
		{"crash", "panic: "},
		{"crash", "fatal error: "},
	} {
		if _, after, ok := strings.Cut(o.Output, end.sign); ok {
			o.add(end.check, end.sign+head(after, 30))
			return
		}
	}
}

// checks returns the names of the checks that failed, each once, in order.
func (o outcome) checks() []string {
	var names []string
	for _, p := range o.Report.Problems {
		names = append(names, p.Check)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func head(text string, lines int) string {
	all := strings.SplitAfterN(text, "\n", lines+1)
	return strings.Join(all[:min(len(all), lines)], "")
}

func tail(text string, lines int) string {
	all := strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}
