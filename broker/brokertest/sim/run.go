package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
)

func runSeeds(ctx context.Context, args []string, out io.Writer) error {
	flags := newFlags("run", "", out)
	seeds := flags.Uint64("seeds", 100, "how many seeds to play")
	from := flags.Uint64("from", 1, "the first of them")
	workers := flags.Int("workers", runtime.NumCPU(), "how many are played at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *seeds == 0 {
		return fmt.Errorf("-seeds 0: %w: want at least 1", errNothing)
	}
	dir, err := os.MkdirTemp("", "carillon-sim-")
	if err != nil {
		return fmt.Errorf("make a directory for the test binary: %w", err)
	}
	defer os.RemoveAll(dir)
	b, err := build(ctx, ".", filepath.Join(dir, "brokertest.test"), true)
	if err != nil {
		return err
	}
	next := make(chan uint64)
	go func() {
		defer close(next)
		for seed := *from; seed < *from+*seeds && ctx.Err() == nil; seed++ {
			next <- seed
		}
	}()
	var wg sync.WaitGroup
	for range *workers {
		wg.Go(func() {
			for seed := range next {
				o, err := b.play(ctx, draw.Script(seed, draw.Any))
				fmt.Fprintf(out, "seed %d: %v %v %v\n", seed, o.Took, o.checks(), err)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}
