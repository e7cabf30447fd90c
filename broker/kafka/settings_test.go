package kafka

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
)

// onLoopback runs a Kafka on loopback and returns what a node would be configured with to reach it.
func onLoopback(t *testing.T, options ...kfake.Opt) reach.Config {
	t.Helper()
	cluster, err := kfake.NewCluster(append(options, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders.delay", "orders"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return reach.Config{Kafka: config.Kafka{Brokers: cluster.ListenAddrs()}, Logger: slog.New(slog.DiscardHandler), ClientID: "carillon-n1"}
}

// passThrough writes a record with a Sink and reads it with a Source.
func passThrough(t *testing.T, c reach.Config) error {
	t.Helper()
	sink, err := NewSink(c)
	if err != nil {
		return err
	}
	defer sink.Close()
	if _, err := countOf(t.Context(), sink, "orders.delay"); err != nil {
		return err
	}
	if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders.delay", Value: []byte("v")}); err != nil {
		return err
	}
	source, err := NewSource(c, func(topic string) bool { return topic == "orders.delay" })
	if err != nil {
		return err
	}
	defer source.Close()
	r := &reader{Source: source, t: t, next: make(map[int32]int64)}
	if found := r.discover(); len(found) != 1 {
		t.Errorf("found %+v, want orders.delay alone", found)
	}
	if got := r.read(1); string(got[0].Value) != "v" {
		t.Errorf("read %q", got[0].Value)
	}
	return nil
}

func TestPlainConnection(t *testing.T) {
	if err := passThrough(t, onLoopback(t)); err != nil {
		t.Error(err)
	}
}

func TestSASL(t *testing.T) {
	for mechanism, method := range map[string]string{"plain": "PLAIN", "scram-256": "SCRAM-SHA-256", "scram-512": "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				c := kafka.config()
				c.Kafka.SASL = config.SASL{Mechanism: mechanism, Username: "alice", Password: "secret"}
				if err := passThrough(t, c); err != nil {
					t.Error(err)
				}
				c.Kafka.SASL.Password = "wrong"
				if err := passThrough(t, c); !errors.Is(err, deliver.ErrTargetUnavailable) {
					t.Errorf("with a wrong password: %v", err)
				}
			}, kfake.EnableSASL(), kfake.Superuser(method, "alice", "secret"), kfake.SeedTopics(1, "orders.delay"))
		})
	}
}

// franz-go's own default is snappy, which kafka-python, KafkaJS and the jar of Kafka's Java client
// cannot read by themselves. Not in a bubble: the zstd of franz-go is closed by a finalizer.
func TestSinkCompressesOnlyAsConfigured(t *testing.T) {
	if name := config.Default().Kafka.Compression; name != "none" {
		t.Errorf("default %q", name)
	}
	for name, want := range map[string]kgo.CompressionCodecType{
		"": kgo.CodecNone, "none": kgo.CodecNone,
		"gzip": kgo.CodecGzip, "snappy": kgo.CodecSnappy, "lz4": kgo.CodecLz4, "zstd": kgo.CodecZstd,
	} {
		t.Run(name, func(t *testing.T) {
			c := onLoopback(t)
			c.Kafka.Compression = name
			sink, err := NewSink(c)
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			long := strings.Repeat("compressible ", 100) // what gets no shorter is never compressed
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Value: []byte(long)}); err != nil {
				t.Fatal(err)
			}
			reader, err := kgo.NewClient(kgo.SeedBrokers(c.Kafka.Brokers...), kgo.ConsumeTopics("orders"))
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			fetches := reader.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			r := fetches.Records()[0]
			if got := kgo.CompressionCodecType(r.Attrs.CompressionType()); got != want {
				t.Errorf("codec %d, want %d", got, want)
			}
			if string(r.Value) != long {
				t.Errorf("value %q", r.Value)
			}
		})
	}
}

func TestTLSWithClientCertificate(t *testing.T) {
	files := kafkatest.NewCertificates(t)
	c := onLoopback(t, kfake.TLS(files.Server))
	if err := passThrough(t, c); err == nil {
		t.Error("a plain connection to a TLS listener worked")
	}
	c.Kafka.TLS = config.TLS{Enabled: true, CA: files.CA, Cert: files.Cert, Key: files.Key}
	if err := passThrough(t, c); err != nil {
		t.Error(err)
	}
	c.Kafka.TLS.CA = ""
	if err := passThrough(t, c); err == nil {
		t.Error("an unknown authority was trusted")
	}
}

func TestUnusableSettingsAreRefusedBeforeAnyConnection(t *testing.T) {
	c := reach.Config{Kafka: config.Kafka{Compression: "brotli"}, Logger: slog.New(slog.DiscardHandler)}
	_, sinkErr := NewSink(c)
	_, sourceErr := NewSource(c, nil)
	for _, err := range []error{sinkErr, sourceErr} {
		if wrong, ok := errors.AsType[*config.FieldError](err); !ok || wrong.Field != "kafka.compression" {
			t.Errorf("got %v, want an error of kafka.compression", err)
		}
	}
}

func TestBrokerAndClientAgreeOnTheContract(t *testing.T) {
	for ours, theirs := range map[string]string{
		message.CodeMalformed:   string(client.CodeMalformed),
		message.CodeUnsupported: string(client.CodeUnsupported),
	} {
		if ours != theirs {
			t.Errorf("broker says %q, client %q", ours, theirs)
		}
	}
}
