package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// BenchmarkBesideAList prints how late messages are at 2,000 a second while a million with ids are pending, in turn: alone, and
// beside one client that lists all of them, a page of a thousand after the other, with a histogram after every tenth.
func BenchmarkBesideAList(b *testing.B) {
	const pending, rate, seconds, rounds = 1_000_000, 2000, 10, 3
	k := startKafka(b, freeAddrs(b, 1)...)
	k.create(benchPartitions, delayTopic, targetTopic)
	c := startCarillon(b, k.addrs(), dirs(b, 1)...)
	k.fill(b, pending, 100, true)
	c.awaitPending(3*patience, pending)
	producer := k.client(kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	deliveries := func() []time.Duration {
		finish := measure(k, targetTopic, rate*seconds)
		pace(rate, rate*seconds, func() { produce(b, producer, delayTopic, time.Now().Add(2*time.Second)) })
		return finish()
	}
	deliveries() // Kafka and the node warm up
	var alone, beside []time.Duration
	pages := 0
	var listed time.Duration
	for range rounds {
		alone = append(alone, deliveries()...)
		ctx, stop := context.WithCancel(b.Context())
		var lister sync.WaitGroup
		lister.Go(func() {
			began := time.Now()
			pages += c.nodes[0].listAlways(ctx, b)
			listed += time.Since(began)
		})
		beside = append(beside, deliveries()...)
		stop()
		lister.Wait()
	}
	report(b, "alone", alone)
	report(b, "beside", beside)
	b.ReportMetric(float64(pages)/listed.Seconds(), "pages/s")
	b.ReportMetric(0, "ns/op")
}

// listAlways lists all that is pending, again and again until ctx ends, and returns how many pages there were.
func (n *carillonNode) listAlways(ctx context.Context, b *testing.B) (pages int) {
	cursor := ""
	for ; ctx.Err() == nil; pages++ {
		body, err := n.get("/v1/messages?limit=1000&cursor=" + url.QueryEscape(cursor))
		var page client.Page
		if err == nil {
			err = json.Unmarshal(body, &page)
		}
		if err == nil && pages%10 == 9 {
			_, err = n.get(fmt.Sprintf("/v1/histogram?by=target&bounds=%d", time.Now().UnixMilli()))
		}
		if err != nil {
			b.Errorf("list: %v", err)
			return pages
		}
		cursor = page.Next
	}
	return pages
}
