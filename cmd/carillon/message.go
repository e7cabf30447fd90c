package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

// A messageFlags is how the command line names one message, and the nodes to ask for it.
type messageFlags struct {
	topic string
	node  nodeFlags
}

// add declares --topic and how nodes are reached, and has both completed.
func (m *messageFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.topic, "topic", "", "delay `topic` that the id belongs to (required)")
	m.node.add(cmd)
	complete(cmd, "topic", m.node.completeTopics)
	cmd.ValidArgsFunction = m.completeIDs
}

// check refuses a message that is not named.
func (m *messageFlags) check(id string) error {
	if m.topic == "" {
		return &usageError{errors.New("--topic is missing: name the delay topic that the id belongs to")}
	}
	if id == "" {
		return &usageError{errors.New("the id is empty: give the deliver-id of the message")}
	}
	if err := checkText("--topic", m.topic); err != nil {
		return err
	}
	return checkText("the id", id)
}

func explainCommand() *cobra.Command {
	var of messageFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain --topic TOPIC ID",
		Short: "Tell what is known of the messages of an id",
		Long: "Ask a node what it knows of an id (feature level 3): the message that waits under it, and what became\n" +
			"of those before it, for as long as that is kept (outcomes.keep). A follower can be a moment behind.\n" +
			"Exit code 3: nothing is known of the id.",
		Example: "  carillon explain --topic orders.delay reminder-4711",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := of.check(args[0]); err != nil {
				return err
			}
			var e client.Explanation
			err := of.node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				e, err = cluster.Explain(ctx, of.topic, args[0])
				return err
			})
			if err != nil {
				return err
			}
			return printExplanation(cmd.OutOrStdout(), e, asJSON)
		},
	}
	of.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

// printExplanation writes JSON for programs, or a line for each thing that is known for people.
func printExplanation(w io.Writer, e client.Explanation, asJSON bool) error {
	known := e.Waiting != nil || len(e.Events) > 0
	if asJSON {
		if err := printJSON(w, e); err != nil || known {
			return err
		}
	}
	if !known {
		return &absentError{errors.New(strings.Join(e.Words, "\n"))}
	}
	for _, line := range e.Words {
		if _, err := fmt.Fprintln(w, table.Text(line)); err != nil {
			return fmt.Errorf("print explanation: %w", err)
		}
	}
	return nil
}

func getCommand() *cobra.Command {
	var of messageFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get --topic TOPIC ID",
		Short: "Show one message that is pending, and what became of those before it",
		Long: "Ask the leader for the message that is pending under an id, and what became of those before it. A message\n" +
			"without an id of its own has the id TOPIC/PARTITION/OFFSET of its record; it is searched among all that\n" +
			"is pending, which can take a while. Key, value and headers are shown to those who may read payloads.\n" +
			"Exit code 3: nothing is known of the id.",
		Example: "  carillon get --topic orders.delay reminder-4711",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := of.check(args[0]); err != nil {
				return err
			}
			var life client.Life
			err := of.node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				life, err = cluster.Get(ctx, of.topic, args[0])
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), life)
			}
			return printLife(cmd.OutOrStdout(), life, time.Now())
		},
	}
	of.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

// printLife prints for people.
func printLife(w io.Writer, life client.Life, now time.Time) error {
	out := table.New(w)
	if m := life.Message; m != nil {
		out.Row("topic", m.Topic)
		out.Row("id", m.ID)
		out.Row("state", m.State)
		out.Row("due", momentAndDistance(m.Due, now))
		if m.Expires != 0 {
			out.Row("expires", momentAndDistance(m.Expires, now))
		}
		out.Row("target", m.Target)
		out.Row("seq", m.Seq)
		out.Row("from", m.From)
		out.Row("size", fmt.Sprintf("%d bytes", m.Size))
		if m.Unreadable {
			out.Row("unreadable", "what is stored is damaged, or of a newer version")
		}
		rowsOfPayload(out, m.Payload)
	} else {
		out.Row("no message is pending under this id")
	}
	if len(life.Outcomes) > 0 {
		out.Gap()
		out.Row("ended", "how", "seq", "due", "target")
		for _, o := range life.Outcomes {
			out.Row(moment(o.At), o.Kind, seqOrNone(o.Seq), dueOrNone(o.Due), placeOf(o))
		}
	}
	return out.Flush()
}

func rowsOfPayload(out *table.Table, p *client.Payload) {
	if p == nil {
		return
	}
	out.Row("key", bytesForPeople(p.Key))
	for _, h := range p.Headers {
		out.Row("header", h.Key+"="+bytesForPeople(h.Value))
	}
	out.Row("value", bytesForPeople(p.Value))
}

// mostOfValue is how many bytes of a value are printed for people.
const mostOfValue = 200

// bytesForPeople says what bytes are, the whole of which JSON has.
func bytesForPeople(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case !utf8.Valid(b):
		return fmt.Sprintf("%d bytes that are no text, --json has them", len(b))
	case len(b) > mostOfValue:
		return fmt.Sprintf("%s... (%d bytes, --json has them)", strings.ToValidUTF8(string(b[:mostOfValue]), ""), len(b))
	}
	return string(b)
}

func seqOrNone(seq uint64) any {
	if seq == 0 {
		return "none"
	}
	return seq
}

// dueOrNone is the time at which it was due: a cancel that was refused never was.
func dueOrNone(due int64) string {
	if due == 0 {
		return "none"
	}
	return moment(due)
}

// placeOf says where the message went, or would have gone.
func placeOf(o client.Outcome) string {
	place := o.Target
	if o.Kind == client.OutcomeRefused && o.Partition != nil {
		place = "record" // of the delay topic that was asked about
	}
	if o.Partition != nil {
		place += fmt.Sprintf("/%d", *o.Partition)
	}
	if o.Offset != nil {
		place += fmt.Sprintf("/%d", *o.Offset)
	}
	return place
}
