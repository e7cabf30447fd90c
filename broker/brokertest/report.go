package brokertest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// A Report is what one script has shown. The simulator's command reads it as JSON.
type Report struct {
	Problems       []Problem        `json:"problems"`
	Produced       int              `json:"produced"`
	Delivered      int              `json:"delivered"`
	Duplicates     int              `json:"duplicates"`
	VirtualSeconds float64          `json:"virtual_seconds"`
	Faults         map[string]int   `json:"faults"` // how often each verb was carried out
	Pairs          map[string]int   `json:"pairs"`  // of faults that were there at the same time
	Events         map[string]int   `json:"events"` // see events
	Counters       map[string]int64 `json:"counters"`

	// alone says that the process does nothing else, so that its memory is that of the run.
	alone bool

	mu sync.Mutex
}

// A Problem is a promise that was not kept.
type Problem struct {
	Check string `json:"check"` // such as "lost" or "early"
	Text  string `json:"text"`
}

// NewReport returns a report of nothing.
func NewReport() *Report {
	return &Report{
		Problems: []Problem{},
		Faults:   make(map[string]int), Pairs: make(map[string]int), Events: make(map[string]int), Counters: make(map[string]int64),
	}
}

// add notes a problem. A text such as "lost: ..." names its check; else it is "other".
func (r *Report) add(text string) {
	check, rest, ok := strings.Cut(text, ": ")
	if !ok || strings.ContainsAny(check, " /") {
		check, rest = "other", text
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Problems = append(r.Problems, Problem{check, rest})
}

// fault counts a verb that was carried out.
func (r *Report) fault(verb string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Faults[verb]++
}

// skipped counts a step that found nothing to do.
func (r *Report) skipped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Counters["skipped"]++
}

// event counts that it has happened.
func (r *Report) event(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Events[name]++
}

func (r *Report) write(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// A reporting test notes all that fails it in the report.
type reporting struct {
	testing.TB
	report *Report
}

func (t reporting) Errorf(format string, args ...any) {
	t.Helper()
	t.report.add(fmt.Sprintf(format, args...))
	t.TB.Errorf(format, args...)
}

func (t reporting) Error(args ...any) {
	t.Helper()
	t.report.add(strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	t.TB.Error(args...)
}

func (t reporting) Fatalf(format string, args ...any) {
	t.Helper()
	t.report.add(fmt.Sprintf(format, args...))
	t.TB.Fatalf(format, args...)
}

func (t reporting) Fatal(args ...any) {
	t.Helper()
	t.report.add(strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	t.TB.Fatal(args...)
}
