package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

func operationsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "operations",
		Short: "Show and stop what carillon bulk has begun",
		Args:  cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE:  helpWithoutVerb,
	}
	cmd.AddCommand(operationsListCommand(), operationsGetCommand(), operationsStopCommand())
	return cmd
}

func operationsListCommand() *cobra.Command {
	var node nodeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List operations that run, and those that ended within a day",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []client.Operation
			err := node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				all, err = cluster.Operations(ctx)
				return err
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), client.Operations{Operations: all})
			}
			out := table.New(cmd.OutOrStdout(), "id", "what", "state", "started", "done", "of", "who", "reason")
			for _, o := range all {
				out.Row(o.ID, o.Verb, o.State, moment(o.Started), o.Done, about(o.Matched, o.Within), orNone(o.Who), o.Reason)
			}
			return out.Flush()
		},
	}
	node.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func operationsGetCommand() *cobra.Command {
	var node nodeFlags
	var wait, asJSON bool
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show how far an operation is",
		Args:  arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOperation(args[0]); err != nil {
				return err
			}
			to, err := node.reach()
			if err != nil {
				return err
			}
			if wait {
				return to.await(cmd, args[0], asJSON)
			}
			var o client.Operation
			err = to.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				o, err = cluster.Operation(ctx, args[0])
				return err
			})
			if err != nil {
				return err
			}
			return printOperation(cmd.OutOrStdout(), o, asJSON)
		},
	}
	node.add(cmd)
	cmd.ValidArgsFunction = node.completeOperations
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it has ended; exit code 1 when it was stopped or something was refused")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func operationsStopCommand() *cobra.Command {
	var node nodeFlags
	var asJSON bool
	var reason string
	cmd := &cobra.Command{
		Use:   "stop ID",
		Short: "Stop an operation; what was done stays done",
		Args:  arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOperation(args[0]); err != nil {
				return err
			}
			var o client.Operation
			err := node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				o, err = cluster.StopOperation(ctx, args[0], reason)
				return err
			})
			if err != nil {
				return err
			}
			return printOperation(cmd.OutOrStdout(), o, asJSON)
		},
	}
	node.add(cmd)
	cmd.ValidArgsFunction = node.completeOperations
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for whoever finds it stopped")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

// checkOperation refuses what is no id of an operation.
func checkOperation(id string) error {
	if n, err := strconv.ParseUint(id, 10, 64); err != nil || n == 0 {
		return &usageError{fmt.Errorf("%q is no id of an operation: give a number, as carillon operations list shows it", id)}
	}
	return nil
}

func printOperation(w io.Writer, o client.Operation, asJSON bool) error {
	if asJSON {
		return printJSON(w, o)
	}
	out := table.New(w)
	out.Row("id", o.ID)
	out.Row("what", o.Verb+" "+filterInWords(o.Filter))
	if c := o.Change; c != nil {
		for name, text := range map[string]string{"to be at": c.DeliverAt, "to be in": c.DeliverAfter, "shifted by": c.Shift, "to go to": c.DeliverTo} {
			if text != "" {
				out.Row(name, text)
			}
		}
	}
	out.Row("state", progressOf(o))
	if o.Problem != "" {
		out.Row("problem", o.Problem)
	}
	meant := about(o.Matched, o.Within)
	switch {
	case o.Verb != client.OperationReplay:
		meant += ", no message after seq " + fmt.Sprint(o.UpperSeq)
	case o.Again:
		meant += ", also what was replayed before"
	}
	out.Row("meant", meant)
	out.Row("started", moment(o.Started)+" by "+orNone(o.Who))
	if o.Ended != 0 {
		out.Row("ended", fmt.Sprintf("%s, after %v", moment(o.Ended), time.Duration(o.Ended-o.Started)*time.Millisecond))
	}
	out.Row("reason", orNone(o.Reason))
	return out.Flush()
}

// filterInWords says which messages are meant, as the flags would.
func filterInWords(f client.Filter) string {
	var parts []string
	for _, part := range []struct{ name, text string }{
		{"--topic", f.Topic}, {"--prefix", f.Prefix}, {"--target", f.Target}, {"--code", f.Code}, {"--state", strings.Join(f.States, ",")},
	} {
		if part.text != "" {
			parts = append(parts, part.name+" "+part.text)
		}
	}
	if f.From != 0 {
		parts = append(parts, "from "+moment(f.From))
	}
	if f.To != 0 {
		parts = append(parts, "before "+moment(f.To))
	}
	if len(parts) == 0 {
		return "--all"
	}
	return strings.Join(parts, " ")
}

// completeOperations offers the ids of operations.
func (n *nodeFlags) completeOperations(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	ids := map[string]bool{}
	if len(args) == 0 {
		n.forCompletion(cmd.Context(), func(ctx context.Context, cluster *client.Admin) error {
			all, err := cluster.Operations(ctx)
			for _, o := range all {
				ids[o.ID] = true
			}
			return err
		})
	}
	return offered(typed, ids)
}
