package main

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/cmd/carillon/internal/dev"
)

func devCommand() *cobra.Command {
	var d dev.Cluster
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster and a Kafka for development, with nothing installed",
		Long: "Run a cluster of one or three nodes and an embedded Kafka on loopback until Ctrl-C, and show one\n" +
			"message being delivered. The data is kept, and found again at the next start. The embedded Kafka\n" +
			"(kfake) is for development: it has one broker and no security, and does not survive its own kill -9.\n\n" +
			"Of three nodes any may be killed, to see the others go on: it is started again after ten seconds.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.Nodes != 1 && d.Nodes != 3 {
				return &usageError{fmt.Errorf("--nodes is %d: use 1 or 3", d.Nodes)}
			}
			if err := d.CheckPorts(); err != nil {
				return &usageError{err}
			}
			d.Out = cmd.OutOrStdout()
			return d.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&d.Dir, "data-dir", "./carillon-dev", "folder of all data and logs; delete it to start anew")
	cmd.Flags().IntVar(&d.Nodes, "nodes", 1, "size of the cluster, 1 or 3; the data folder keeps to it")
	cmd.Flags().IntVar(&d.KafkaPort, "kafka-port", 9092, "port of the embedded Kafka")
	cmd.Flags().IntVar(&d.APIPort, "api-port", 7401, "port of the first node's API; the others follow")
	cmd.Flags().IntVar(&d.RaftPort, "raft-port", 7301, "port of the first node's Raft; the others follow")
	return cmd
}

// devKafkaCommand is a process of its own since one malformed request ends it.
func devKafkaCommand() *cobra.Command {
	var dir string
	var port int
	cmd := &cobra.Command{
		Use:    dev.KafkaVerb,
		Short:  "Run the Kafka of `carillon dev` until standard input ends",
		Hidden: true,
		Args:   arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := withParent(cmd.Context(), cmd.InOrStdin())
			defer stop()
			return dev.ServeKafka(ctx, port, dir, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "folder of its data")
	cmd.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1")
	return cmd
}

// devNodeCommand is serve, for a child process of dev.
func devNodeCommand() *cobra.Command {
	cmd := serveCommand()
	cmd.Use, cmd.Short, cmd.Hidden = dev.NodeVerb, "Run a node of `carillon dev` until standard input ends", true
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := withParent(cmd.Context(), cmd.InOrStdin())
		defer stop()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
	return cmd
}

// withParent ends the context when stdin does: the parent holds its other end, so
// that a child never outlives it, however it died. The caller must call the
// function returned; the reader of stdin ends with the process.
func withParent(ctx context.Context, stdin io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, bufio.NewReader(stdin)) // whatever ends it
	}()
	return ctx, cancel
}
