package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
)

// A total is what many seeds have shown together.
type total struct {
	runs                            map[string]int
	days                            map[string]float64 // of virtual time, by scale
	produced, delivered, duplicates int
	faults, pairs, events           map[string]int
	counters                        map[string]int64
	failed                          map[string][]uint64 // seeds by check
}

func newTotal() *total {
	return &total{
		runs: make(map[string]int), days: make(map[string]float64),
		faults: make(map[string]int), pairs: make(map[string]int), events: make(map[string]int),
		counters: make(map[string]int64), failed: make(map[string][]uint64),
	}
}

func (t *total) add(r record) {
	t.runs[r.Scale]++
	t.days[r.Scale] += r.Report.VirtualSeconds / (24 * time.Hour).Seconds()
	t.produced += r.Report.Produced
	t.delivered += r.Report.Delivered
	t.duplicates += r.Report.Duplicates
	addAll(t.faults, r.Report.Faults)
	addAll(t.pairs, r.Report.Pairs)
	addAll(t.events, r.Report.Events)
	addAll(t.counters, r.Report.Counters)
	o := outcome{Report: r.Report}
	for _, check := range o.checks() {
		t.failed[check] = append(t.failed[check], r.Seed)
	}
}

func addAll[N int | int64](sum, more map[string]N) {
	for name, n := range more {
		sum[name] += n
	}
}

// sum prints what was played, and returns what is wrong with it.
func (c *campaign) sum(took time.Duration) error {
	t := newTotal()
	for _, seed := range slices.Sorted(maps.Keys(c.state.done)) {
		t.add(c.state.done[seed])
	}
	if len(c.state.done) == 0 {
		return nil // what ended the run before the first seed is told already
	}
	for _, scale := range slices.Sorted(maps.Keys(t.runs)) {
		fmt.Fprintf(c.out, "%d runs of scale %q: %.2f cluster-days\n", t.runs[scale], scale, t.days[scale])
	}
	fmt.Fprintf(c.out, "in %v; %d records produced, %d delivered, %d duplicates\n", took.Round(time.Second), t.produced, t.delivered, t.duplicates)
	c.list("faults", largest(t.faults))
	c.list(fmt.Sprintf("pairs of faults at once, of %d", len(t.pairs)), first(largest(t.pairs), 40))
	missing := t.apart()
	c.list(fmt.Sprintf("pairs of faults that never met, of %d", len(missing)), first(missing, 40))
	c.list("events", largest(t.events))
	for _, event := range draw.Events() {
		if t.events[event] == 0 {
			fmt.Fprintf(c.out, "event that never happened: %s\n", event)
		}
	}
	c.list("counters", largest(t.counters))
	if err := c.sumBranches(); err != nil {
		return err
	}
	for _, check := range slices.Sorted(maps.Keys(t.failed)) {
		fmt.Fprintf(c.out, "check %s: %d seeds: %v\n", check, len(t.failed[check]), t.failed[check])
	}
	switch {
	case t.produced == 0:
		return fmt.Errorf("%w: no record was produced", errNothing)
	case len(t.failed) > 0:
		return errFound
	}
	fmt.Fprintln(c.out, "no problems")
	return nil
}

func (c *campaign) list(title string, texts []string) {
	if len(texts) > 0 {
		fmt.Fprintf(c.out, "%s: %s\n", title, strings.Join(texts, " "))
	}
}

// largest writes numbers by name, the largest first.
func largest[N int | int64](numbers map[string]N) []string {
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[b], numbers[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s=%d", name, numbers[name])
	}
	return names
}

// sumBranches prints the share of the statements that were reached, and writes a file with the
// branches that were not.
func (c *campaign) sumBranches() error {
	shares := c.state.coverage.shares()
	for _, pkg := range slices.Sorted(maps.Keys(shares)) {
		fmt.Fprintf(c.out, "statements of %s reached: %.1f %%\n", path.Base(pkg), shares[pkg])
	}
	missed := c.state.coverage.missed()
	file := filepath.Join(c.dir, "never-reached.txt")
	fmt.Fprintf(c.out, "branches never reached: %d: %s\n", len(missed), file)
	return os.WriteFile(file, []byte(join(missed)), 0o644)
}

func first(texts []string, n int) []string { return texts[:min(len(texts), n)] }

// apart returns the pairs of faults of which each was there, but never with the other.
func (t *total) apart() []string {
	lasting := make(map[string]bool) // what can be there at the same time as another
	for pair := range t.pairs {
		for _, name := range strings.Split(pair, "+") {
			lasting[name] = true
		}
	}
	var missing []string
	names := slices.Sorted(maps.Keys(lasting))
	for i, a := range names {
		for _, b := range names[i+1:] {
			if t.pairs[a+"+"+b]+t.pairs[b+"+"+a] == 0 {
				missing = append(missing, a+"+"+b)
			}
		}
	}
	return missing
}
