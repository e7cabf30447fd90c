package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
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

// A schedule is one message as the command line describes it.
type schedule struct {
	to, topic, in, at, key, keyBase64, id, expiresIn string
	replace, ifAbsent                                bool
	headers                                          []string
}

func scheduleCommand() *cobra.Command {
	keys := keysOf("kafka.")
	var s schedule
	var node nodeFlags
	cmd := &cobra.Command{
		Use:   "schedule --to TOPIC (--in DURATION | --at TIME) [VALUE | -]",
		Short: "Produce one message to a delay topic",
		Long: "Produce one message to a delay topic, by default the target's name with .delay behind it. The value\n" +
			"is an argument, or standard input with -; without one the message has a null value.\n\n" +
			"It takes Kafka alone, no node. But if one answers at --api that would not read this topic, or would\n" +
			"dead-letter the message, a warning says so; the message is produced nevertheless. With other brokers\n" +
			"than the default ones no node is asked unless --api is given.",
		Example: "  carillon schedule --to orders --in 5s 'ship it'\n" +
			"  carillon schedule --to orders --at 2030-01-02T15:04:05Z --key k1 --header source=cli - < order.json",
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			record, err := s.record(cmd.Flags(), args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			sent, err := send(cmd, record, node, keys)
			if err != nil {
				return err
			}
			due, err := client.Parse(sent.Headers, sent.Timestamp.UnixMilli())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s/%d/%d, for %s at %s\n", sent.Topic, sent.Partition, sent.Offset, s.to,
				time.UnixMilli(due.DueAt).UTC().Format("2006-01-02T15:04:05.000Z"))
			return nil
		},
	}
	cmd.Flags().AddFlagSet(s.flags())
	addPartition(cmd.Flags())
	node.add(cmd)
	addConfigFlags(cmd.Flags(), keys)
	return cmd
}

// flags returns those that describe the message; reading them fills s.
func (s *schedule) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("schedule", pflag.ContinueOnError)
	flags.StringVar(&s.to, "to", "", "target `topic` (required)")
	flags.StringVar(&s.topic, "topic", "", "delay `topic` to produce to (default: the target's name with .delay behind it)")
	flags.StringVar(&s.in, "in", "", "delay from now as a `duration`, such as 5s, 1h30m or 7d")
	flags.StringVar(&s.at, "at", "", "`time` of delivery, RFC 3339 with zone or epoch milliseconds")
	flags.StringVar(&s.key, "key", "", "key of the message (default: none)")
	flags.StringVar(&s.keyBase64, "key-base64", "", "key of the message as `base64`, when it is no text")
	flags.StringVar(&s.id, "id", "", "id of the message, 1 to 256 bytes; comes back as the header delivered-id")
	flags.BoolVar(&s.replace, "replace", false, "only take the place of the message that waits under --id (feature level 3)")
	flags.BoolVar(&s.ifAbsent, "if-absent", false, "only if no message waits under --id (feature level 3)")
	flags.StringVar(&s.expiresIn, "expires-in", "", "`duration` after the time of delivery from which it is not delivered any more (feature level 3)")
	flags.StringArrayVar(&s.headers, "header", nil, "header `NAME=VALUE` of the message; can be repeated")
	return flags
}

// send produces the record as the flags say, and first warns of what the node at --api would not do
// with it.
func send(cmd *cobra.Command, record *kgo.Record, node nodeFlags, keys []config.Key) (*kgo.Record, error) {
	settings, err := load(cmd.Flags(), keys)
	if err != nil {
		return nil, err
	}
	if err := settings.Config.Validate(); err != nil { // of kafka.*, all else is at its default
		return nil, err
	}
	options, err := reach.Config{Kafka: settings.Config.Kafka, ClientID: "carillon-" + cmd.Name(), Logger: slog.New(slog.DiscardHandler)}.Options()
	if err != nil {
		return nil, err
	}
	to, err := node.reach()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), scheduleTimeout)
	defer cancel()
	if to.belongTo(settings.Config.Kafka.Brokers) {
		if warning := objection(ctx, to, record); warning != "" {
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

// record returns what is to be produced; every error is a mistake in the command line.
func (s *schedule) record(flags *pflag.FlagSet, args []string, stdin io.Reader) (*kgo.Record, error) {
	if s.to == "" {
		return nil, &usageError{errors.New("--to is missing: name the target topic")}
	}
	if flags.Changed("in") == flags.Changed("at") {
		return nil, &usageError{errors.New("give one of --in and --at")}
	}
	r := &kgo.Record{Topic: s.topic, Timestamp: time.Now()}
	if !flags.Changed("topic") {
		r.Topic = s.to + ".delay"
	}
	if err := checkTopic("--to", s.to); err != nil {
		return nil, err
	}
	if err := checkTopic("--topic", r.Topic); err != nil {
		return nil, err
	}
	var err error
	if r.Key, err = keyOf(flags, s.key, s.keyBase64); err != nil {
		return nil, err
	}
	for _, header := range s.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok || name == "" {
			return nil, &usageError{fmt.Errorf("--header is %q: write NAME=VALUE", header)}
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	options, err := s.options(flags)
	if err != nil {
		return nil, err
	}
	if err := client.Stamp(r, options...); err != nil {
		return nil, &usageError{err}
	}
	switch {
	case len(args) == 0:
	case args[0] == "-":
		value, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read the value from standard input: %w", err)
		}
		r.Value = bytes.Clone(value)
	default:
		r.Value = []byte(args[0])
	}
	return r, nil
}

// options returns what the headers are to say.
func (s *schedule) options(flags *pflag.FlagSet) ([]client.Option, error) {
	options := []client.Option{client.To(s.to)}
	if flags.Changed("at") {
		options = append(options, atText(s.at))
	} else {
		delay, err := parseDelay("--in", s.in)
		if err != nil {
			return nil, err
		}
		options = append(options, client.After(delay))
	}
	if flags.Changed("id") {
		options = append(options, client.ID(s.id))
	} else if s.replace || s.ifAbsent {
		return nil, &usageError{errors.New("--id is missing: name the message that --replace and --if-absent are about")}
	}
	switch {
	case s.replace && s.ifAbsent:
		return nil, &usageError{errors.New("give one of --replace and --if-absent")}
	case s.replace:
		options = append(options, client.IfPresent())
	case s.ifAbsent:
		options = append(options, client.IfAbsent())
	}
	if flags.Changed("expires-in") {
		delay, err := parseDelay("--expires-in", s.expiresIn)
		if err != nil {
			return nil, err
		}
		options = append(options, client.ExpiresAfter(delay))
	}
	return options, nil
}

// parseDelay reads the value of a flag that takes a delay.
func parseDelay(flag, value string) (time.Duration, error) {
	delay, err := config.ParseDuration(value)
	if strings.HasPrefix(value, "-") {
		return 0, &usageError{&config.FieldError{Field: flag, Value: value, Remedy: "remove the minus, a delay is 0 or more"}}
	}
	if err != nil {
		return 0, &usageError{&config.FieldError{Field: flag, Value: value, Remedy: config.DurationRemedy}}
	}
	return delay, nil
}

// keyOf returns the key that one of two flags gives, nil if none does.
func keyOf(flags *pflag.FlagSet, text, base64Text string) ([]byte, error) {
	switch {
	case flags.Changed("key") && flags.Changed("key-base64"):
		return nil, &usageError{errors.New("give one of --key and --key-base64")}
	case flags.Changed("key"):
		return []byte(text), nil
	case flags.Changed("key-base64"):
		key, err := base64.StdEncoding.DecodeString(base64Text)
		if err != nil {
			return nil, &usageError{&config.FieldError{Field: "--key-base64", Value: base64Text, Remedy: "write base64 with padding, such as AAAAKg=="}}
		}
		return key, nil
	}
	return nil, nil
}

// checkTopic refuses a name that Kafka would not take, in terms of the flag.
func checkTopic(flag, name string) error {
	if err := config.CheckTopicName(name); err != nil {
		return &usageError{&config.FieldError{Field: flag, Value: name, Remedy: err.Error()}}
	}
	return nil
}

// atText passes the time on as it was typed; Stamp says what is wrong with it.
func atText(at string) client.Option {
	return func(headers []client.Header) []client.Header {
		return append(headers, client.Header{Key: client.HeaderAt, Value: []byte(at)})
	}
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
