package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/client"
)

func listCommand() *cobra.Command {
	var node nodeFlags
	var filter struct{ topic, prefix, target, cursor string }
	var from, to int64
	var states []string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages that are pending, in order of delivery",
		Long: "Ask the leader for a page of what is pending. Where there may be more, the last line has the cursor\n" +
			"to go on with: a page can be short, or empty, and have others after it.",
		Example: "  carillon list --topic orders.delay --prefix reminder- --state parked",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked := url.Values{"limit": {strconv.Itoa(limit)}}
			for name, text := range map[string]string{"topic": filter.topic, "prefix": filter.prefix, "target": filter.target, "cursor": filter.cursor} {
				if text != "" {
					asked.Set(name, text)
				}
			}
			for name, ms := range map[string]int64{"from": from, "to": to} {
				if ms != 0 {
					asked.Set(name, strconv.FormatInt(ms, 10))
				}
			}
			if len(states) > 0 {
				asked["state"] = states
			}
			var page client.Page
			err := node.askLeader(cmd.Context(), func(ctx context.Context, leader *api.Client) (err error) {
				page, err = leader.List(ctx, asked)
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), page)
			}
			return printPage(cmd.OutOrStdout(), page)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.topic, "topic", "", "delay `topic` that they came by")
	flags.StringVar(&filter.prefix, "prefix", "", "what their ids begin with")
	flags.StringVar(&filter.target, "target", "", "target `topic`")
	flags.Int64Var(&from, "from", 0, "due then or later, in epoch `milliseconds`")
	flags.Int64Var(&to, "to", 0, "due before then, in epoch `milliseconds`")
	flags.StringSliceVar(&states, "state", nil, "waiting, parked, paused, claimed or expired; several with commas")
	flags.IntVar(&limit, "limit", 100, "messages of a page, 1000 at most")
	flags.StringVar(&filter.cursor, "cursor", "", "where a page before has ended; the filter must be the same")
	flags.BoolVar(&asJSON, "json", false, "print JSON, for programs")
	node.add(cmd)
	return cmd
}

func getCommand() *cobra.Command {
	var node nodeFlags
	var topic, cursor string
	cmd := &cobra.Command{
		Use:   "get --topic TOPIC ID",
		Short: "Print what is known of one message, as JSON",
		Long: "Ask the leader for the message that is pending under an id, and what became of those before it. A message\n" +
			"without an id of its own has the id TOPIC/PARTITION/OFFSET of its record. It is searched among what is\n" +
			"pending: an answer with next, and no message, says to ask again with that as --cursor.",
		Example: "  carillon get --topic orders.delay reminder-4711",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if topic == "" {
				return &usageError{errors.New("--topic is missing: name the delay topic that the id belongs to")}
			}
			if args[0] == "" {
				return &usageError{errors.New("the id is empty: give the deliver-id of the message")}
			}
			var known json.RawMessage
			err := node.askLeader(cmd.Context(), func(ctx context.Context, leader *api.Client) (err error) {
				known, err = leader.Message(ctx, topic, args[0], cursor)
				return err
			})
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), known)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "delay `topic` that the id belongs to (required)")
	cmd.Flags().StringVar(&cursor, "cursor", "", "where a search before has ended")
	node.add(cmd)
	return cmd
}

// askLeader asks the node, and the leader if that is another one.
func (n *nodeFlags) askLeader(ctx context.Context, ask func(context.Context, *api.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	caller, err := n.caller()
	if err != nil {
		return err
	}
	node := caller.Client(n.address)
	err = ask(ctx, node)
	refused := (*api.Error)(nil)
	if !errors.As(err, &refused) || refused.Problem != api.CodeNotLeader {
		return explainAPI(n.address, err)
	}
	status, statusErr := node.Status(ctx)
	leader := slices.IndexFunc(status.Members, func(m broker.MemberStatus) bool { return m.ID == status.Leader && m.ID != status.Node })
	if statusErr != nil || leader < 0 {
		return err
	}
	address := status.Members[leader].API
	return explainAPI(address, ask(ctx, caller.Client(address)))
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

func printPage(w io.Writer, page client.Page) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "due\ttopic\tid\tseq\ttarget\tstate")
	for _, m := range page.Messages {
		due := time.UnixMilli(m.Due).UTC().Format("2006-01-02T15:04:05.000Z")
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%s\n", due, m.Topic, m.ID, m.Seq, m.Target, m.State)
	}
	if page.Next != "" {
		fmt.Fprintf(out, "go on with --cursor %s\n", page.Next)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print messages: %w", err)
	}
	return nil
}
