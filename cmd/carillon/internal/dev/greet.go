package dev

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// The greeting of dev.
const (
	greetingTarget = "greetings"
	greetingDelay  = 3 * time.Second
	// greetingPatience is how late the greeting may be before a word about it.
	greetingPatience = 5 * time.Second
)

const clock = "15:04:05.000"

// greet schedules one message and shows its delivery; it returns early, without an
// error, when ctx ends.
func greet(ctx context.Context, brokers string, out io.Writer) error {
	now := time.Now()
	kafka, err := kgo.NewClient(
		kgo.SeedBrokers(brokers),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(greetingTarget),
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(now.UnixMilli())), // not the greeting of an earlier start
		kgo.FetchMaxWait(250*time.Millisecond),
	)
	if err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	defer kafka.Close()
	id := "greeting-" + strconv.FormatInt(now.UnixNano(), 36)
	greeting := &kgo.Record{Topic: greetingTarget + ".delay", Value: []byte("hello from Carillon")}
	due := now.Add(greetingDelay).Truncate(time.Millisecond)
	if _, err := client.NewProducerFrom(kafka).Schedule(ctx, greeting, client.At(due), client.ID(id)); err != nil {
		return unlessOver(ctx, err)
	}
	fmt.Fprintf(out, "%s  scheduled a greeting for %s, waiting for its delivery\n", time.Now().Format(clock), due.Format(clock))
	polling, cancel := context.WithDeadline(ctx, due.Add(greetingPatience))
	defer cancel()
	for {
		fetches := kafka.PollFetches(polling)
		if err := fetches.Err0(); err != nil && polling != ctx && ctx.Err() == nil && polling.Err() != nil {
			fmt.Fprintf(out, "%s  still waiting: carillon status shows problems, the logs are beside the data\n", time.Now().Format(clock))
			polling = ctx
			continue
		} else if err != nil {
			return unlessOver(ctx, err)
		}
		for _, r := range fetches.Records() {
			if header(r, client.HeaderDeliveredID) != id {
				continue
			}
			arrived := time.Now()
			late := float64(arrived.Sub(due).Microseconds()) / 1000
			fmt.Fprintf(out, "%s  delivered to %s: %q, %.1f ms late\n", arrived.Format(clock), greetingTarget, r.Value, late)
			fmt.Fprintf(out, "\nrunning until Ctrl-C\n")
			return nil
		}
	}
}

func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("greet: %w", err)
}

// header returns the value of the record's header, empty when there is none.
func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
