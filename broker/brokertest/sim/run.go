package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
)

// A campaign plays seeds and gathers what they show.
type campaign struct {
	binary  binary
	profile draw.Profile
	workers int
	out     io.Writer
	dir     string // where scripts of failures go

	mu    sync.Mutex // guards what is below
	state *state
	wrong error // what ended the campaign
}

func runSeeds(ctx context.Context, args []string, out io.Writer) error {
	flags := newFlags("run", "", out)
	seeds := flags.Uint64("seeds", 100, "how many seeds to play")
	from := flags.Uint64("from", 1, "the first of them")
	workers := flags.Int("workers", runtime.NumCPU(), "how many are played at once")
	profile := flags.String("profile", string(draw.Any), "the scale of time: any, true (minutes, the product's heartbeat), stretched (days) or long (any, with hours and days in which nothing happens)")
	timeout := flags.Duration("timeout", 5*time.Minute, "real time that a seed may take")
	dir := flags.String("dir", filepath.Join(os.TempDir(), "carillon-sim"), "where scripts of failures and branches that were not reached go")
	path := flags.String("state", "", "keep in this file what was played, and go on there; default: one in -dir for this code and profile")
	shrinks := flags.Int("shrink", 3, "how many failures of each check are repeated and shrunk")
	within := flags.Duration("within", 5*time.Minute, "real time that shrinking one may take")
	if err := parse(flags, args, 0); err != nil {
		return err
	}
	c := &campaign{workers: *workers, out: out, dir: *dir}
	var err error
	if c.profile, err = draw.ParseProfile(*profile); err != nil {
		return err
	}
	if err := c.prepare(ctx, *path, *timeout); err != nil {
		return err
	}
	defer c.state.close()
	begin := time.Now()
	err = c.play(ctx, *from, *seeds)
	if err == nil {
		err = c.shrinkFailures(ctx, *shrinks, *within)
	}
	return errors.Join(err, c.sum(time.Since(begin)))
}

// prepare builds the binary and opens the state.
func (c *campaign) prepare(ctx context.Context, path string, timeout time.Duration) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("-dir: %w", err)
	}
	var err error
	if c.binary, err = build(ctx, ".", playing, filepath.Join(c.dir, fmt.Sprintf("brokertest-%d.test", os.Getpid())), true); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { os.Remove(c.binary.path) })
	c.binary.timeout = timeout
	hash, err := hashFile(c.binary.path)
	if err != nil {
		return err
	}
	if path == "" {
		path = filepath.Join(c.dir, fmt.Sprintf("state-%s-%s", hash, c.profile))
	}
	c.state, err = openState(path, subject{hash, c.profile})
	return err
}

// play plays the seeds that the state does not know, several at a time, until one cannot be
// played.
func (c *campaign) play(ctx context.Context, from, seeds uint64) error {
	if left := from + seeds; left < from {
		return fmt.Errorf("-from %d -seeds %d: there are no such seeds", from, seeds)
	}
	for seed := range c.state.done {
		if seed < from || seed >= from+seeds {
			delete(c.state.done, seed) // of another range: not of this run
		}
	}
	next := make(chan uint64)
	go func() {
		defer close(next)
		for seed := from; seed < from+seeds && ctx.Err() == nil; seed++ {
			next <- seed
		}
	}()
	var all sync.WaitGroup
	for range c.workers {
		all.Go(func() {
			for seed := range next {
				c.playSeed(ctx, seed)
			}
		})
	}
	all.Wait()
	return errors.Join(c.wrong, ctx.Err())
}

func (c *campaign) playSeed(ctx context.Context, seed uint64) {
	c.mu.Lock()
	_, done := c.state.done[seed]
	skip := done || c.wrong != nil
	c.mu.Unlock()
	if skip || ctx.Err() != nil {
		return
	}
	script := draw.Script(seed, c.profile)
	o, err := c.binary.play(ctx, script)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		c.wrong = errors.Join(c.wrong, fmt.Errorf("seed %d: %w", seed, err))
		return
	}
	r := record{Seed: seed, Millis: o.Took.Milliseconds(), Scale: string(draw.ScaleOf(script)), Report: o.Report}
	if err := c.state.note(r, o.Cover); err != nil {
		c.wrong = errors.Join(c.wrong, err)
	}
	if checks := o.checks(); len(checks) > 0 {
		fmt.Fprintf(c.out, "seed %d: %s: %s\n", seed, strings.Join(checks, ", "), head(o.Report.Problems[0].Text, 1))
	}
}
