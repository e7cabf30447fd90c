package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/terminal"
)

func bulkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bulk",
		Short: "Cancel, change or deliver all messages that a filter means",
		Long: "Cancel, change or deliver at once all messages that a filter means, or schedule dead letters anew. First it\n" +
			"counts what is meant, and asks. The cluster carries the operation out, however long it takes and whoever\n" +
			"leads; carillon operations shows how far it is. What is produced after the start is never touched.",
		Args: cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE: helpWithoutVerb,
	}
	cmd.AddCommand(
		bulkVerb(client.OperationCancel, "Cancel them: they are never delivered", "  carillon bulk cancel --topic orders.delay --prefix reminder- --reason 'wrong prices'"),
		bulkVerb(client.OperationNow, "Deliver them at once", "  carillon bulk now --target orders --due-before 1h --reason 'sale ends early' --rate 1000"),
		bulkChangeCommand(), bulkReplayCommand(),
	)
	return cmd
}

// A bulkFlags says how an operation is started.
type bulkFlags struct {
	request   client.OperationRequest
	yes, wait bool
	asJSON    bool
}

func (b *bulkFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&b.request.All, "all", false, "everything is meant: needed where no filter is given")
	flags.StringVar(&b.request.Reason, "reason", "", "`why`, for whoever finds it done (required)")
	flags.IntVar(&b.request.Rate, "rate", 0, "messages a second at most (default: as fast as deliveries allow)")
	flags.BoolVar(&b.request.DryRun, "dry-run", false, "count what is meant, and do nothing")
	flags.BoolVar(&b.yes, "yes", false, "do not ask")
	flags.BoolVar(&b.wait, "wait", false, "wait until it has ended; exit code 1 when it was stopped or something was refused")
	flags.BoolVar(&b.asJSON, "json", false, "print JSON, for programs")
}

func bulkVerb(verb, short, example string) *cobra.Command {
	var f filterFlags
	b := bulkFlags{request: client.OperationRequest{Verb: verb}}
	cmd := &cobra.Command{
		Use:     verb + " [filter] --reason TEXT",
		Short:   short,
		Example: example,
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if b.request.Filter, err = f.read(time.Now()); err != nil {
				return err
			}
			return b.run(cmd, &f.node)
		},
	}
	f.add(cmd)
	b.add(cmd)
	return cmd
}

func bulkChangeCommand() *cobra.Command {
	var f filterFlags
	var c changeFlags
	b := bulkFlags{request: client.OperationRequest{Verb: client.OperationChange}}
	cmd := &cobra.Command{
		Use:   "change [filter] (--at TIME | --in DURATION | --shift DURATION | --to TARGET) --reason TEXT",
		Short: "Have them delivered at another time, or elsewhere",
		Example: "  carillon bulk change --target orders --due-before 1h --shift 30m --reason 'maintenance'\n" +
			"  carillon bulk change --target orders --to orders-eu --reason 'moved'",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if b.request.Filter, err = f.read(time.Now()); err != nil {
				return err
			}
			change, err := c.read(cmd.Flags())
			if err != nil {
				return err
			}
			if change == (client.BulkChange{}) {
				return &usageError{errors.New("say what is to be different: --at, --in, --shift or --to")}
			}
			b.request.Change = &change
			return b.run(cmd, &f.node)
		},
	}
	f.add(cmd)
	c.add(cmd, &f.node)
	cmd.Flags().StringVar(&c.shift, "shift", "", "`duration` by which each is later than it was to be; earlier with a minus in front: --shift=-1h")
	b.add(cmd)
	return cmd
}

// A changeFlags says what is to be different of messages.
type changeFlags struct {
	at, in, shift, to string
	key, keyBase64    string
}

func (c *changeFlags) add(cmd *cobra.Command, node *nodeFlags) {
	cmd.Flags().StringVar(&c.at, "at", "", "new `time` of delivery, RFC 3339 with zone or epoch milliseconds")
	cmd.Flags().StringVar(&c.in, "in", "", "new time of delivery as a `duration` from now, such as 5s, 1h30m or 7d")
	cmd.Flags().StringVar(&c.to, "to", "", "new target `topic`")
	complete(cmd, "to", node.completeTargets)
}

// read returns the times and the target.
func (c *changeFlags) read(flags *pflag.FlagSet) (change client.BulkChange, err error) {
	given := 0
	for _, name := range []string{"at", "in", "shift"} {
		if flags.Changed(name) {
			given++
		}
	}
	if given > 1 {
		return change, &usageError{errors.New("give one time: --at, --in or --shift")}
	}
	change.DeliverAt = c.at
	if flags.Changed("at") {
		if _, err := parseMoment("--at", cmp.Or(c.at, "nothing"), time.Now(), ahead); err != nil {
			return change, err
		}
	}
	if flags.Changed("in") {
		delay, err := parseDelay("--in", c.in)
		if err != nil {
			return change, err
		}
		change.DeliverAfter = delay.String()
	}
	if flags.Changed("shift") {
		distance, earlier := strings.CutPrefix(c.shift, "-")
		shift, err := config.ParseDuration(distance)
		if err != nil || shift == 0 {
			return change, &usageError{&config.FieldError{Field: "--shift", Value: c.shift, Remedy: config.DurationRemedy + ", with a minus in front for earlier"}}
		}
		if earlier {
			shift = -shift
		}
		change.Shift = shift.String()
	}
	if flags.Changed("to") {
		if err := checkTopic("--to", c.to); err != nil {
			return change, err
		}
	}
	change.DeliverTo = c.to
	return change, nil
}

// readKey returns the key, absent if there is none.
func (c *changeFlags) readKey(flags *pflag.FlagSet) (client.Data, error) {
	key, err := keyOf(flags, c.key, c.keyBase64)
	return dataOf(key), err
}

// run counts what is meant, asks, starts the operation, and waits for its end if that is wanted.
func (b *bulkFlags) run(cmd *cobra.Command, node *nodeFlags) error {
	if b.request.Reason == "" && !b.request.DryRun {
		return &usageError{errors.New("say with --reason why, for whoever finds it done")}
	}
	if b.request.Rate < 0 {
		return &usageError{&config.FieldError{Field: "--rate", Value: fmt.Sprint(b.request.Rate), Remedy: "use 1 or more, or leave it out"}}
	}
	f := b.request.Filter
	if f.Topic+f.Prefix+f.Target+f.Code == "" && f.From == 0 && f.To == 0 && len(f.States) == 0 && !b.request.All {
		return &usageError{errors.New("nothing says which messages are meant: give a filter, or --all if you mean all of them")}
	}
	to, err := node.reach()
	if err != nil {
		return err
	}
	trial := b.request
	trial.DryRun = true
	meant, err := to.start(cmd.Context(), trial)
	if err != nil {
		return err
	}
	if b.request.DryRun {
		if b.asJSON {
			return printJSON(cmd.OutOrStdout(), meant)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing was done\n", b.meant(meant))
		return err
	}
	if !b.yes {
		if err := b.ask(cmd, meant); err != nil {
			return err
		}
	}
	o, err := to.start(cmd.Context(), b.request)
	if err != nil {
		return err
	}
	if !b.asJSON {
		fmt.Fprintf(cmd.OutOrStdout(), "operation %s has begun\n", o.ID)
	}
	if b.wait {
		return to.await(cmd, o.ID, b.asJSON)
	}
	if b.asJSON {
		return printJSON(cmd.OutOrStdout(), o)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "carillon operations get %s shows how far it is, carillon operations stop %[1]s ends it\n", o.ID)
	return err
}

func (n nodes) start(ctx context.Context, r client.OperationRequest) (o client.Operation, err error) {
	err = n.admin(ctx, func(ctx context.Context, cluster *client.Admin) (err error) {
		o, err = cluster.StartOperation(ctx, r)
		return err
	})
	return o, inFlags(err)
}

// inFlags returns the error in the words of the command line: the API's say what to write into a request.
func inFlags(err error) error {
	var problem *client.Problem
	if !errors.As(err, &problem) || problem.Code != client.CodeBadRequest {
		return err
	}
	told := *problem
	told.Detail = strings.NewReplacer(`"all": true`, "--all", `all "true" `, "--all ").Replace(told.Detail)
	return &told
}

// meant says how much is meant.
func (b *bulkFlags) meant(o client.Operation) string {
	what := map[string]string{
		client.OperationCancel: "messages to cancel", client.OperationChange: "messages to change",
		client.OperationNow: "messages to deliver now", client.OperationReplay: "dead letters to replay",
	}[b.request.Verb]
	return about(o.Matched, o.Within) + " " + what
}

// ask returns nil when somebody at the terminal says yes.
func (b *bulkFlags) ask(cmd *cobra.Command, meant client.Operation) error {
	in, out := cmd.InOrStdin(), cmd.ErrOrStderr()
	if !terminal.Is(in, out) {
		return &usageError{fmt.Errorf("%s: without a terminal nobody can be asked, say --yes", b.meant(meant))}
	}
	fmt.Fprintf(out, "%s; go on? [y/N] ", b.meant(meant))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was done")
}

// lookEvery is the time between two looks at an operation.
const lookEvery = time.Second

// await waits until the operation has ended, and shows how far it is on a terminal. Who stops waiting stops
// nothing.
func (n nodes) await(cmd *cobra.Command, id string, asJSON bool) error {
	progress := cmd.ErrOrStderr()
	if !terminal.Shows(progress) {
		progress = io.Discard
	}
	var o client.Operation
	err := n.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			o, err = cluster.Operation(ctx, id)
			if ctx.Err() != nil {
				return fmt.Errorf("operation %s goes on, carillon operations get %[1]s shows how far it is: %w", id, ctx.Err())
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(progress, "\r%s\x1b[K", progressOf(o))
			if o.State != client.OperationRunning {
				fmt.Fprint(progress, "\r\x1b[K")
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), o)
	} else {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), progressOf(o))
	}
	switch {
	case err != nil:
		return err
	case o.State == client.OperationStopped:
		return fmt.Errorf("operation %s was stopped: what was done stays done", id)
	case o.Failed > 0:
		return fmt.Errorf("%d were refused, the last one: %s", o.Failed, o.Problem)
	}
	return nil
}

// progressOf says how far an operation is.
func progressOf(o client.Operation) string {
	done := map[string]string{
		client.OperationCancel: "cancelled", client.OperationChange: "changed", client.OperationNow: "delivered now", client.OperationReplay: "replayed",
	}[o.Verb]
	words := fmt.Sprintf("%s: %d %s", o.State, o.Done, cmp.Or(done, "done"))
	if o.State == client.OperationRunning {
		words = fmt.Sprintf("%s: %d of %s %s", o.State, o.Done, about(o.Matched, o.Within), cmp.Or(done, "done"))
	}
	late := "too late"
	if o.Verb == client.OperationReplay {
		late = "replayed before"
	}
	return fmt.Sprintf("%s, %d %s, %d not found, %d refused", words, o.TooLate, late, o.NotFound, o.Failed)
}
