package reach

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// surveyPatience bounds a survey. A broker that has not answered by then is one that does not.
const surveyPatience = 5 * time.Second

// Survey asks Kafka which brokers there are, and then each of them for a sign, over connections of its own, from which no other
// client draws conclusions. It returns the ids of those that answer, and the addresses of those that do not: whoever
// configures brokers decides the addresses, which may be others for each node, and Kafka the ids. It blocks for
// some round trips, or for 5 s beside a broker that does not answer; an error means that none has answered, or that ctx has ended.
func (c Config) Survey(ctx context.Context) (reached []int32, unreached []string, err error) {
	c.Logger = slog.New(slog.DiscardHandler) // of a broker that does not answer whoever needs it tells
	options, err := c.Options()
	if err != nil {
		return nil, nil, err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, nil, fmt.Errorf("create Kafka client: %w", err)
	}
	defer client.Close()
	waiting, cancel := context.WithTimeout(ctx, surveyPatience)
	defer cancel()
	answer, err := NewQuestions(client, c.Cluster).Ask(waiting, forNothing)
	if err != nil {
		return nil, nil, WithRemedy("list Kafka brokers", err)
	}
	listed := answer.(*kmsg.MetadataResponse).Brokers
	addresses := addressesOf(listed)
	// The client would learn of them from one broker, and wait for it.
	if err := client.UpdateSeedBrokers(addresses...); err != nil {
		return nil, nil, fmt.Errorf("list Kafka brokers: %w", err)
	}
	answered := make([]bool, len(listed))
	var asked sync.WaitGroup
	for i, to := range client.SeedBrokers() {
		asked.Go(func() {
			_, err := to.Request(waiting, forNothing())
			answered[i] = err == nil
		})
	}
	asked.Wait()
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("ask each Kafka broker: %w", ctx.Err())
	}
	for i, broker := range listed {
		if answered[i] {
			reached = append(reached, broker.NodeID)
		} else {
			unreached = append(unreached, addresses[i])
		}
	}
	return reached, unreached, nil
}

// addressesOf returns the addresses of the Kafka brokers as they are dialed.
func addressesOf(listed []kmsg.MetadataResponseBroker) []string {
	addresses := make([]string, len(listed))
	for i, broker := range listed {
		addresses[i] = net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port)))
	}
	return addresses
}
