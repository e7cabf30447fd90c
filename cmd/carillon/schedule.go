package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
)

// A schedule is one message as the command line describes it.
type schedule struct {
	to, topic, in, at, key, keyBase64, id, expiresIn string
	replace, ifAbsent                                bool
	headers                                          []string
	idempotencyKey                                   string // of the API
}

func scheduleCommand() *cobra.Command {
	keys := keysOf("kafka.")
	var s schedule
	var node nodeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "schedule --to TOPIC (--in DURATION | --at TIME) [VALUE | -]",
		Short: "Schedule one message",
		Long: "Schedule one message by a delay topic, by default the target's name with .delay behind it. The value\n" +
			"is an argument, or standard input with -; without one the message has a null value.\n\n" +
			eitherWay + "\n\n" +
			"A record takes Kafka alone, no node. But if one answers at --api that would not read this topic, or would\n" +
			"dead-letter the message, a warning says so; the message is produced nevertheless. With other brokers\n" +
			"than the default ones no node is asked unless it is said where one is.",
		Example: "  carillon schedule --to orders --in 5s 'ship it'\n" +
			"  carillon schedule --to orders --at 2030-01-02T15:04:05Z --key k1 --header source=cli - < order.json",
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("idempotency-key") && s.idempotencyKey == "" {
				return &usageError{errors.New("--idempotency-key is empty: give it a value, or leave it out")}
			}
			record, err := s.record(cmd.Flags(), args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			settings, err := load(cmd.Flags(), keys)
			if err != nil {
				return err
			}
			to, err := node.reach()
			if err != nil {
				return err
			}
			if to.throughAPI(settings, keys) {
				request := requestOf(record)
				request.IdempotencyKey = s.idempotencyKey
				return to.schedule(cmd, request, asJSON)
			}
			if cmd.Flags().Changed("idempotency-key") {
				return &usageError{errors.New("--idempotency-key is for the API: say with --api or a context where nodes are, and name no kafka.*")}
			}
			if asJSON {
				return &usageError{errors.New("--json is for the API: say with --api or a context where nodes are, and name no kafka.*")}
			}
			sent, err := sending{record, settings, to}.send(cmd)
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
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer of the API as JSON, for programs")
	node.add(cmd)
	complete(cmd, "topic", node.completeTopics)
	complete(cmd, "to", node.completeTargets)
	addConfigFlags(cmd.Flags(), keys)
	return cmd
}

// schedule asks the API for it.
func (n nodes) schedule(cmd *cobra.Command, r client.ScheduleRequest, asJSON bool) error {
	var answer client.Answer
	err := n.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
		answer, err = cluster.Schedule(ctx, r)
		return err
	})
	if err != nil {
		return err
	}
	return printAnswer(cmd, answer, asJSON)
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
	flags.StringVar(&s.idempotencyKey, "idempotency-key", "", "`key`, 1 to 256 bytes, with which the same message is scheduled once, however often it is asked for (API, feature level 4)")
	flags.StringArrayVar(&s.headers, "header", nil, "header `NAME=VALUE` of the message; can be repeated")
	return flags
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
	r.Value, err = readValue(args, stdin)
	return r, err
}

// readValue returns the value that an argument gives, nil without one.
func readValue(args []string, stdin io.Reader) ([]byte, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case args[0] != "-":
		return []byte(args[0]), nil
	}
	value, err := io.ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("read the value from standard input: %w", err)
	}
	return value, nil
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
