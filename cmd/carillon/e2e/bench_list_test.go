package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
)

// BenchmarkBesideAList prints how late messages are at 2,000 a second while a million with ids are pending, in turn: alone, and
// beside one client that lists all of them, a page of a thousand after the other, with a histogram after every tenth.
func BenchmarkBesideAList(b *testing.B) {
	besideReader(b, "pages", 3, 10, (*carillonNode).listAlways)
}

// BenchmarkBesideAStream does the same with a client that streams all of them as lines of JSON without payloads, as fast as
// it gets them, again and again. Phases are short and many, so that what else the machine does hits both.
func BenchmarkBesideAStream(b *testing.B) {
	besideReader(b, "lines", 10, 5, (*carillonNode).streamAlways)
}

// besideReader prints how late messages are alone and beside a reader, who may read no payloads, in so many rounds of two
// phases. Of each round it takes the difference as well, and prints their median: one phase that the machine spoils does
// not spoil that.
func besideReader(b *testing.B, unit string, rounds, seconds int, read func(*carillonNode, context.Context, *testing.B) int) {
	const pending, rate = 1_000_000, 2000
	k := startKafka(b, freeAddrs(b, 1)...)
	k.create(benchPartitions, delayTopic, targetTopic)
	tokens := filepath.Join(b.TempDir(), "tokens.yaml")
	token, err := access.Create(tokens, access.Grant{Name: "reader", Role: access.Viewer}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("CARILLON_API_TOKENS", tokens)
	c := newCarillon(b, k.addrs(), dirs(b, 1)...)
	node := c.nodes[0]
	node.token = token
	c.start()
	k.fill(b, pending, 100, true)
	c.awaitPending(3*patience, pending)
	producer := k.client(kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	deliveries := func() []time.Duration {
		finish := measure(k, targetTopic, rate*seconds)
		pace(rate, rate*seconds, func() { produce(b, producer, delayTopic, time.Now().Add(2*time.Second)) })
		return finish()
	}
	deliveries() // Kafka and the node warm up
	var alone, beside, differences []time.Duration
	var aloneTicks, besideTicks, told int
	var reading time.Duration
	for round := range rounds {
		before := node.process.ticks(b)
		first := deliveries()
		aloneTicks += node.process.ticks(b) - before
		ctx, stop := context.WithCancel(b.Context())
		var reader sync.WaitGroup
		reader.Go(func() {
			began := time.Now()
			told += read(node, ctx, b)
			reading += time.Since(began)
		})
		before = node.process.ticks(b)
		second := deliveries()
		besideTicks += node.process.ticks(b) - before
		stop()
		reader.Wait()
		b.Logf("round %d: p99 alone %v, beside %v", round, p99(first), p99(second))
		alone, beside = append(alone, first...), append(beside, second...)
		differences = append(differences, p99(second)-p99(first))
	}
	report(b, "alone", alone)
	report(b, "beside", beside)
	slices.Sort(differences)
	b.ReportMetric(differences[len(differences)/2].Seconds()*1000, "median-of-p99-differences-ms")
	b.ReportMetric(float64(told)/reading.Seconds(), unit+"/s")
	share := func(ticks int) float64 { return float64(ticks) / ticksPerSecond / reading.Seconds() * 100 }
	b.ReportMetric(share(aloneTicks), "alone-cpu-%")
	b.ReportMetric(share(besideTicks), "beside-cpu-%")
	b.ReportMetric(0, "ns/op")
}

// p99 sorts what it is given.
func p99(lateness []time.Duration) time.Duration {
	slices.Sort(lateness)
	return lateness[len(lateness)*99/100]
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

// streamAlways streams all that is pending, again and again until ctx ends, and returns how many lines there were. It only
// counts them: what a client makes of them is its own affair.
func (n *carillonNode) streamAlways(ctx context.Context, b *testing.B) (lines int) {
	buffer := make([]byte, 64<<10)
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.API+"/v1/messages", nil)
		if err != nil {
			b.Error(err)
			return lines
		}
		request.Header.Set("Accept", "application/x-ndjson")
		request.Header.Set("Authorization", "Bearer "+n.token)
		answer, err := http.DefaultClient.Do(request)
		for err == nil {
			var size int
			size, err = answer.Body.Read(buffer)
			lines += bytes.Count(buffer[:size], []byte{'\n'})
		}
		if answer != nil {
			answer.Body.Close()
		}
		if err != io.EOF && ctx.Err() == nil {
			b.Errorf("stream: %v", err)
			return lines
		}
	}
	return lines
}
