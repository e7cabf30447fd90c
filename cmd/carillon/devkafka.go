package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/config"
)

// devPartitions is how many partitions a topic of the embedded Kafka has.
const devPartitions = 3

// devKafkaCommand is a process of its own since one malformed request ends it.
func devKafkaCommand() *cobra.Command {
	var dir string
	var port int
	cmd := &cobra.Command{
		Use:    "dev-kafka",
		Short:  "Run the Kafka of `carillon dev` until standard input ends",
		Hidden: true,
		Args:   arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := withParent(cmd.Context(), cmd.InOrStdin())
			defer stop()
			return serveKafka(ctx, port, dir, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "folder of its data")
	cmd.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1")
	return cmd
}

// devNodeCommand is serve, for a child process of dev.
func devNodeCommand() *cobra.Command {
	cmd := serveCommand()
	cmd.Use, cmd.Short, cmd.Hidden = "dev-node", "Run a node of `carillon dev` until standard input ends", true
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

// serveKafka runs kfake on loopback until ctx ends, then writes its state down.
func serveKafka(ctx context.Context, port int, dir string, stderr io.Writer) error {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	kafka, err := kfake.NewCluster(
		kfake.Ports(port),
		kfake.DataDir(dir),
		kfake.DefaultNumPartitions(devPartitions),
		kfake.AllowAutoTopicCreation(),
		kfake.WithLogger(kfake.BasicLogger(stderr, kfake.LogLevelWarn)),
	)
	if err != nil {
		return &config.FieldError{Field: "--kafka-port", Value: address, Remedy: fmt.Sprintf("the embedded Kafka does not start, free the port or choose another: %v", err)}
	}
	defer kafka.Close()
	// On demand means for whoever asks, also for clients that do not ask for it.
	kafka.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		request.(*kmsg.MetadataRequest).AllowAutoTopicCreation = true
		return nil, nil, false
	})
	<-ctx.Done()
	return nil
}
