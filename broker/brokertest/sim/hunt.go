package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
	"github.com/carillonmq/carillon/broker/brokertest/mutants"
)

// mostMemory is what each process that builds, tests or plays a mutant may have, in bytes: one that
// appends without end would take all that the machine has, and others with it.
const mostMemory = 8 << 30

// hunting is what the verbs that try mutants are told.
type hunting struct {
	dir     string
	seeds   uint64
	workers int
	timeout time.Duration
}

func (c *hunting) addTo(flags *flag.FlagSet, seeds uint64) {
	flags.Uint64Var(&c.seeds, "seeds", seeds, "how many seeds each may take")
	flags.IntVar(&c.workers, "workers", runtime.NumCPU(), "how many seeds are played at once")
	flags.DurationVar(&c.timeout, "timeout", 3*time.Minute, "real time that a seed may take")
	flags.StringVar(&c.dir, "dir", filepath.Join(os.TempDir(), "carillon-mutants"), "where the copy of the source and the results are: a second run goes on there")
}

// A hunt plays the seeds one after the other against mutants of one source, until a check finds
// something that it does not find in the source itself.
type hunt struct {
	tree    *mutants.Tree
	log     *logbook
	workers int
	timeout time.Duration // of real time, that a seed may take
	script  func(seed uint64) string

	pure    binary     // of the source without a mutant
	playing sync.Mutex // held while pure plays, and over what the log has of it
}

// A find is what a hunt came to.
type find struct {
	Seeds  uint64   `json:"seeds"`            // played, up to the one that found it
	Checks []string `json:"checks,omitempty"` // that found it; none: not found
	Text   string   `json:"text,omitempty"`   // what the first of them says
}

func (f find) found() bool { return len(f.Checks) > 0 }

// newHunt copies the module at the present directory and builds it without a mutant.
func newHunt(ctx context.Context, c hunting) (*hunt, error) {
	if err := boundMemory(); err != nil {
		return nil, err
	}
	tree, err := mutants.Copy(ctx, ".", filepath.Join(c.dir, "tree"))
	if err != nil {
		return nil, err
	}
	h := &hunt{
		tree: tree, workers: c.workers, timeout: c.timeout,
		script: func(seed uint64) string { return draw.Script(seed, draw.Any) },
	}
	if h.log, err = openLogbook(filepath.Join(c.dir, "state.json"), tree.Hash); err == nil {
		h.pure, err = h.build(ctx, "pure.test")
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// boundMemory bounds this process, and with it those that it starts.
func boundMemory() error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_DATA, &limit)
	if err == nil && limit.Cur > mostMemory {
		limit.Cur = mostMemory
		err = unix.Setrlimit(unix.RLIMIT_DATA, &limit)
	}
	if err != nil {
		return fmt.Errorf("bound the memory of mutants: %w", err)
	}
	return nil
}

// close gives the directory back. What is known stays there.
func (h *hunt) close() error { return h.tree.Close() }

// build compiles what the tree holds now.
func (h *hunt) build(ctx context.Context, name string) (binary, error) {
	b, err := build(ctx, h.tree.Dir, playing, filepath.Join(filepath.Dir(h.tree.Dir), name), false)
	b.timeout = h.timeout
	return b, err
}

// search plays the seeds after the first so many, up to most, several at a time. What it returns does not depend
// on how many: the lowest seed that finds something counts.
func (h *hunt) search(ctx context.Context, b binary, after, most uint64) (find, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var mu sync.Mutex // guards all below
	next, best := after, find{Seeds: most}
	var failed error
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next++; next > most || failed != nil || best.found() {
			return 0, false
		}
		return next, true
	}
	var all sync.WaitGroup
	for range h.workers {
		all.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				found, err := h.try(ctx, b, seed)
				mu.Lock()
				switch {
				case err != nil && failed == nil:
					failed = err
				case found.found() && (!best.found() || seed < best.Seeds):
					best = found
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return best, failed
}

// rounds is how often a seed is played before what it shows counts: a seed gives the same script, not
// the same run.
const rounds = 3

// try plays one seed. A find is a check that fails in two of three runs, and in no run of the source
// without the mutant.
func (h *hunt) try(ctx context.Context, b binary, seed uint64) (find, error) {
	var found find
	failed := make(map[string]int)
	for round := range rounds {
		o, err := b.play(ctx, h.script(seed))
		if err != nil {
			return find{}, fmt.Errorf("seed %d: %w", seed, err)
		}
		checks := o.checks()
		if len(checks) > 0 && round == 0 {
			usual, err := h.usual(ctx, seed)
			if err != nil {
				return find{}, fmt.Errorf("seed %d without the mutant: %w", seed, err)
			}
			for _, name := range usual {
				failed[name] = -rounds
			}
		}
		for _, name := range checks {
			if failed[name]++; failed[name] == 2 {
				found.Seeds, found.Checks = seed, append(found.Checks, name)
				first := slices.IndexFunc(o.Report.Problems, func(p problem) bool { return p.Check == found.Checks[0] })
				found.Text = head(o.Report.Problems[first].Text, 3)
			}
		}
		if found.found() || !slices.ContainsFunc(slices.Collect(maps.Values(failed)), func(n int) bool { return n > 0 }) {
			return found, nil
		}
	}
	return find{}, nil
}

// usual returns the checks that fail for the seed in some run of the source without a mutant.
func (h *hunt) usual(ctx context.Context, seed uint64) ([]string, error) {
	h.playing.Lock()
	defer h.playing.Unlock()
	if checks, ok := h.log.usual(seed); ok {
		return checks, nil
	}
	var all []string
	for range rounds {
		o, err := h.pure.play(ctx, h.script(seed))
		if err != nil {
			return nil, err
		}
		all = append(all, o.checks()...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all, h.log.noteUsual(seed, all)
}
