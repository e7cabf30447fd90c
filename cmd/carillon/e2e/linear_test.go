package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	calls "github.com/carillonmq/carillon/broker/brokertest/history"
	"github.com/carillonmq/carillon/client"
)

// What TestAPI_isLinearizable of broker/brokertest shows in virtual time, real processes do: programs schedule,
// change, cancel, get and list a few ids over HTTP while leaders are killed and frozen, and there is an order in
// which all that they were told, and all that came out of Kafka, is right.
func TestAPI_isLinearizableWhileLeadersAreKilledAndFrozen(t *testing.T) {
	t.Parallel()
	k := startKafka(t, freeAddrs(t, 1)...)
	k.create(1, delayTopic, targetTopic)
	c := startCarillon(t, k.addrs(), dirs(t, 3)...)
	first := c.admin(0)
	await(t, patience, "ids are open", func() bool {
		_, err := first.Schedule(t.Context(), client.ScheduleRequest{Topic: delayTopic, ID: "first", DeliverAfter: "1ms"})
		return err == nil
	})

	seed := rand.Uint64()
	clients := calls.NewClients(delayTopic, seed)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for number := range 2 * len(c.nodes) {
		running.Go(func() { clients.Run(ctx, number, c.admin(number)) })
	}
	const strikes = 8
	for strike := range strikes {
		<-time.After(rand.N(3 * time.Second)) // for calls to be under way
		leader := c.leader()
		if strike%2 == 0 {
			leader.process.kill()
			c.leader()
			c.start()
			continue
		}
		leader.process.send(syscall.SIGSTOP)
		c.leader()
		<-time.After(rand.N(2 * time.Second)) // for the others to move on
		leader.process.send(syscall.SIGCONT)
		await(t, patience, "the thawed node is ready", leader.ready)
	}
	stop()
	running.Wait()
	c.awaitPending(patience, 0)

	told, err := clients.History(nil, k.came(targetTopic))
	count := make(map[string]int)
	for _, call := range told {
		count[strings.TrimSuffix(fmt.Sprintf("%v %v", call.Verb, call.Code), " code(0)")]++
	}
	t.Logf("seed %d, %d strikes, %d calls and deliveries: %v", seed, strikes, len(told), count)
	for _, needed := range []string{"schedule replaced", "cancel cancelled", "cancel too-late", "change replaced", "get", "list", "deliver"} {
		if err == nil && count[needed] == 0 {
			t.Errorf("no %s: the calls prove too little", needed)
		}
	}
	if err == nil {
		err = calls.Check(told, 2*time.Minute)
	}
	if err != nil {
		t.Error(err)
	}
}

// admin returns a program's: of each node the first one knows only that, the second one asks it first.
func (c *carillonCluster) admin(number int) *client.Admin {
	c.t.Helper()
	var addresses []string
	for i := range c.nodes {
		addresses = append(addresses, c.nodes[(number+i)%len(c.nodes)].API)
	}
	timeout := 4 * time.Second
	if number < len(c.nodes) {
		addresses, timeout = addresses[:1], time.Second
	}
	admin, err := client.NewAdmin(addresses, client.AdminOptions{Timeout: timeout})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(admin.Close)
	return admin
}

// came returns the messages that a topic of one partition has got, in their order.
func (k *kafkaCluster) came(topic string) (all []calls.Message) {
	k.t.Helper()
	written, known := k.written(topic)
	if !known {
		k.t.Fatalf("Kafka does not tell where %s ends", topic)
	}
	reader := k.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for read := int64(0); read < written; {
		fetches := reader.PollFetches(k.t.Context())
		if err := fetches.Err(); err != nil {
			k.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			read = r.Offset + 1
			m := calls.Message{Value: string(r.Value), At: r.Timestamp}
			for _, h := range r.Headers {
				switch h.Key {
				case client.HeaderDeliveredID:
					m.ID = string(h.Value)
				case client.HeaderDeliveredSeq:
					_, seq, _ := strings.Cut(string(h.Value), "/")
					m.Seq, _ = strconv.ParseUint(seq, 10, 64)
				}
			}
			if m.ID != "first" {
				all = append(all, m)
			}
		})
	}
	return all
}
