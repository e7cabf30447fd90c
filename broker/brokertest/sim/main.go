// Command sim plays seeds: it draws a script from each (broker/brokertest/draw), plays it in a
// child process (broker/brokertest/play, built once) and gathers what the children
// report. Run it from the root of the module; see docs/testing.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// A verb is what the command can be asked for. Its arguments are those behind its name.
type verb struct {
	name  string
	about string
	run   func(ctx context.Context, args []string, out io.Writer) error
}

func verbs() []verb {
	return []verb{
		{"run", "play seeds, shrink what fails, sum up", runSeeds},
		{"shrink", "shrink the script of a file or a seed that fails", runShrink},
		{"mutants", "put each planted bug into a copy of the source, and play seeds until one finds it", runMutants},
		{"histories", "put each bug into a copy that breaks what clients are told, and count the seeds that notice it", runHistories},
		{"drawn", "draw bugs from the syntax of the source, and see whether unit tests or seeds find them", runDrawn},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string, out io.Writer) error {
	var name string
	if len(args) > 0 {
		name = args[0]
	}
	i := slices.IndexFunc(verbs(), func(v verb) bool { return v.name == name })
	if i < 0 {
		var lines []string
		for _, v := range verbs() {
			lines = append(lines, fmt.Sprintf("  sim %-9s %s (-h tells its flags)", v.name, v.about))
		}
		return fmt.Errorf("there is no verb %q; there are\n%s", name, strings.Join(lines, "\n"))
	}
	return verbs()[i].run(ctx, args[1:], out)
}

// newFlags returns the flags of a verb, whose errors name the verb.
func newFlags(verb, arguments string, out io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("sim "+verb, flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprintf(out, "usage: sim %s [flags] %s\n", verb, arguments)
		flags.PrintDefaults()
	}
	return flags
}

// parse reads the arguments, of which so many must be left behind the flags, and refuses numbers by which nothing
// would be played.
func parse(flags *flag.FlagSet, args []string, left int) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, name := range []string{"seeds", "count", "workers", "timeout", "within"} {
		if f := flags.Lookup(name); f != nil && (strings.HasPrefix(f.Value.String(), "0") || strings.HasPrefix(f.Value.String(), "-")) {
			return fmt.Errorf("-%s %s: %w: want more than 0", name, f.Value, errNothing)
		}
	}
	if flags.NArg() != left {
		return fmt.Errorf("%s: %q: want %d arguments behind the flags, see -h", flags.Name(), flags.Args(), left)
	}
	return nil
}
