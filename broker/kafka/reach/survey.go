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

// surveyPatience bounds a survey. A record is not written to a broker that has not answered by then either.
const surveyPatience = 2 * time.Second

// Survey asks Kafka which brokers there are, and then each of them for a sign, over connections of its own, from which no other
// client draws conclusions. It returns the ids of those that answer and of those that do not: the addresses may be others for
// each node. It blocks for some round trips, or for 2 s beside a broker that does not answer; an error means that none has
// answered, or that ctx has ended.
func (c Config) Survey(ctx context.Context) (reached, unreached []int32, err error) {
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
	// The client would learn of them from one broker, and wait for it.
	if err := client.UpdateSeedBrokers(addressesOf(listed)...); err != nil {
		return nil, nil, fmt.Errorf("list Kafka brokers: %w", err)
	}
	answered := make([]bool, len(listed))
	var asked sync.WaitGroup
	for i, to := range client.SeedBrokers() {
		asked.Go(func() {
			response, err := to.Request(waiting, forNothing())
			answered[i] = err == nil && c.Cluster.confirm(response.(*kmsg.MetadataResponse).ClusterID) == nil
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
			unreached = append(unreached, broker.NodeID)
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
