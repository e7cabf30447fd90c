package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/carillonmq/carillon/broker/brokertest/mutants"
)

// plantedDir has the patches, seen from the root of the module.
const plantedDir = "broker/brokertest/mutants"

// runMutants tries each planted bug until a seed finds it.
func runMutants(ctx context.Context, args []string, out io.Writer) error {
	var c hunting
	flags := newFlags("mutants", "", out)
	only := flags.String("only", "", "try only this one, or those whose names begin so; several with commas between them")
	c.addTo(flags, 1000)
	if err := parse(flags, args, 0); err != nil {
		return err
	}
	planted, err := mutants.Read(plantedDir)
	if err != nil {
		return err
	}
	if planted, err = chosen(planted, *only); err != nil {
		return err
	}
	h, err := newHunt(ctx, c)
	if err != nil {
		return err
	}
	defer h.close()
	results := make([]result, 0, len(planted))
	for _, p := range planted {
		r := result{name: p.Name}
		r.find, r.err = h.tryPlanted(ctx, p, c.seeds)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		results = append(results, r)
		fmt.Fprintln(out, r)
	}
	return summarize(results, out)
}

// chosen returns those whose names begin with one of the words, which have commas between them; all if there is none.
// Each word must be good for one.
func chosen(planted []mutants.Planted, words string) ([]mutants.Planted, error) {
	if words == "" {
		return planted, nil
	}
	isChosen := make(map[string]bool)
	for word := range strings.SplitSeq(words, ",") {
		found := false
		for _, p := range planted {
			if word != "" && strings.HasPrefix(p.Name, word) {
				found, isChosen[p.Name] = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("-only %s: %w: none of the %d names in %s begins with %q", words, errNothing, len(planted), plantedDir, word)
		}
	}
	return slices.DeleteFunc(planted, func(p mutants.Planted) bool { return !isChosen[p.Name] }), nil
}

// A result is what became of a planted bug. Its error says that it was not tried.
type result struct {
	name string
	find find
	err  error
}

func (r result) String() string {
	switch {
	case r.err != nil:
		return fmt.Sprintf("%s: not tried: %v", r.name, r.err)
	case !r.find.found():
		return fmt.Sprintf("%s: NOT FOUND in %d seeds", r.name, r.find.Seeds)
	}
	return fmt.Sprintf("%s: found by seed %d: %s: %s", r.name, r.find.Seeds, strings.Join(r.find.Checks, ", "), r.find.Text)
}

// tryPlanted goes on where an earlier run has ended, if neither source nor patch has changed.
func (h *hunt) tryPlanted(ctx context.Context, p mutants.Planted, seeds uint64) (find, error) {
	sum := sha256.Sum256(p.Patch)
	hash := hex.EncodeToString(sum[:8])
	before, ok := h.log.Planted[p.Name]
	if !ok || before.Hash != hash {
		before = trial{}
	}
	if before.Find.found() || before.Find.Seeds >= seeds {
		return before.Find, nil
	}
	if err := h.tree.Restore(); err != nil {
		return find{}, err
	}
	if err := p.Apply(ctx, h.tree); err != nil {
		return find{}, err
	}
	b, err := h.build(ctx, "mutant.test")
	if err != nil {
		return find{}, err // a build failure is not a find
	}
	found, err := h.search(ctx, b, before.Find.Seeds, seeds)
	if err != nil {
		return find{}, err
	}
	h.log.Planted[p.Name] = trial{Hash: hash, Builds: true, Find: found}
	return found, h.log.save()
}

// summarize prints the table and its median and worst, and returns what is wrong with it.
func summarize(results []result, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nmutant\tseeds\tcheck")
	var needed []uint64
	var missed, broken []string
	for _, r := range results {
		switch {
		case r.err != nil:
			broken = append(broken, r.name)
			fmt.Fprintf(table, "%s\t-\t%s\n", r.name, reason(r.err))
		case !r.find.found():
			missed = append(missed, r.name)
			fmt.Fprintf(table, "%s\t%d\tnot found\n", r.name, r.find.Seeds)
		default:
			needed = append(needed, r.find.Seeds)
			fmt.Fprintf(table, "%s\t%d\t%s\n", r.name, r.find.Seeds, strings.Join(r.find.Checks, ", "))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d of %d found", len(needed), len(results))
	if len(needed) > 0 {
		slices.Sort(needed)
		fmt.Fprintf(out, "; seeds needed: median %d, worst %d", needed[(len(needed)-1)/2], needed[len(needed)-1])
	}
	fmt.Fprintln(out)
	var wrong []error
	if len(broken) > 0 {
		wrong = append(wrong, fmt.Errorf("%w: %s", errNotTried, strings.Join(broken, ", ")))
	}
	if len(missed) > 0 {
		wrong = append(wrong, fmt.Errorf("%w: %s", errMissed, strings.Join(missed, ", ")))
	}
	return errors.Join(wrong...)
}

// reason says in a few words why a mutant was not tried.
func reason(err error) string {
	switch {
	case errors.Is(err, mutants.ErrDoesNotApply):
		return "does not apply"
	case errors.Is(err, errBuild):
		return "does not build"
	}
	return "not tried"
}
