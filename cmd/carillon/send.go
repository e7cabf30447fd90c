package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/client"
)

// scheduleTimeout bounds how long Kafka may take to answer.
const scheduleTimeout = 15 * time.Second

// A sending is a record on its way to Kafka.
type sending struct {
	record   *kgo.Record
	settings config.Settings
	nodes    nodes // that may read it
}

// send produces the record as the flags say, and first warns of what the nodes would not do with it.
func (s sending) send(cmd *cobra.Command) (*kgo.Record, error) {
	settings, record := s.settings, s.record
	if err := settings.Config.Validate(); err != nil { // of kafka.*, all else is at its default
		return nil, err
	}
	options, err := reach.Config{Kafka: settings.Config.Kafka, ClientID: "carillon-" + cmd.Name(), Logger: slog.New(slog.DiscardHandler)}.Options()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), scheduleTimeout)
	defer cancel()
	if s.nodes.belongTo(settings.Config.Kafka.Brokers) {
		if warning := objection(ctx, s.nodes, record); warning != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "carillon: warning:", warning)
		}
	}
	placed, err := place(cmd.Flags(), record)
	if err != nil {
		return nil, err
	}
	sent, err := produce(ctx, record, append(options, placed...))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no broker of %s answers, start one or name it with --kafka.brokers: %w", strings.Join(settings.Config.Kafka.Brokers, ", "), err)
	}
	return sent, err
}

// addPartition adds the flag that place reads.
func addPartition(flags *pflag.FlagSet) {
	flags.Int32("partition", 0, "`number` of the delay topic's partition (default: by the key, or without one by the id)")
}

// place returns how the record comes into its partition, and whether its topic may be created for it: a
// cancel has nothing to end in a topic that was not there.
func place(flags *pflag.FlagSet, r *kgo.Record) (options []kgo.Opt, err error) {
	if !isCancel(r) {
		options = append(options, kgo.AllowAutoTopicCreation())
	}
	if !flags.Changed("partition") {
		return options, nil
	}
	if r.Partition, err = flags.GetInt32("partition"); err != nil {
		return nil, err
	}
	if r.Partition < 0 {
		return nil, &usageError{&config.FieldError{Field: "--partition", Value: fmt.Sprint(r.Partition), Remedy: "write the number of one of the delay topic's partitions, 0 is the first"}}
	}
	return append(options, kgo.RecordPartitioner(kgo.ManualPartitioner())), nil
}

func isCancel(r *kgo.Record) bool {
	return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == client.HeaderCancel })
}

// belongTo reports whether the nodes can be taken to read from these brokers: the default
// address is that of `carillon dev`, which says nothing of another Kafka.
func (n nodes) belongTo(brokers []string) bool {
	return n.named || slices.Equal(brokers, config.Default().Kafka.Brokers)
}

// objection returns why the node would leave the message where it is or
// dead-letter it, or nothing, also when no node answers, since to produce takes Kafka
// alone. An older node tells no routes, or only their patterns.
func objection(ctx context.Context, to nodes, r *kgo.Record) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var status broker.Status
	var address string
	err := to.ask(ctx, func(ctx context.Context, node *api.Client) (err error) {
		status, err = node.Status(ctx)
		address = node.Address()
		return err
	})
	if err != nil || len(status.Routes) == 0 {
		return ""
	}
	var c config.Config
	for _, from := range status.Routes {
		route := config.NewRoute(from)
		route.MaxDelay = time.Duration(status.MaxDelay[from]) * time.Millisecond
		c.Routes = append(c.Routes, route)
	}
	if name := aboveLevel(r, status.Level.InForce); name != "" {
		return fmt.Sprintf("the cluster of node %s at %s is at feature level %d and would dead-letter the message: %s is known from level %d on",
			status.Node, address, status.Level.InForce, name, idsLevel)
	}
	route, ok := c.Route(r.Topic)
	if !ok && isCancel(r) {
		return fmt.Sprintf("no route of node %s at %s reads topic %q, so no message waits by it and nothing is cancelled (routes[].from: %s): name the delay topic of the message with --topic, or the right node with --api",
			status.Node, address, r.Topic, strings.Join(status.Routes, ", "))
	}
	if !ok {
		return fmt.Sprintf("no route of node %s at %s reads topic %q, the message stays there until one does (routes[].from: %s): name another with --topic, or the right node with --api",
			status.Node, address, r.Topic, strings.Join(status.Routes, ", "))
	}
	if status.MaxDelay == nil || status.Targets == nil {
		return ""
	}
	c.Targets = config.Targets(*status.Targets)
	for _, topic := range status.DeadLetterTopics {
		c.Routes = append(c.Routes, config.Route{DeadLetter: topic}) // which reads nothing
	}
	now := r.Timestamp.UnixMilli()
	instruction, err := client.Parse(r.Headers, now)
	if err != nil {
		return "" // producing it says so
	}
	if instruction.Verb == client.VerbCancel {
		return "" // it goes nowhere
	}
	_, problem := c.Destination(route, r.Topic, instruction.To)
	if problem == nil {
		problem = route.RefuseDue(instruction.DueAt, now)
	}
	if problem != nil {
		return fmt.Sprintf("node %s at %s would dead-letter the message: %s", status.Node, address,
			strings.Replace(problem.Message, client.HeaderTo+":", "--to:", 1))
	}
	return ""
}

// idsLevel is the feature level from which ids can be cancelled, replaced and expire.
const idsLevel = 3

// aboveLevel returns a header of the record that a cluster at the level does not know, or nothing. A
// node that tells no level says nothing.
func aboveLevel(r *kgo.Record, level uint32) string {
	for _, h := range r.Headers {
		switch h.Key {
		case client.HeaderCancel, client.HeaderIf, client.HeaderExpiresAt, client.HeaderExpiresAfter:
			if 0 < level && level < idsLevel {
				return h.Key
			}
		}
	}
	return ""
}

// produce sends one stamped record.
func produce(ctx context.Context, r *kgo.Record, options []kgo.Opt) (*kgo.Record, error) {
	producer, err := client.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return producer.Schedule(ctx, r)
}
