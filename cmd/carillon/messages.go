package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

// A filterFlags says which messages are meant, and the nodes to ask for them.
type filterFlags struct {
	topic, prefix, target, from, to string
	states                          []string
	node                            nodeFlags
}

// add declares the filter and how nodes are reached.
func (f *filterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.topic, "topic", "", "delay `topic` that they came by")
	flags.StringVar(&f.prefix, "prefix", "", "what their ids begin with")
	flags.StringVar(&f.target, "target", "", "target `topic`")
	flags.StringVar(&f.from, "from", "", "due at this `time` or later: RFC 3339 with zone, epoch milliseconds, or a duration from now such as 10m")
	flags.StringVar(&f.to, "to", "", "due before this `time`, likewise")
	flags.StringSliceVar(&f.states, "state", nil, "waiting, parked, paused, claimed or expired; several with commas")
	f.node.add(cmd)
	complete(cmd, "topic", f.node.completeTopics)
	complete(cmd, "target", f.node.completeTargets)
	complete(cmd, "state", cobra.FixedCompletions([]string{"waiting", "parked", "paused", "claimed", "expired"}, cobra.ShellCompDirectiveNoFileComp))
}

// parameters returns the filter as the API takes it.
func (f *filterFlags) parameters(now time.Time) (url.Values, error) {
	asked := url.Values{}
	for name, text := range map[string]string{"topic": f.topic, "prefix": f.prefix, "target": f.target} {
		if text != "" {
			asked.Set(name, text)
		}
	}
	for name, text := range map[string]string{"from": f.from, "to": f.to} {
		if text == "" {
			continue
		}
		ms, err := parseMoment("--"+name, text, now)
		if err != nil {
			return nil, err
		}
		asked.Set(name, strconv.FormatInt(ms, 10))
	}
	if len(f.states) > 0 {
		asked["state"] = f.states
	}
	return asked, nil
}

// parseMoment reads the value of a flag that takes a time, or a duration from now, in epoch milliseconds.
func parseMoment(flag, text string, now time.Time) (int64, error) {
	if delay, err := config.ParseDuration(text); err == nil && text != "0" {
		return now.Add(delay).UnixMilli(), nil
	}
	// The target does not matter, and a time is one as in a record.
	headers := []client.Header{{Key: client.HeaderTo, Value: []byte("x")}, {Key: client.HeaderAt, Value: []byte(text)}}
	instruction, err := client.Parse(headers, now.UnixMilli())
	if err != nil {
		return 0, &usageError{&config.FieldError{Field: flag, Value: text,
			Remedy: "write a time with its zone such as 2030-01-02T15:04:05Z, epoch milliseconds, or a duration from now such as 10m"}}
	}
	return instruction.DueAt, nil
}

func listCommand() *cobra.Command {
	var filter filterFlags
	var cursor string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages that are pending, in order of delivery",
		Long: "Ask the leader for a page of what is pending. Where there may be more, the last line has the cursor\n" +
			"to go on with: a page can be short, or empty, and have others after it.",
		Example: "  carillon list --topic orders.delay --prefix reminder- --state parked\n" +
			"  carillon list --target orders --to 10m",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := filter.parameters(time.Now())
			if err != nil {
				return err
			}
			asked.Set("limit", strconv.Itoa(limit))
			if cursor != "" {
				asked.Set("cursor", cursor)
			}
			var page client.Page
			err = filter.node.askLeader(cmd.Context(), func(ctx context.Context, leader *api.Client) (err error) {
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
	filter.add(cmd)
	flags := cmd.Flags()
	flags.IntVar(&limit, "limit", 100, "messages of a page, 1000 at most")
	flags.StringVar(&cursor, "cursor", "", "where a page before has ended; the filter must be the same")
	flags.BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

// askLeader asks the leader of the nodes that the flags name.
func (n *nodeFlags) askLeader(ctx context.Context, question func(context.Context, *api.Client) error) error {
	to, err := n.reach()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	return to.askLeader(ctx, question)
}

func printPage(w io.Writer, page client.Page) error {
	out := table.New(w, "due", "topic", "id", "seq", "target", "state")
	for _, m := range page.Messages {
		out.Row(moment(m.Due), m.Topic, m.ID, m.Seq, m.Target, m.State)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if page.Next != "" {
		fmt.Fprintf(w, "go on with --cursor %s\n", page.Next)
	}
	return nil
}

func countCommand() *cobra.Command {
	var filter filterFlags
	var byTarget, asJSON bool
	cmd := &cobra.Command{
		Use:   "count",
		Short: "Count messages that are pending",
		Long: "Ask the leader how many messages are pending. Where there are a great many, the number is an estimate\n" +
			"with the bound that it keeps with a probability of 95 %.",
		Example: "  carillon count --topic orders.delay --to 1h\n" +
			"  carillon count --by-target",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := filter.parameters(time.Now())
			if err != nil {
				return err
			}
			if byTarget {
				asked.Set("by", "target")
			}
			var counted client.Histogram
			err = filter.node.askLeader(cmd.Context(), func(ctx context.Context, leader *api.Client) (err error) {
				counted, err = leader.Histogram(ctx, asked)
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), counted)
			}
			return printCount(cmd.OutOrStdout(), counted, byTarget)
		},
	}
	filter.add(cmd)
	cmd.Flags().BoolVar(&byTarget, "by-target", false, "count for each target apart")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func printCount(w io.Writer, h client.Histogram, byTarget bool) error {
	out := table.New(w)
	if byTarget {
		out.Row("target", "messages")
	}
	for _, b := range h.Buckets {
		cells := []any{about(b.Count, b.Within)}
		if byTarget {
			cells = []any{b.Target, cells[0]}
		}
		out.Row(cells...)
	}
	if len(h.Buckets) == 0 && !byTarget {
		out.Row(about(0, h.Unseen))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if h.LeftOut > 0 {
		fmt.Fprintf(w, "%d targets with fewer messages are left out\n", h.LeftOut)
	}
	if h.Untold != nil {
		fmt.Fprintf(w, "not told of %s from before feature level 3, which only their bodies tell\n", about(h.Untold.Count, h.Untold.Within))
	}
	return nil
}

// about says a number and by how much it may be off.
func about(count, within uint64) string {
	if within == 0 {
		return strconv.FormatUint(count, 10)
	}
	return fmt.Sprintf("about %d (within %d)", count, within)
}
