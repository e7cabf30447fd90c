package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/broker/brokertest"
	"github.com/carillonmq/carillon/broker/brokertest/draw"
	"github.com/carillonmq/carillon/broker/brokertest/mutants"
)

func noted(t *testing.T, path string, about subject, seeds ...uint64) *state {
	t.Helper()
	s, err := openState(path, about)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	for _, seed := range seeds {
		report := brokertest.NewReport()
		report.Produced = int(seed)
		if err := s.note(record{Seed: seed, Scale: "true", Report: report}, []byte("mode: set\np/a.go:1.2,3.4 2 1\np/a.go:5.2,6.4 2 0\n")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestState_goesOnWhereItWasEnded(t *testing.T) {
	path, about := filepath.Join(t.TempDir(), "state"), subject{"a", draw.Any}
	noted(t, path, about, 1, 2, 3).close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-5], 0o644); err != nil { // killed while it wrote
		t.Fatal(err)
	}
	s := noted(t, path, about)
	if len(s.done) != 2 || s.done[2].Report.Produced != 2 {
		t.Errorf("kept %v, want the seeds 1 and 2", s.done)
	}
	if !slices.Equal(s.coverage.missed(), []string{"p/a.go:5.2,6.4"}) {
		t.Errorf("missed %v", s.coverage.missed())
	}
}

// What is damaged is not left out in silence, nor written over; nor do two runs write one file.
func TestState_refusesADamagedLineAndOneInUse(t *testing.T) {
	path, about := filepath.Join(t.TempDir(), "state"), subject{"a", draw.Any}
	s := noted(t, path, about, 1, 2, 3)
	if _, err := openState(path, about); !errors.Is(err, mutants.ErrInUse) {
		t.Errorf("error %v for a state that is in use", err)
	}
	s.close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Replace(data, []byte(`"seed":2`), []byte(`"seed":x`), 1)
	if err := os.WriteFile(path, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openState(path, about); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("error %v for a damaged line", err)
	}
	if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, damaged) {
		t.Errorf("the damaged file was changed: error %v", err)
	}
}

func TestState_refusesThatOfOtherCode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	noted(t, path, subject{"a", draw.Any}, 1).close()
	if _, err := openState(path, subject{"b", draw.Any}); err == nil || !strings.Contains(err.Error(), "other code") {
		t.Errorf("error %v", err)
	}
}

func TestCoverage_isWhatAnyRunReached(t *testing.T) {
	c := newCoverage()
	for i, profile := range []string{
		"mode: set\nm/p/a.go:10.2,12.4 1 0\nm/p/a.go:2.1,3.2 3 1\nm/q/b.go:1.1,2.2 1 0\n",
		"mode: set\nm/p/a.go:10.2,12.4 1 0\nm/p/a.go:2.1,3.2 3 0\nm/q/b.go:1.1,2.2 1 0\n",
	} {
		if grown, err := c.merge([]byte(profile)); err != nil || grown != (i == 0) {
			t.Errorf("merged %d: %v, %v", i, grown, err)
		}
	}
	if got := c.missed(); !slices.Equal(got, []string{"m/p/a.go:10.2,12.4", "m/q/b.go:1.1,2.2"}) {
		t.Errorf("missed %v", got)
	}
	if shares := c.shares(); shares["m/p"] != 75 || shares["m/q"] != 0 {
		t.Errorf("shares %v", shares)
	}
	if _, err := c.merge([]byte("nonsense\n")); err == nil {
		t.Error("nonsense is taken for a profile")
	}
}

func TestBadInput_isNamed(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"", `there is no verb ""`},
		{"play", `there is no verb "play"`},
		{"run -seeds 0", "want more than 0"},
		{"run -seeds many", `"many" for flag -seeds`},
		{"run -workers 0", "-workers 0"},
		{"run -within -1s", "-within -1s"},
		{"drawn -count 0", "-count 0"},
		{"shrink -workers 0 7", "-workers 0"},
		{"run -profile fast", `profile "fast"`},
		{"run 7", "want 0 arguments"},
		{"run -nonsense", "-nonsense"},
		{"shrink", "want 1 arguments"},
		{"shrink no-such-file", "neither a seed nor a script"},
	} {
		var out strings.Builder
		err := dispatch(t.Context(), strings.Fields(c.args), &out)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("sim %s: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestSum_failsWhatShowsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var out strings.Builder
	c := &campaign{out: &out, dir: t.TempDir(), state: noted(t, path, subject{"a", draw.Any}, 0)}
	if err := c.sum(0); !errors.Is(err, errNothing) {
		t.Errorf("error %v, want %v", err, errNothing)
	}
	c.state.close()
	c.state = noted(t, path, subject{"a", draw.Any}, 1)
	if err := c.sum(0); err != nil {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(out.String(), "no problems") {
		t.Errorf("it says\n%s", out.String())
	}
	c.state.done[1].Report.Problems = []problem{{Check: "lost", Text: "one"}}
	if err := c.sum(0); !errors.Is(err, errFound) {
		t.Errorf("error %v, want %v", err, errFound)
	}
}
