package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/carillonmq/carillon/broker/brokertest/mutants"
)

// historiesDir has the planted bugs that histories have to find, seen from the root of the module.
const historiesDir = plantedDir + "/histories"

// historiesTests returns the tests that record and judge histories: of calls of the log and the schedule
// themselves, without and with messages that expire, and over HTTP.
func historiesTests() []string {
	return []string{"TestIDs_areLinearizable", "TestExpiry_isLinearizable", "TestAPI_isLinearizable"}
}

// runHistories tries the bugs that break what clients are told, which scripts do not ask.
func runHistories(ctx context.Context, args []string, out io.Writer) error {
	flags := newFlags("histories", "", out)
	dir := flags.String("dir", filepath.Join(os.TempDir(), "carillon-histories"), "where the copy of the source is")
	if err := parse(flags, args, 0); err != nil {
		return err
	}
	planted, err := mutants.Read(historiesDir)
	if err != nil {
		return err
	}
	tree, err := mutants.Copy(ctx, ".", filepath.Join(*dir, "tree"))
	if err != nil {
		return err
	}
	defer tree.Close()
	var wrong []error
	for _, p := range append([]mutants.Planted{{Name: "no bug"}}, planted...) {
		if err := tree.Restore(); err != nil {
			return err
		}
		if p.Patch != nil {
			if err := p.Apply(ctx, tree); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w: %w", p.Name, errNotTried, err))
				continue
			}
		}
		b, err := build(ctx, tree.Dir, allTests, filepath.Join(filepath.Dir(tree.Dir), "histories.test"), false)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		all := 0
		for _, test := range historiesTests() {
			seeds, noticed, err := playHistories(ctx, b, test, tree.Dir)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			fmt.Fprintf(out, "%s: noticed by %d of %d seeds of %s\n", p.Name, noticed, seeds, test)
			all += noticed
		}
		switch {
		case all > 0 && p.Patch == nil:
			wrong = append(wrong, errFound)
		case all == 0 && p.Patch != nil:
			wrong = append(wrong, fmt.Errorf("%s: %w", p.Name, errMissed))
		}
	}
	return errors.Join(wrong...)
}

// playHistories returns how many seeds the test has played with the source, and in how many the histories
// were not right.
func playHistories(ctx context.Context, b binary, test, source string) (seeds, noticed int, err error) {
	cmd := exec.CommandContext(ctx, b.path, "-test.run=^"+test+"$", "-test.v", "-test.timeout="+b.timeout.String())
	cmd.Dir = filepath.Join(source, "broker", "brokertest")
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return 0, 0, fmt.Errorf("start %s: %w", b.path, err)
	}
	// A run that panics ends without a verdict on its seeds: what was not counted was not judged.
	seeds = strings.Count(text.String(), "\n    --- ")
	noticed = strings.Count(text.String(), "are not linearizable (Illegal)")
	if seeds == 0 {
		return 0, 0, fmt.Errorf("%s: %w:\n%s", test, errNothing, text.String())
	}
	return seeds, noticed, nil
}
