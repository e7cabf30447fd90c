package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
)

// askTimeout bounds one question to a node.
const askTimeout = 5 * time.Second

func statusCommand() *cobra.Command {
	var flags nodeFlags
	var asJSON, onlyReady bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show leader, members, pending messages and problems of a cluster",
		Long: "Ask a node what it knows of itself and its cluster. What only the leader knows is asked of the\n" +
			"leader, if it can be reached.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
			defer cancel()
			caller, err := flags.caller()
			if err != nil {
				return err
			}
			node := caller.Client(flags.address)
			if onlyReady {
				return explainAPI(flags.address, node.Ready(ctx))
			}
			status, err := node.Status(ctx)
			if err != nil {
				return explainAPI(flags.address, err)
			}
			leader := askLeader(ctx, caller, status)
			if asJSON {
				status = withLeader(status, leader)
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(status)
			}
			return printStatus(cmd.OutOrStdout(), status, leader, time.Now())
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	cmd.Flags().BoolVar(&onlyReady, "ready", false, "print nothing but why the node is not ready; exit code 0 when it is, else 1")
	return cmd
}

// explainAPI adds a remedy to the error of a node that gave no answer, or one that this
// program does not understand.
func explainAPI(address string, err error) error {
	var answer *api.Error
	var foreign *json.UnmarshalTypeError
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	switch {
	case err == nil || errors.As(err, &answer):
		return err
	case errors.As(err, &foreign):
		return fmt.Errorf("what answers at %s is no node, or one of another version of carillon, use that: %w", address, err)
	case errors.As(err, &untrusted):
		return fmt.Errorf("the certificate of what answers at %s is not trusted, name who signed it with --ca-file, and the node by a host that the certificate is issued to: %w", address, err)
	case errors.As(err, &plain):
		return fmt.Errorf("what answers at %s speaks no TLS, ask it without --ca-file and https: %w", address, err)
	}
	return fmt.Errorf("no node answers at %s, start one or name its address with --api: %w", address, err)
}

// askLeader returns the leader's own status, or that of the node when it leads or
// the leader cannot be reached.
func askLeader(ctx context.Context, caller api.Caller, status broker.Status) broker.Status {
	leader := slices.IndexFunc(status.Members, func(m broker.MemberStatus) bool { return m.ID == status.Leader })
	if leader < 0 || status.Leader == status.Node {
		return status
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if s, err := caller.Client(status.Members[leader].API).Status(ctx); err == nil {
		return s
	}
	return status
}

// withLeader adds to a node's status what only the leader knows.
func withLeader(node, leader broker.Status) broker.Status {
	if leader.Node == node.Node {
		return node
	}
	node.Lag, node.Parked = leader.Lag, leader.Parked
	node.Problems = slices.Clone(node.Problems)
	for _, problem := range leader.Problems {
		node.Problems = append(node.Problems, leader.Node+": "+problem)
	}
	return node
}

// printStatus writes for people: what the node says of itself, what the leader says
// of the cluster.
func printStatus(w io.Writer, node, leader broker.Status, now time.Time) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("node", "%s, %s", node.Node, node.State)
	row("leader", "%s, term %d", orNone(node.Leader), node.Term)
	if node.NotReady != "" {
		row("not ready", "%s", node.NotReady)
	}
	if level := node.Level; level.InForce == 0 && level.Understood > 0 {
		row("level", "unknown: this node has applied nothing of a cluster's log yet")
	} else if level.InForce < level.Understood {
		row("level", "%d; this node understands %d: run `carillon cluster raise` when all do", level.InForce, level.Understood)
	} else if level.InForce > 0 {
		row("level", "%d", level.InForce)
	}
	row("pending", "%d", leader.Pending)
	if leader.OldestDue != 0 {
		due := time.UnixMilli(leader.OldestDue)
		row("oldest due", "%s, %s", due.UTC().Format("2006-01-02T15:04:05.000Z"), distance(due.Sub(now)))
	}
	unknown := "known to the leader only, whose status cannot be had here"
	switch leader.Leader {
	case "":
		unknown = "unknown without a leader"
	case leader.Node:
		unknown = "not known yet"
	}
	if leader.Lag != nil {
		row("lag", "%d records to read", *leader.Lag)
	} else {
		row("lag", "%s", unknown)
	}
	if leader.Parked != nil {
		row("parked", "%s", orNone(someOf(leader.Parked)))
	} else {
		row("parked", "%s", unknown)
	}
	for i, p := range leader.Paused {
		if i == mostShown {
			row("paused", "%d more, /v1/status has them all", len(leader.Paused)-i)
			break
		}
		row("paused", "%s %s by %s, %s: %s", p.Kind, p.Name, p.Who, distance(time.UnixMilli(p.Since).Sub(now)), p.Why)
	}
	for _, problem := range withLeader(node, leader).Problems {
		row("problem", "%s", problem)
	}
	fmt.Fprintf(out, "\nmember\tapi\tvotes\tlast heard by the leader\n")
	for _, m := range leader.Members {
		votes, heard := "unknown", "never"
		if m.Voter != nil {
			votes = strconv.FormatBool(*m.Voter)
		}
		switch {
		case m.ID == leader.Leader:
			heard = "leads"
		case m.LastContact != 0:
			heard = distance(time.UnixMilli(m.LastContact).Sub(now))
		case leader.Node != leader.Leader:
			heard = "unknown"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", m.ID, m.API, votes, heard)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print status: %w", err)
	}
	return nil
}

// mostShown is how many names of a list are printed for people.
const mostShown = 10

// someOf names the first ones of a long list, and says how many there are.
func someOf(names []string) string {
	if len(names) <= mostShown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%d: %s and %d more", len(names), strings.Join(names[:mostShown], ", "), len(names)-mostShown)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// distance says how far away a moment is, in a precision that people read.
func distance(d time.Duration) string {
	precision := time.Millisecond
	if d.Abs() >= time.Minute {
		precision = time.Second
	}
	if d < 0 {
		return (-d).Round(precision).String() + " ago"
	}
	return "in " + d.Round(precision).String()
}
