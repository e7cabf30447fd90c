// Command carillon runs a node of a Carillon cluster and talks to one: one verb
// per file. It is the only place that reads the environment, handles signals and
// exits.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/contexts"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

func main() {
	// The first signal lets the verb finish its work; after it signals have their
	// default action again, so the second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitAbsent = 3 // what was asked for is not there, or it is too late

	exitUnchecked = 2 // of what tells damage by exitFailed
)

// run executes one verb and returns the exit code. The verb ends early when ctx does.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := checkBooleans(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return exitDone
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(stderr, "carillon:", table.Text(line)) // a node may repeat what others wrote
	}
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	if unchecked := (*uncheckedError)(nil); errors.As(err, &unchecked) {
		return exitUnchecked
	}
	if isAbsence(err) {
		return exitAbsent
	}
	return exitFailed
}

// An absentError says that what was asked for is not there.
type absentError struct{ error }

func (e *absentError) Unwrap() error { return e.error }

// isAbsence reports whether the error says that what was asked for is not there, or that it is too late:
// nothing failed, and to try again changes nothing.
func isAbsence(err error) bool {
	if absent := (*absentError)(nil); errors.As(err, &absent) || errors.Is(err, contexts.ErrUnknown) {
		return true
	}
	return errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrTooLate) || errors.Is(err, client.ErrReplayed)
}

// checkBooleans refuses true or false as the next argument after a flag that needs no
// value: it would not be the flag's, but another argument, for some verbs a message.
func checkBooleans(root *cobra.Command, args []string) error {
	verb, args, err := root.Find(args)
	if err != nil {
		return nil // executing it says so
	}
	for i, arg := range args[:max(len(args)-1, 0)] {
		if arg == "--" {
			return nil
		}
		name, isLong := strings.CutPrefix(arg, "--")
		flag := verb.Flags().Lookup(name)
		if value := args[i+1]; isLong && flag != nil && flag.NoOptDefVal != "" && (value == "true" || value == "false") {
			return &usageError{fmt.Errorf("%s %s: the value of this flag stands behind a =: write %s=%s", arg, value, arg, value)}
		}
	}
	return nil
}

// A usageError is a mistake in the command line.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "carillon",
		Short: "Carillon delivers Kafka messages later: at their time, never before it",
		Long: "Carillon delivers Kafka messages later: at their time, never before it.\n\n" +
			"To see it work, run carillon dev and, in another terminal, what it tells you to try. Where a cluster runs\n" +
			"already, name it once with carillon context add, then look with carillon top. The exit code is\n" +
			"0 when all went well, 1 after a failure, 2 for a mistake in the command line, 3 when what was asked for\n" +
			"is not there, or it is too late. A configuration that no node starts with is a failure, also when flags\n" +
			"say it.",
		Version:       versionLine(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE:          helpWithoutVerb,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version of this program")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var missing *pflag.NotExistError
		if errors.As(err, &missing) {
			var flags []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, "--"+f.Name) })
			err = fmt.Errorf("%w%s", err, config.DidYouMean("--"+missing.GetSpecifiedName(), flags))
		}
		return &usageError{err}
	})
	addVerbs(root)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error { // cobra shows the help of the part that it knows
			if verb, rest, _ := root.Find(args); len(rest) > 0 && verb.HasSubCommands() {
				return unknownVerb(verb, rest[0])
			}
			return nil
		}
	}
	return root
}

// addVerbs adds the verbs in groups, as the help shows them.
func addVerbs(root *cobra.Command) {
	for _, group := range []struct {
		title string
		verbs []*cobra.Command
	}{
		{"Begin:", []*cobra.Command{devCommand(), contextCommand()}},
		{"Messages:", []*cobra.Command{scheduleCommand(), cancelCommand(), changeCommand(), nowCommand(), getCommand(), explainCommand(), listCommand(), countCommand()}},
		{"Many messages:", []*cobra.Command{bulkCommand(), operationsCommand(), deadLettersCommand()}},
		{"A cluster at work:", []*cobra.Command{statusCommand(), topCommand(), pauseCommand(), resumeCommand(), clusterCommand()}},
		{"Nodes:", []*cobra.Command{serveCommand(), configCommand(), tokenCommand(), certCommand(), inspectCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID = group.title
			root.AddCommand(verb)
		}
	}
	root.AddCommand(versionCommand(), devKafkaCommand(), devNodeCommand())
}

// helpWithoutVerb is what a command does that only has verbs below it.
func helpWithoutVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownVerb(cmd, args[0])
}

func unknownVerb(parent *cobra.Command, name string) error {
	var verbs []string
	for _, verb := range parent.Commands() {
		if verb.IsAvailableCommand() {
			verbs = append(verbs, verb.Name())
		}
	}
	return &usageError{fmt.Errorf("unknown command %s%s", name, config.DidYouMean(name, verbs))}
}

// arguments makes a wrong number of arguments a usage error.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{fmt.Errorf("%s: %w", cmd.CommandPath(), err)}
		}
		return nil
	}
}
