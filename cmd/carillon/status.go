package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

func statusCommand() *cobra.Command {
	var flags nodeFlags
	var asJSON, onlyLive, onlyReady bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show leader, members, pending messages and problems of a cluster",
		Long: "Ask a node what it knows of itself and its cluster. What only the leader knows is asked of the\n" +
			"leader, if it can be reached.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
			defer cancel()
			to, err := flags.reach()
			if err != nil {
				return err
			}
			if onlyLive {
				return to.ask(ctx, func(ctx context.Context, node *api.Client) error {
					if err := node.Live(ctx); !errors.Is(err, api.ErrWantsTLS) {
						return err
					}
					return nil // it has answered: the image's check knows nothing of TLS, and a node that fails it may be killed
				})
			}
			if onlyReady {
				return to.ask(ctx, func(ctx context.Context, node *api.Client) error { return node.Ready(ctx) })
			}
			status, leader, err := to.status(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), withLeader(status, leader))
			}
			return printStatus(cmd.OutOrStdout(), status, leader, time.Now())
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	cmd.Flags().BoolVar(&onlyLive, "live", false, "print nothing but why the node does not answer; exit code 0 when it does, else 1. Where a node that fails this is killed, ask no more: it may be not ready for as long as Kafka is away")
	cmd.Flags().BoolVar(&onlyReady, "ready", false, "print nothing but why the node is not ready; exit code 0 when it is, else 1")
	return cmd
}

// status returns what one of the nodes knows, and what the leader does: the same when the node leads or the
// leader cannot be reached.
func (n nodes) status(ctx context.Context) (node, leader broker.Status, err error) {
	err = n.ask(ctx, func(ctx context.Context, asked *api.Client) (err error) {
		node, err = asked.Status(ctx)
		return err
	})
	at := slices.IndexFunc(node.Members, func(m broker.MemberStatus) bool { return m.ID == node.Leader })
	if err != nil || at < 0 || node.Leader == node.Node {
		return node, node, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if leader, err := n.client(node.Members[at].API).Status(ctx); err == nil {
		return node, leader, nil
	}
	return node, node, nil
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
	out := table.New(w)
	row := func(name, format string, args ...any) { out.Row(name, fmt.Sprintf(format, args...)) }
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
		row("oldest due", "%s", momentAndDistance(leader.OldestDue, now))
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
	out.Gap()
	out.Row("member", "api", "votes", "last heard by the leader")
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
		out.Row(m.ID, m.API, votes, heard)
	}
	return out.Flush()
}
