package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

func cancelCommand() *cobra.Command {
	keys := keysOf("kafka.")
	var o orderFlags
	var key, keyBase64 string
	cmd := &cobra.Command{
		Use:   "cancel --topic TOPIC ID",
		Short: "Cancel a message that waits: it is never delivered",
		Long: "Cancel the message that waits under an id (feature level 3): it is never delivered. What was cancelled\n" +
			"before is no failure. Exit code 3: nothing is known of the id, or it is too late.\n\n" +
			eitherWay + " A record is only sent:\n" +
			"carillon explain tells whether it still came in time. It needs the key of the message, if that has one,\n" +
			"so that both are in one partition and it comes after the message. Without a key the partition follows\n" +
			"from the id, as with carillon schedule and client.Producer; where another client has produced the\n" +
			"message without a key, name its partition with --partition. carillon schedule warns likewise.",
		Example: "  carillon cancel --topic orders.delay reminder-4711 --api n1:7401\n" +
			"  carillon cancel --topic orders.delay --key customer-7 reminder-4711 --kafka.brokers kafka:9092",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			record, err := o.cancelRecord(cmd, args[0], key, keyBase64)
			if err != nil {
				return err
			}
			settings, err := load(cmd.Flags(), keys)
			if err != nil {
				return err
			}
			to, err := o.node.reach()
			if err != nil {
				return err
			}
			if to.throughAPI(settings, keys) {
				return o.order(cmd, func(ctx context.Context, cluster *client.Admin) (client.Answer, error) {
					return cluster.Cancel(ctx, o.name(args[0]), o.reason)
				})
			}
			return o.sendCancel(cmd, sending{record, settings, to}, args[0])
		},
	}
	o.add(cmd)
	cmd.Flags().StringVar(&key, "key", "", "key of the message, for Kafka (default: none)")
	cmd.Flags().StringVar(&keyBase64, "key-base64", "", "key of the message as `base64`, when it is no text")
	addPartition(cmd.Flags())
	addConfigFlags(cmd.Flags(), keys)
	return cmd
}

// cancelRecord returns the record that cancels the message, and refuses what no cluster would take.
func (o *orderFlags) cancelRecord(cmd *cobra.Command, id, key, keyBase64 string) (*kgo.Record, error) {
	if o.topic == "" {
		return nil, &usageError{errors.New("--topic is missing: name the delay topic of the message")}
	}
	if err := checkTopic("--topic", o.topic); err != nil {
		return nil, err
	}
	record := &kgo.Record{Topic: o.topic, Timestamp: time.Now()}
	var err error
	if record.Key, err = keyOf(cmd.Flags(), key, keyBase64); err != nil {
		return nil, err
	}
	if err := client.Stamp(record, client.Cancel(id)); err != nil {
		return nil, &usageError{err}
	}
	return record, nil
}

// sendCancel produces the record.
func (o *orderFlags) sendCancel(cmd *cobra.Command, s sending, id string) error {
	if o.reason != "" || o.seq != 0 || o.asJSON {
		return &usageError{errors.New("--reason, --seq and --json are for the API: say with --api or a context where nodes are, and name no kafka.*")}
	}
	sent, err := s.send(cmd)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "sent as %s/%d/%d; what came of it tells: carillon explain --topic %s %q\n",
		sent.Topic, sent.Partition, sent.Offset, o.topic, id)
	return err
}
