package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

func deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "Show what could not be scheduled or delivered, and schedule it anew",
		Args:  cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE:  helpWithoutVerb,
	}
	cmd.AddCommand(deadLettersListCommand(), deadLettersGetCommand(), deadLettersReplayCommand())
	return cmd
}

// A letterFlags says which dead letters are meant, and the nodes to ask for them.
type letterFlags struct {
	filter        client.Filter
	since, before string
	node          nodeFlags
	flags         *pflag.FlagSet
}

func (f *letterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.flags = flags
	flags.StringVar(&f.filter.Topic, "topic", "", "delay `topic` that they came by (default: any)")
	flags.StringVar(&f.filter.Code, "code", "", "`why` they are, in the word that the list shows")
	flags.StringVar(&f.filter.Target, "target", "", "`topic` that they were to go to")
	flags.StringVar(&f.since, "since", "", "written at this `time` or later: RFC 3339 with zone, epoch milliseconds, or a duration before now such as 1h")
	flags.StringVar(&f.before, "before", "", "written before this `time`, likewise")
	f.node.add(cmd)
	complete(cmd, "topic", f.node.completeTopics)
	complete(cmd, "target", f.node.completeTargets)
}

func (f *letterFlags) read(now time.Time) (filter client.Filter, err error) {
	if err := refuseEmpty(f.flags, "topic", "code", "target", "since", "before"); err != nil {
		return filter, err
	}
	filter = f.filter
	for flag, text := range map[string]string{"topic": filter.Topic, "code": filter.Code, "target": filter.Target} {
		if err := checkText("--"+flag, text); err != nil {
			return filter, err
		}
	}
	if filter.From, err = parseMoment("--since", f.since, now, back); err != nil {
		return filter, err
	}
	if filter.To, err = parseMoment("--before", f.before, now, back); err != nil {
		return filter, err
	}
	return filter, checkSpan(filter, "--since", "--before", f.before)
}

func deadLettersListCommand() *cobra.Command {
	var f letterFlags
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters: why each is one, and where it was to go",
		Example: "  carillon dead-letters list --since 1h\n" +
			"  carillon dead-letters list --code target-missing --target orders --limit 0 --json",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.read(time.Now())
			if err != nil {
				return err
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			return f.node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) error {
				if asJSON {
					return printAll(cmd.OutOrStdout(), cluster.DeadLetters(ctx, filter), limit)
				}
				head := []any{"dead letter", "written", "code", "target", "id", "replayed", "detail"}
				return printRows(cmd.OutOrStdout(), cluster.DeadLetters(ctx, filter), limit, head, func(d client.DeadLetter) []any {
					return []any{positionOf(d), moment(d.Time), codeOf(d), orNone(d.Target), orNone(d.ID), yesOrNo(d.Replayed), d.Detail}
				})
			})
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", usualLimit, "dead letters at most; 0: all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, a dead letter a line, for programs")
	return cmd
}

func positionOf(d client.DeadLetter) client.Position {
	return client.Position{Topic: d.Topic, Partition: d.Partition, Offset: d.Offset}
}

// codeOf says why a dead letter is one, and of a record that is none that it is somebody else's.
func codeOf(d client.DeadLetter) string {
	if d.Foreign {
		return "(foreign)"
	}
	return d.Code
}

func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// parsePosition reads what the list shows of a dead letter.
func parsePosition(text string) (p client.Position, err error) {
	parts := strings.Split(text, "/")
	if len(parts) == 3 {
		partition, err1 := strconv.ParseInt(parts[1], 10, 32)
		offset, err2 := strconv.ParseInt(parts[2], 10, 64)
		if parts[0] != "" && err1 == nil && err2 == nil && partition >= 0 && offset >= 0 {
			return client.Position{Topic: parts[0], Partition: int32(partition), Offset: offset}, nil
		}
	}
	return p, &usageError{fmt.Errorf("%q is no dead letter: write TOPIC/PARTITION/OFFSET, as carillon dead-letters list shows it", text)}
}

func deadLettersGetCommand() *cobra.Command {
	var node nodeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "get TOPIC/PARTITION/OFFSET",
		Short:   "Show one dead letter in full",
		Long:    "Show one dead letter in full. Key, value and headers are shown to those who may read payloads.",
		Example: "  carillon dead-letters get carillon.dead-letter/0/17",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := parsePosition(args[0])
			if err != nil {
				return err
			}
			var d client.DeadLetter
			err = node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				d, err = cluster.DeadLetter(ctx, p)
				return err
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), d)
			}
			return printDeadLetter(cmd.OutOrStdout(), d)
		},
	}
	node.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func printDeadLetter(w io.Writer, d client.DeadLetter) error {
	out := table.New(w)
	out.Row("dead letter", positionOf(d))
	out.Row("code", codeOf(d))
	out.Row("detail", d.Detail)
	out.Row("target", orNone(d.Target))
	out.Row("came as", d.Origin)
	out.Row("id", orNone(d.ID))
	out.Row("written", moment(d.Time))
	out.Row("size", fmt.Sprintf("%d bytes", d.Size))
	out.Row("replayed", yesOrNo(d.Replayed))
	if d.Foreign {
		out.Row("foreign", "somebody else has put it there: name a target with --to to replay it")
	}
	rowsOfPayload(out, d.Payload)
	return out.Flush()
}

func deadLettersReplayCommand() *cobra.Command {
	var node nodeFlags
	var c changeFlags
	var request client.ReplayRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replay TOPIC/PARTITION/OFFSET...",
		Short: "Schedule dead letters anew; for many: carillon bulk replay",
		Long: "Schedule dead letters anew: at once to the target that they were meant for, or at another time, or to\n" +
			"another target. It ends at the first one that cannot be, such as one that was replayed before.",
		Example: "  carillon dead-letters replay carillon.dead-letter/0/17\n" +
			"  carillon dead-letters replay --to orders --in 1h carillon.dead-letter/0/17 carillon.dead-letter/0/18",
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := c.read(cmd.Flags())
			if err != nil {
				return err
			}
			request.DeliverAt, request.DeliverAfter, request.DeliverTo = change.DeliverAt, change.DeliverAfter, change.DeliverTo
			positions := make([]client.Position, len(args))
			for i, arg := range args {
				if positions[i], err = parsePosition(arg); err != nil {
					return err
				}
			}
			return node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) error {
				for _, p := range positions {
					answer, err := cluster.Replay(ctx, p, request)
					if err != nil {
						return err
					}
					if err := printAnswer(cmd, answer, asJSON); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	node.add(cmd)
	c.add(cmd, &node)
	cmd.Flags().BoolVar(&request.Again, "again", false, "also what was replayed before")
	cmd.Flags().StringVar(&request.Reason, "reason", "", "`why`, for the log of the cluster")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func bulkReplayCommand() *cobra.Command {
	var f letterFlags
	var c changeFlags
	b := bulkFlags{request: client.OperationRequest{Verb: client.OperationReplay}}
	cmd := &cobra.Command{
		Use:   "replay [filter] --reason TEXT",
		Short: "Schedule dead letters anew",
		Example: "  carillon bulk replay --code target-missing --target orders --since 2h --reason 'the topic is there now'\n" +
			"  carillon bulk replay --target orders --to orders-eu --in 10m --rate 100 --reason moved",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if b.request.Filter, err = f.read(time.Now()); err != nil {
				return err
			}
			change, err := c.read(cmd.Flags())
			if err != nil {
				return err
			}
			if change != (client.BulkChange{}) {
				b.request.Change = &change
			}
			return b.run(cmd, &f.node)
		},
	}
	f.add(cmd)
	c.add(cmd, &f.node)
	b.add(cmd)
	cmd.Flags().BoolVar(&b.request.Again, "again", false, "also what was replayed before")
	return cmd
}
