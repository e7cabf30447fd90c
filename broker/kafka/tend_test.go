package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/deliver"
)

// Names of targets are free text. Whatever was once written to is forgotten, also by the clients of franz-go, which ask for all
// that they know. What is written to goes on meanwhile.
func TestNamesAreForgotten(t *testing.T) {
	const rounds, each = 4, 1500
	names := []string{"orders"}
	for i := range rounds * each {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		config := kafka.config()
		config.Logger = slog.New(slog.DiscardHandler)
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		pass(time.Second)
		orders := 0
		for round := range rounds {
			names := names[1+round*each:][:each]
			sink.Partitions(t.Context(), names)
			outcomes := make(chan error, each)
			for _, name := range names {
				sink.Send(deliver.Delivery{Topic: name}, func(_ deliver.Receipt, err error) { outcomes <- err })
			}
			for range each {
				if err := <-outcomes; err != nil {
					t.Fatal(err)
				}
			}
			for range 30 {
				pass(time.Minute)
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Value: []byte{byte(orders)}}); err != nil {
					t.Fatal(err)
				}
				orders++
			}
		}
		var most atomic.Int64
		kafka.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
			kafka.KeepControl()
			most.Store(max(most.Load(), int64(len(request.(*kmsg.MetadataRequest).Topics)))) // one at a time
			return nil, nil, false
		})
		pass(sinkMetadataMaxAge + time.Minute)
		asked := int(most.Load())
		sink.mu.Lock()
		known := 0
		for l := range sink.open {
			known = max(known, len(l.topics)+len(l.forgot))
		}
		targets, open := len(sink.targets), len(sink.open)
		sink.mu.Unlock()
		t.Logf("of %d names: %d targets, %d limits, %d clients of which one knows %d at most and asks for %d", len(names), targets, len(sink.limits.bytes), open, known, asked)
		if bound := mostUnused + 2*targets; targets > 1 || known > bound+each || asked > bound+each || len(sink.limits.bytes) > bound+each*quickPools {
			t.Error("they are not forgotten")
		}
		for i, r := range kafka.records("orders", orders) {
			if int(r.Value[0]) != i%256 {
				t.Fatalf("record %d of orders is at offset %d", r.Value[0], i)
			}
		}
	}, kfake.SeedTopics(1, names...))
}

// A topic that is deleted while nothing is due for it costs a few looks, and not twenty questions a second from each client that
// has met it; nor does it keep what is sent to it once it is there again.
func TestTopicsThatAreGoneAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		config := kafka.config()
		config.Logger = slog.New(slog.DiscardHandler)
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		pass(time.Second)
		for _, topic := range []string{"orders", "others"} {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: topic, Value: []byte("first")}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := kafka.admin().DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		pass(sinkMetadataMaxAge + tendEvery)
		asked := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Count: -1, Observe: true})
		pass(time.Hour)
		t.Logf("%d questions in an hour", asked.Hits())
		if asked.Hits() > 300 {
			t.Error("the topic is not forgotten")
		}
		if _, err := kafka.admin().CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
			t.Fatal(err)
		}
		for _, topic := range []string{"others", "orders"} {
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: topic, Value: []byte("second")}); err != nil {
				t.Fatal(err)
			}
		}
		if r := kafka.records("orders", 1)[0]; string(r.Value) != "second" {
			t.Errorf("%q is in orders", r.Value)
		}
		if r := kafka.records("others", 2)[1]; string(r.Value) != "second" {
			t.Errorf("%q is in others", r.Value)
		}
	}, kfake.SeedTopics(1, "orders", "others"))
}

// What is delivered first in a term, and after a quiet time, waits for no connection to be opened, whichever Kafka broker leads
// its partition and whichever are asked about it.
func TestConnectionsAreOpenBeforeTheyAreNeeded(t *testing.T) {
	const brokers = 3
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		for i, name := range names {
			if err := kafka.MoveTopicPartition(name, 0, int32(i%brokers)); err != nil {
				t.Fatal(err)
			}
		}
		var dials atomic.Int64
		config := kafka.config()
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return kafka.Network.DialContext(ctx, network, address)
		}
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		requests := kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata, kmsg.DescribeConfigs, kmsg.ApiVersions}, Count: -1, Observe: true})
		pass(time.Second)
		t.Logf("%d connections are opened at the begin", dials.Load())
		for _, quiet := range []time.Duration{0, time.Minute, 20 * time.Minute, time.Hour, 24 * time.Hour} {
			asked, before := requests.Hits(), dials.Load()
			pass(quiet)
			t.Logf("%d requests and %d connections in %v", requests.Hits()-asked, dials.Load()-before, quiet)
			before = dials.Load()
			for _, name := range append(names[:9:9], names[9:18]...) { // known ones, and new ones
				if _, err := countOf(t.Context(), sink, name); err != nil {
					t.Fatal(err)
				}
				if _, err := sendAndWait(sink, deliver.Delivery{Topic: name}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if n := dials.Load() - before; n != 0 {
				t.Errorf("after %v: %d connections were opened for records", quiet, n)
			}
			names = names[9:]
		}
	}, kfake.NumBrokers(brokers), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(1, names...))
}

// A configured address that was away while clients were made is the only one that leads to Kafka brokers that have all got new
// ones since.
func TestKafkaThatMovesIsFoundByClientsMadeWhileItWasAway(t *testing.T) {
	var names []string
	for i := range 2 * quickPools { // two of each
		names = append(names, fmt.Sprintf("target-%d", i))
	}
	inBubble(t, func(t *testing.T, kafka bubble) {
		moved, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9093), kfake.ListenFn(kafka.Network.Listen), kfake.SeedTopics(1, names...))
		if err != nil {
			t.Fatal(err)
		}
		defer moved.Close()
		const name = "kafka:9092"
		var mu sync.Mutex
		away, leadsTo := false, kafka.ListenAddrs()[0]
		var conns []net.Conn
		config := kafka.config()
		config.Logger = slog.New(slog.DiscardHandler)
		config.Kafka.Brokers = []string{name}
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if address != name {
				return kafka.Network.DialContext(ctx, network, address)
			}
			if away {
				return nil, syscall.ECONNREFUSED
			}
			conn, err := kafka.Network.DialContext(ctx, network, leadsTo)
			if err == nil {
				conns = append(conns, conn)
			}
			return conn, err
		}
		sink, err := NewSink(config)
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close()
		pass(time.Minute)
		mu.Lock()
		away = true
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		pass(2 * tendEvery) // it is dialed
		for range 2 {       // the spare of before, and one that is made now
			sink.mu.Lock()
			for _, p := range sink.quick {
				sink.renew(p.lines[0])
			}
			sink.mu.Unlock()
			pass(10 * time.Second)
		}
		mu.Lock()
		away = false
		mu.Unlock()
		pass(time.Hour)
		mu.Lock()
		leadsTo = moved.ListenAddrs()[0]
		mu.Unlock()
		kafka.Close()
		lost, longest := 0, time.Duration(0)
		for _, name := range names {
			start := time.Now()
			_, err := sendAndWait(sink, deliver.Delivery{Topic: name})
			for err != nil && time.Since(start) < 10*time.Minute {
				pass(time.Second)
				_, err = sendAndWait(sink, deliver.Delivery{Topic: name})
			}
			if err != nil {
				lost++
			}
			longest = max(longest, time.Since(start))
		}
		t.Logf("of %d targets %d are not written, the longest took %v", len(names), lost, longest)
		if lost > 0 || longest > 10*time.Second {
			t.Error("Kafka is not found")
		}
	}, kfake.SeedTopics(1, names[0]))
}
