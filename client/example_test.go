package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// startKafka stands in for the Kafka that an application has.
func startKafka() (brokers []string, stop func()) {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders.delay"))
	if err != nil {
		panic(err)
	}
	return kafka.ListenAddrs(), kafka.Close
}

func Example() {
	brokers, stop := startKafka()
	defer stop()

	producer, err := client.NewProducer(kgo.SeedBrokers(brokers...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer producer.Close()

	reminder := &client.Record{Topic: "orders.delay", Key: []byte("order-7"), Value: []byte("still interested?")}
	sent, err := producer.Schedule(context.Background(), reminder, client.After(24*time.Hour), client.ID("reminder-7"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s/%d/%d\n", sent.Topic, sent.Partition, sent.Offset)
	// Output: orders.delay/0/0
}

func ExampleNewProducerFrom() {
	brokers, stop := startKafka()
	defer stop()

	kafka, err := kgo.NewClient(kgo.SeedBrokers(brokers...)) // the application's own client
	if err != nil {
		fmt.Println(err)
		return
	}
	defer kafka.Close()

	newYear := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err = client.NewProducerFrom(kafka).Schedule(context.Background(),
		&client.Record{Topic: "orders.delay", Value: []byte("happy new year")}, client.At(newYear), client.To("greetings"))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleProducer_ScheduleBatch() {
	brokers, stop := startKafka()
	defer stop()

	producer, err := client.NewProducer(kgo.SeedBrokers(brokers...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer producer.Close()

	var batch []*client.Record
	for hours := range 3 {
		r := &client.Record{Topic: "orders.delay", Value: fmt.Append(nil, hours)}
		if err := client.Stamp(r, client.After(time.Duration(hours)*time.Hour)); err != nil {
			fmt.Println(err)
			return
		}
		batch = append(batch, r)
	}
	results := producer.ScheduleBatch(context.Background(), batch, client.To("orders"))
	fmt.Println(len(results), results.FirstErr())
	// Output: 3 <nil>
}

func ExampleProducer_ScheduleAsync() {
	brokers, stop := startKafka()
	defer stop()

	producer, err := client.NewProducer(kgo.SeedBrokers(brokers...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer producer.Close()

	for _, target := range []string{"orders", "no such topic"} {
		producer.ScheduleAsync(context.Background(), &client.Record{Topic: "orders.delay"}, func(_ *client.Record, err error) {
			if errors.Is(err, client.ErrMalformed) {
				fmt.Println(err)
			}
		}, client.After(time.Minute), client.To(target))
	}
	fmt.Println(producer.Flush(context.Background()))
	// Output:
	// stamp record for "orders.delay": deliver-to "no such topic" is not a topic name: use 1 to 249 of the characters a-z A-Z 0-9 . _ -
	// <nil>
}

// A record that is stamped can be produced by any Kafka client.
func ExampleStamp() {
	r := &client.Record{Topic: "orders.delay", Value: []byte("later")}
	due := time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC)
	if err := client.Stamp(r, client.At(due), client.To("orders"), client.Key("order-7"), client.Partition(3)); err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range r.Headers {
		fmt.Printf("%s: %s\n", h.Key, h.Value)
	}
	// Output:
	// deliver-at: 2030-01-31T08:00:00Z
	// deliver-to: orders
	// deliver-key: order-7
	// deliver-partition: 3
}

// A key that is no text: a number as Kafka's LongSerializer writes it.
func ExampleKeyBytes() {
	r := &client.Record{Topic: "orders.delay"}
	key := binary.BigEndian.AppendUint64(nil, 42)
	err := client.Stamp(r, client.After(time.Hour), client.KeyBytes(key))
	fmt.Printf("%s %v\n", r.Headers[1].Value, err)
	// Output: AAAAAAAAACo= <nil>
}

func ExampleHeaderError() {
	_, err := client.Parse([]client.Header{{Key: "deliver-at", Value: []byte("1900000000")}}, -1)
	var wrong *client.HeaderError
	if errors.As(err, &wrong) {
		fmt.Println(wrong.Code, wrong.Field, wrong.Value)
		fmt.Println(wrong.Remedy)
	}
	// Output:
	// malformed deliver-at 1900000000
	// use epoch milliseconds, 13 digits for today
}
