package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/mutants"
)

// drawnFrom are the packages that bugs are drawn from, each with all below it.
var drawnFrom = []string{"broker/schedule", "broker/deliver", "broker/ingest", "raftfsm", "storage"}

// unitTimeout ends unit tests that a mutant keeps from ending: that is a find.
const unitTimeout = 3 * time.Minute

// runDrawn draws bugs, and tells for each whether the unit tests of its package found it, and
// whether the simulator did.
func runDrawn(ctx context.Context, args []string, out io.Writer) error {
	var c hunting
	flags := newFlags("drawn", "", out)
	count := flags.Int("count", 100, "how many bugs to draw; those that do not compile are not counted")
	seed := flags.Uint64("seed", 1, "what they are drawn by")
	c.addTo(flags, 20)
	if err := parse(flags, args, 0); err != nil {
		return err
	}
	h, err := newHunt(ctx, c)
	if err != nil {
		return err
	}
	defer h.close()
	drawn, err := mutants.Draw(h.tree, drawnFrom, *seed)
	if err != nil {
		return err
	}
	var sum drawnSum
	for _, d := range drawn {
		if sum.tried() == *count {
			break
		}
		t, err := h.tryDrawn(ctx, d, c.seeds)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name(), err)
		}
		sum.add(d, t)
		if t.Builds {
			fmt.Fprintf(out, "%d %s: %s\n", sum.tried(), d.Name(), verdict(t))
		}
	}
	sum.print(out)
	return nil
}

func verdict(t trial) string {
	units, sim := "not by unit tests", "not by the simulator"
	if t.Units != "" {
		units = "by " + t.Units
	}
	if t.Find.found() {
		sim = fmt.Sprintf("by the simulator (seed %d: %s)", t.Find.Seeds, strings.Join(t.Find.Checks, ", "))
	}
	if t.Units == "" && !t.Find.found() {
		return "SURVIVES"
	}
	return "found " + units + ", " + sim
}

// tryDrawn goes on where an earlier run has ended, if the source has not changed.
func (h *hunt) tryDrawn(ctx context.Context, d mutants.Drawn, seeds uint64) (trial, error) {
	t, known := h.log.Drawn[d.Name()]
	if known && (!t.Builds || t.Tested && (t.Find.found() || t.Find.Seeds >= seeds)) {
		return t, nil
	}
	if err := h.tree.Restore(); err != nil {
		return t, err
	}
	if err := d.Apply(h.tree); err != nil {
		return t, err
	}
	note := func() error {
		h.log.Drawn[d.Name()] = t
		return h.log.save()
	}
	if t.Builds = h.compiles(ctx, d.Package()); !t.Builds {
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
		return t, note()
	}
	if !t.Tested {
		failed, err := h.unitTests(ctx, d.Package())
		if err != nil {
			return t, err
		}
		t.Units, t.Tested = failed, true
		if err := note(); err != nil {
			return t, err
		}
	}
	b, err := h.build(ctx, "mutant.test")
	if err != nil {
		return t, err
	}
	if t.Find, err = h.search(ctx, b, t.Find.Seeds, seeds); err != nil {
		return t, err
	}
	return t, note()
}

func (h *hunt) compiles(ctx context.Context, pkg string) bool {
	cmd := exec.CommandContext(ctx, "go", "build", "./"+pkg)
	cmd.Dir = h.tree.Dir
	return cmd.Run() == nil
}

// unitTests returns the first test of the package that fails, or nothing.
func (h *hunt) unitTests(ctx context.Context, pkg string) (failed string, err error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-short", "-count=1", "-timeout="+unitTimeout.String(), "./"+pkg)
	cmd.Dir = h.tree.Dir
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err = cmd.Run()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err == nil {
		return "", nil
	}
	return failedTest(text.String()), nil
}

// failedTest names what go test says to have failed.
func failedTest(said string) string {
	if found := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindStringSubmatch(said); found != nil {
		return found[1]
	}
	for _, end := range []string{"panic: test timed out", "panic: ", "fatal error: "} {
		if _, after, ok := strings.Cut(said, end); ok {
			line, _, _ := strings.Cut(end+after, "\n")
			return "its tests (" + strings.TrimSpace(line) + ")"
		}
	}
	return "its tests"
}

// A drawnSum counts who found what.
type drawnSum struct {
	units, sim, both int
	unbuilt          int
	survivors        []mutants.Drawn
}

func (s *drawnSum) tried() int { return s.units + s.sim + s.both + len(s.survivors) }

func (s *drawnSum) add(d mutants.Drawn, t trial) {
	switch {
	case !t.Builds:
		s.unbuilt++
	case t.Units != "" && t.Find.found():
		s.both++
	case t.Units != "":
		s.units++
	case t.Find.found():
		s.sim++
	default:
		s.survivors = append(s.survivors, d)
	}
}

func (s *drawnSum) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d drawn that compile (%d did not): found by unit tests %d, by the simulator %d, by both %d; %d survive\n",
		s.tried(), s.unbuilt, s.units+s.both, s.sim+s.both, s.both, len(s.survivors))
	for _, d := range s.survivors {
		fmt.Fprintf(out, "  %s:%d %s: %s\n", d.Path, d.Line, d.Kind, strings.Join(strings.Fields(d.From), " "))
	}
}
