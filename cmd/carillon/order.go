package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

// throughAPI reports whether a verb that can go through Kafka as well asks the API: when the user has said
// where nodes are, in whatever way, and not where Kafka is.
func (n nodes) throughAPI(s config.Settings, keys []config.Key) bool {
	for _, k := range keys {
		if s.Origins[k.Name] != config.OriginDefault {
			return false
		}
	}
	return n.named
}

// eitherWay says so in helps.
const eitherWay = "The API is asked when --api, CARILLON_API or a context says where nodes are, and tells what came of it at\n" +
	"once. Otherwise, and when a flag, a variable or a configuration file says where Kafka is (kafka.*), a\n" +
	"record is produced."

// An orderFlags is what orders that are about one message share.
type orderFlags struct {
	messageFlags
	reason string
	seq    uint64
	asJSON bool
}

func (o *orderFlags) add(cmd *cobra.Command) {
	o.messageFlags.add(cmd)
	cmd.Flags().StringVar(&o.reason, "reason", "", "`why`, for the log of the cluster")
	cmd.Flags().Var((*seqValue)(&o.seq), "seq", "only while the message that waits has this `number` (carillon get shows it)")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON, for programs")
}

// A seqValue is the value of a flag that takes the seq of a message. There is no 0: it would be no condition at all.
type seqValue uint64

// Set is of pflag.Value, as String and Type are.
func (v *seqValue) Set(text string) error {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seq == 0 {
		return errors.New("it is no seq: give the number that carillon get shows, from 1 on")
	}
	*v = seqValue(seq)
	return nil
}

func (v *seqValue) String() string {
	if *v == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(*v), 10)
}

func (v *seqValue) Type() string { return "number" }

func (o *orderFlags) name(id string) client.Name {
	return client.Name{Topic: o.topic, ID: id, Seq: o.seq}
}

// order asks for something to be done to one message, and prints what came of it.
func (o *orderFlags) order(cmd *cobra.Command, do func(context.Context, *client.Admin) (client.Answer, error)) error {
	var answer client.Answer
	err := o.node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
		answer, err = do(ctx, cluster)
		return err
	})
	if err != nil {
		return err
	}
	return printAnswer(cmd, answer, o.asJSON)
}

// printAnswer says what came of an order that took effect.
func printAnswer(cmd *cobra.Command, a client.Answer, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), a)
	}
	words := fmt.Sprintf("%s: %s of %s, seq %d", a.Code, table.Text(a.ID), a.Topic, a.Seq)
	switch {
	case a.Code == client.AnswerAlreadyCancelled && a.Outcome != nil:
		words += ", at " + moment(a.Outcome.At)
	case a.Code == client.AnswerReplaced:
		words += ", in the place of " + strconv.FormatUint(a.Before, 10)
	case a.Before != 0:
		words += fmt.Sprintf("; message %d, which had the id before, is on its way still", a.Before)
	}
	if a.Again {
		words += "; as answered before, to the same key"
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), words)
	return err
}

// requestOf returns a request for what the record asks for by its headers.
func requestOf(r *kgo.Record) client.ScheduleRequest {
	request := client.ScheduleRequest{Topic: r.Topic, Key: dataOf(r.Key), Value: dataOf(r.Value)}
	fields := map[string]*string{
		client.HeaderID: &request.ID, client.HeaderAt: &request.DeliverAt, client.HeaderAfter: &request.DeliverAfter, client.HeaderTo: &request.DeliverTo,
		client.HeaderIf: &request.If, client.HeaderExpiresAt: &request.ExpiresAt, client.HeaderExpiresAfter: &request.ExpiresAfter,
	}
	for _, h := range r.Headers {
		if field, ok := fields[h.Key]; ok {
			*field = string(h.Value)
		} else {
			request.Headers = append(request.Headers, client.DataHeader{Key: h.Key, Value: dataOf(h.Value)})
		}
	}
	return request
}

// dataOf is text where it can be, which people can read on the way.
func dataOf(b []byte) client.Data {
	switch {
	case b == nil:
		return client.Data{}
	case utf8.Valid(b):
		return client.Text(string(b))
	}
	return client.Bytes(b)
}

func nowCommand() *cobra.Command {
	var o orderFlags
	cmd := &cobra.Command{
		Use:   "now --topic TOPIC ID",
		Short: "Deliver a message that waits at once",
		Long: "Deliver the message that waits under an id at once. It gets a new seq.\n" +
			"Exit code 3: nothing waits under the id, or it is too late.",
		Example: "  carillon now --topic orders.delay reminder-4711",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args[0]); err != nil {
				return err
			}
			return o.order(cmd, func(ctx context.Context, cluster *client.Admin) (client.Answer, error) {
				return cluster.Now(ctx, o.name(args[0]), o.reason)
			})
		},
	}
	o.add(cmd)
	return cmd
}

func changeCommand() *cobra.Command {
	var o orderFlags
	var c changeFlags
	var expiresIn string
	cmd := &cobra.Command{
		Use:   "change --topic TOPIC (--at TIME | --in DURATION | --to TARGET | ...) ID [VALUE | -]",
		Short: "Change when, where or what a message that waits is delivered",
		Long: "Change the message that waits under an id: when it is delivered, where, its key or its value, which is an\n" +
			"argument, or standard input with -. What is not named stays. It gets a new seq.\n" +
			"Exit code 3: nothing waits under the id, or it is too late.",
		Example: "  carillon change --topic orders.delay --in 2h reminder-4711\n" +
			"  carillon change --topic orders.delay --to orders-eu reminder-4711 '{\"parcel\": 7}'",
		Args: arguments(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args[0]); err != nil {
				return err
			}
			change, err := c.read(cmd.Flags())
			if err != nil {
				return err
			}
			request := client.ChangeRequest{DeliverAt: change.DeliverAt, DeliverAfter: change.DeliverAfter, DeliverTo: change.DeliverTo, Reason: o.reason}
			if request.Key, err = c.readKey(cmd.Flags()); err != nil {
				return err
			}
			if cmd.Flags().Changed("expires-in") {
				delay, err := parseDelay("--expires-in", expiresIn)
				if err != nil {
					return err
				}
				request.ExpiresAfter = delay.String()
			}
			value, err := readValue(args[1:], cmd.InOrStdin())
			if err != nil {
				return err
			}
			request.Value = dataOf(value)
			if change == (client.BulkChange{}) && request.Key.IsZero() && request.Value.IsZero() && request.ExpiresAfter == "" {
				return &usageError{errors.New("say what is to be different: --at, --in, --to, --expires-in, --key or a value")}
			}
			return o.order(cmd, func(ctx context.Context, cluster *client.Admin) (client.Answer, error) {
				return cluster.Change(ctx, o.name(args[0]), request)
			})
		},
	}
	o.add(cmd)
	c.add(cmd, &o.node)
	cmd.Flags().StringVar(&c.key, "key", "", "new key")
	cmd.Flags().StringVar(&c.keyBase64, "key-base64", "", "new key as `base64`, when it is no text")
	cmd.Flags().StringVar(&expiresIn, "expires-in", "", "`duration` after the time of delivery from which it is not delivered any more")
	return cmd
}
