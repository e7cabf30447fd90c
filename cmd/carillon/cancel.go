package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

func cancelCommand() *cobra.Command {
	keys := keysOf("kafka.")
	var topic, key, keyBase64 string
	var node nodeFlags
	cmd := &cobra.Command{
		Use:   "cancel --topic TOPIC [--key KEY] ID",
		Short: "Ask for a message that waits never to be delivered",
		Long: "Produce a record to the delay topic that cancels the message which waits there under the id\n" +
			"(feature level 3). Whether it still could be cancelled shows when Carillon reads the record:\n" +
			"carillon explain tells.\n\n" +
			"Give the key of the message, if it has one, so that both records are in one partition, and this one\n" +
			"comes after the other. Without a key the partition follows from the id, as with carillon schedule and\n" +
			"client.Producer; where another client has produced the message without a key, name its partition\n" +
			"with --partition. It takes Kafka alone, as carillon schedule does, and warns likewise.",
		Example: "  carillon cancel --topic orders.delay --key customer-7 reminder-4711",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if topic == "" {
				return &usageError{errors.New("--topic is missing: name the delay topic of the message")}
			}
			if err := checkTopic("--topic", topic); err != nil {
				return err
			}
			record := &kgo.Record{Topic: topic, Timestamp: time.Now()}
			var err error
			if record.Key, err = keyOf(cmd.Flags(), key, keyBase64); err != nil {
				return err
			}
			if err := client.Stamp(record, client.Cancel(args[0])); err != nil {
				return &usageError{err}
			}
			sent, err := send(cmd, record, node, keys)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "sent as %s/%d/%d; what came of it tells: carillon explain --topic %s %q\n",
				sent.Topic, sent.Partition, sent.Offset, topic, args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "delay `topic` of the message (required)")
	cmd.Flags().StringVar(&key, "key", "", "key of the message (default: none)")
	cmd.Flags().StringVar(&keyBase64, "key-base64", "", "key of the message as `base64`, when it is no text")
	addPartition(cmd.Flags())
	node.add(cmd)
	addConfigFlags(cmd.Flags(), keys)
	return cmd
}
