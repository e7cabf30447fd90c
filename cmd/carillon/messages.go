package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

// A filterFlags says which messages are meant, and the nodes to ask for them.
type filterFlags struct {
	filter    client.Filter
	from, end string // due times
	node      nodeFlags
	flags     *pflag.FlagSet
}

// add declares the filter and how nodes are reached.
func (f *filterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.flags = flags
	flags.StringVar(&f.filter.Topic, "topic", "", "delay `topic` that they came by")
	flags.StringVar(&f.filter.Prefix, "prefix", "", "what their ids begin with")
	flags.StringVar(&f.filter.Target, "target", "", "target `topic`")
	flags.StringVar(&f.from, "due-from", "", "due at this `time` or later: RFC 3339 with zone, epoch milliseconds, or a duration from now such as 10m")
	flags.StringVar(&f.end, "due-before", "", "due before this `time`, likewise")
	flags.StringSliceVar(&f.filter.States, "state", nil, "waiting, parked, paused, claimed, aside or expired; several with commas")
	f.node.add(cmd)
	complete(cmd, "topic", f.node.completeTopics)
	complete(cmd, "target", f.node.completeTargets)
	complete(cmd, "state", cobra.FixedCompletions(states(), cobra.ShellCompDirectiveNoFileComp))
}

// states are those that --state takes.
func states() []string {
	return []string{client.StateWaiting, client.StateParked, client.StatePaused, client.StateClaimed, client.StateAside, client.StateExpired}
}

// read returns the filter.
func (f *filterFlags) read(now time.Time) (filter client.Filter, err error) {
	if err := refuseEmpty(f.flags, "topic", "prefix", "target", "due-from", "due-before", "state"); err != nil {
		return filter, err
	}
	filter = f.filter
	for _, state := range filter.States {
		if !slices.Contains(states(), state) {
			return filter, &usageError{&config.FieldError{Field: "--state", Value: state, Remedy: "use " + strings.Join(states(), ", ")}}
		}
	}
	for flag, text := range map[string]string{"topic": filter.Topic, "prefix": filter.Prefix, "target": filter.Target} {
		if err := checkText("--"+flag, text); err != nil {
			return filter, err
		}
	}
	if filter.From, err = parseMoment("--due-from", f.from, now, ahead); err != nil {
		return filter, err
	}
	if filter.To, err = parseMoment("--due-before", f.end, now, ahead); err != nil {
		return filter, err
	}
	return filter, checkSpan(filter, "--due-from", "--due-before", f.end)
}

// checkSpan refuses an end, if one is given, that is not after the beginning. 1970 is none: as a number it would
// be no end at all.
func checkSpan(filter client.Filter, beginning, end, given string) error {
	if given != "" && filter.To <= filter.From {
		return &usageError{&config.FieldError{Field: end, Value: given, Remedy: "nothing is between " + beginning + " and it; name a later time"}}
	}
	return nil
}

// checkLimit refuses a number that would be taken for all.
func checkLimit(limit int) error {
	if limit < 0 {
		return &usageError{&config.FieldError{Field: "--limit", Value: strconv.Itoa(limit), Remedy: "use 1 or more, or 0 for all"}}
	}
	return nil
}

// refuseEmpty refuses a flag that is given with nothing in it, as by a script whose variable is not set: without
// that condition the filter would mean everything else that there is.
func refuseEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		given := flags.Lookup(name)
		list, isList := given.Value.(pflag.SliceValue)
		if given.Changed && (given.Value.String() == "" || isList && len(list.GetSlice()) == 0) {
			return &usageError{&config.FieldError{Field: "--" + name, Remedy: "give it a value, or leave it out"}}
		}
	}
	return nil
}

// checkText refuses what is no text: nothing has such a name, and JSON would make another of it.
func checkText(field, text string) error {
	if !utf8.ValidString(text) {
		return &usageError{&config.FieldError{Field: field, Value: text, Remedy: "it is not valid UTF-8, and names nothing; write it in UTF-8"}}
	}
	return nil
}

// Where a duration points to that stands for a time.
const (
	ahead = 1
	back  = -1
)

// parseMoment reads the value of a flag that takes a time, or a duration from now in that direction: epoch
// milliseconds, 0 for no value.
func parseMoment(flag, text string, now time.Time, direction time.Duration) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if d, err := config.ParseDuration(text); err == nil && text != "0" {
		return now.Add(direction * d).UnixMilli(), nil
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
	var flags filterFlags
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages that are pending, in order of delivery",
		Long: "List what is pending in order of delivery, as the leader has it. The JSON for programs is a message a\n" +
			"line, however many there are.",
		Example: "  carillon list --topic orders.delay --prefix reminder- --state parked\n" +
			"  carillon list --target orders --due-before 10m\n" +
			"  carillon list --limit 0 --json > pending.ndjson",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.read(time.Now())
			if err != nil {
				return err
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			return flags.node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) error {
				if asJSON {
					return printAll(cmd.OutOrStdout(), cluster.Messages(ctx, filter), limit)
				}
				return printMessages(cmd.OutOrStdout(), cluster.Messages(ctx, filter), limit)
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", usualLimit, "messages at most; 0: all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, a message a line, for programs")
	return cmd
}

const (
	// usualLimit is how many rows fit what people read.
	usualLimit = 100
	// rowsAtOnce is how many rows of a long table share the widths of columns.
	rowsAtOnce = 1000
)

// printAll prints each as a line of JSON, so many at most; 0: all.
func printAll[T any](w io.Writer, all iter.Seq2[T, error], limit int) error {
	buffered := bufio.NewWriter(w)
	out := json.NewEncoder(buffered)
	out.SetEscapeHTML(false)
	printed := 0
	for one, err := range all {
		if err != nil {
			return errors.Join(buffered.Flush(), err)
		}
		if err := out.Encode(one); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if printed++; printed == limit {
			break
		}
	}
	return buffered.Flush()
}

func printMessages(w io.Writer, all iter.Seq2[client.Message, error], limit int) error {
	return printRows(w, all, limit, []any{"due", "topic", "id", "seq", "target", "state"}, func(m client.Message) []any {
		return []any{moment(m.Due), m.Topic, m.ID, m.Seq, m.Target, m.State}
	})
}

// printRows prints a row for each, so many at most, and says whether there are more; 0: all.
func printRows[T any](w io.Writer, all iter.Seq2[T, error], limit int, head []any, row func(T) []any) error {
	out := table.New(w, head...)
	printed := 0
	for one, err := range all {
		switch {
		case err != nil && printed == 0:
			return err
		case err != nil:
			return errors.Join(out.Flush(), err)
		}
		if limit > 0 && printed == limit {
			if err := out.Flush(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(w, "and more: say more of what is meant, or --limit 0 for all\n")
			return err
		}
		out.Row(row(one)...)
		if printed++; printed%rowsAtOnce == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

func countCommand() *cobra.Command {
	var flags filterFlags
	var byTarget, asJSON bool
	cmd := &cobra.Command{
		Use:   "count",
		Short: "Count messages that are pending",
		Long: "Ask the leader how many messages are pending. Where there are a great many, or many have come and\n" +
			"gone, the number is an estimate with the bound that it keeps with a probability of 95 %.",
		Example: "  carillon count --topic orders.delay --due-before 1h\n" +
			"  carillon count --by-target",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.read(time.Now())
			if err != nil {
				return err
			}
			var counted client.Count
			var byTargets client.Histogram
			err = flags.node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				if byTarget {
					byTargets, err = cluster.Histogram(ctx, filter, nil, true)
					return err
				}
				counted, err = cluster.Count(ctx, filter)
				return err
			})
			switch out := cmd.OutOrStdout(); {
			case err != nil:
				return err
			case byTarget && asJSON:
				return printJSON(out, byTargets)
			case byTarget:
				return printByTarget(out, byTargets)
			case asJSON:
				return printJSON(out, counted)
			default:
				_, err := fmt.Fprintln(out, about(counted.Count, counted.Within))
				return err
			}
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&byTarget, "by-target", false, "count for each target apart")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func printByTarget(w io.Writer, h client.Histogram) error {
	out := table.New(w, "target", "messages")
	for _, b := range h.Buckets {
		out.Row(b.Target, about(b.Count, b.Within))
	}
	if h.LeftOut > 0 {
		out.Row(fmt.Sprintf("%d targets with fewer messages", h.LeftOut), "not told")
	}
	if h.Untold != nil {
		out.Row("not known, from before feature level 3", about(h.Untold.Count, h.Untold.Within))
	}
	return out.Flush()
}

// about says a number and by how much it may be off.
func about(count, within uint64) string {
	if within == 0 {
		return strconv.FormatUint(count, 10)
	}
	return fmt.Sprintf("about %d (within %d)", count, within)
}
