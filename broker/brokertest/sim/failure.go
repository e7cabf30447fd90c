package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
)

// repeats is how often a script that failed is played again.
const repeats = 5

// A failure is a script that failed, and how. What is played is the same each time; what happens
// is not: elections and goroutines take their own ways.
type failure struct {
	name   string
	script string
	checks []string // one of these is what the shrunk script fails, too
	text   string
	failed int // of repeats
}

// A repeater plays scripts several times.
type repeater struct {
	binary  binary
	workers int
}

// count returns how many of n runs fail one of the checks. It stops when enough have.
func (r repeater) count(ctx context.Context, f failure, n, enough int) (int, error) {
	var mu sync.Mutex // guards all below
	failed, begun := 0, 0
	var wrong error
	more := func() bool {
		mu.Lock()
		defer mu.Unlock()
		begun++
		return begun <= n && failed < enough && wrong == nil && ctx.Err() == nil
	}
	var all sync.WaitGroup
	for range min(r.workers, n) {
		all.Go(func() {
			for more() {
				o, err := r.binary.play(ctx, f.script)
				mu.Lock()
				if err != nil {
					wrong = err
				} else if slices.ContainsFunc(o.checks(), func(check string) bool { return slices.Contains(f.checks, check) }) {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed, wrong
}

// shrink plays the script again and, if it fails again, shrinks it. A script that fails seldom is
// played the more often at each attempt, and half of the failures that are to be expected count
// as one. What is left when the time is over is returned. Where no node is started all that is produced is
// lost, which is another failure: what starts all of them stays.
func (r repeater) shrink(ctx context.Context, f failure, within time.Duration) (failure, error) {
	var err error
	if f.failed, err = r.count(ctx, f, repeats, repeats); err != nil || f.failed == 0 {
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	rounds := 3
	if f.failed < repeats-1 {
		rounds = 3 * repeats / f.failed
	}
	enough := max(1, rounds*f.failed/repeats/2)
	const start = " start all\n"
	starts := strings.Contains(f.script, start)
	f.script = shrink(f.script, func(text string) bool {
		if starts && !strings.Contains(text, start) {
			return false
		}
		attempt := f
		attempt.script = text
		failed, err := r.count(ctx, attempt, rounds, enough)
		return err == nil && failed >= enough
	})
	if ctx.Err() == nil {
		f.failed, err = r.count(ctx, f, repeats, repeats)
	}
	return f, err
}

// write writes the script so that it can be a file of broker/testdata as it is.
func (f failure) write(dir string) (string, error) {
	path := filepath.Join(dir, f.name+"_"+strings.Join(f.checks, "_")+".txt")
	text := fmt.Sprintf("# %s: %s: %s\n# %d of %d runs fail.\n%s", f.name, strings.Join(f.checks, ", "), oneLine(f.text), f.failed, repeats, f.script)
	return path, os.WriteFile(path, []byte(text), 0o644)
}

func oneLine(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(head(text, 1)), "\n", " ")
}

// shrinkFailures shrinks the first failures of each check. The others are of the same kind as
// likely as not.
func (c *campaign) shrinkFailures(ctx context.Context, most int, within time.Duration) error {
	shrunk := make(map[string]int)
	for _, seed := range slices.Sorted(maps.Keys(c.state.done)) {
		o := outcome{Report: c.state.done[seed].Report}
		checks := o.checks()
		if len(checks) == 0 {
			continue
		}
		f := failure{name: fmt.Sprintf("seed_%d", seed), script: draw.Script(seed, c.profile), checks: checks, text: o.Report.Problems[0].Text}
		if shrunk[checks[0]]++; shrunk[checks[0]] <= most {
			if err := c.report(ctx, f, within); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *campaign) report(ctx context.Context, f failure, within time.Duration) error {
	before := strings.Count(f.script, "\n")
	f, err := repeater{c.binary, c.workers}.shrink(ctx, f, within)
	if err != nil {
		return err
	}
	path, err := f.write(c.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s: %s: %d of %d runs fail; %d of %d lines: %s\n",
		f.name, strings.Join(f.checks, ", "), f.failed, repeats, strings.Count(f.script, "\n"), before, path)
	return nil
}

// runShrink shrinks one script, of a file or of a seed.
func runShrink(ctx context.Context, args []string, out io.Writer) error {
	flags := newFlags("shrink", "FILE|SEED", out)
	workers := flags.Int("workers", runtime.NumCPU(), "how many are played at once")
	profile := flags.String("profile", string(draw.Any), "the scale of time, of a seed")
	timeout := flags.Duration("timeout", 5*time.Minute, "real time that one run may take")
	dir := flags.String("dir", filepath.Join(os.TempDir(), "carillon-sim"), "where the shrunk script goes")
	within := flags.Duration("within", 30*time.Minute, "real time that shrinking may take")
	if err := parse(flags, args, 1); err != nil {
		return err
	}
	p, err := draw.ParseProfile(*profile)
	if err != nil {
		return err
	}
	f, err := readFailure(flags.Arg(0), p)
	if err != nil {
		return err
	}
	c := &campaign{workers: *workers, out: out, dir: *dir}
	if err := c.prepare(ctx, "", *timeout); err != nil {
		return err
	}
	defer c.state.close()
	for range repeats {
		o, err := c.binary.play(ctx, f.script)
		if err != nil {
			return err
		}
		if f.checks = o.checks(); len(f.checks) > 0 {
			f.text = o.Report.Problems[0].Text
			return errors.Join(c.report(ctx, f, *within), errFound)
		}
	}
	fmt.Fprintf(out, "%s: none of %d runs fails\n", f.name, repeats)
	return nil
}

// readFailure returns the script of a file, or that of a seed.
func readFailure(name string, profile draw.Profile) (failure, error) {
	if seed, err := strconv.ParseUint(name, 10, 64); err == nil {
		return failure{name: "seed_" + name, script: draw.Script(seed, profile)}, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return failure{}, fmt.Errorf("%q is neither a seed nor a script: %w", name, err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if text, _, _ := strings.Cut(line, "#"); strings.TrimSpace(text) != "" {
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	if !slices.ContainsFunc(lines, isSettings) {
		lines = append([]string{"cluster"}, lines...)
	}
	return failure{name: strings.TrimSuffix(filepath.Base(name), ".txt"), script: join(lines)}, nil
}
