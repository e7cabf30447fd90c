package reach

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/config"
)

// A Config says how to reach Kafka. It holds for whoever reads and whoever writes alike.
type Config struct {
	Kafka    config.Kafka
	ClientID string // what Kafka's logs and quotas know us by
	Logger   *slog.Logger
	Hooks    []kgo.Hook // for metrics

	// Cluster says whether it is the Kafka that was used before; nil: whatever Kafka it is.
	Cluster *Cluster

	// Dial replaces TCP; TLS is laid over it when enabled. Tests run on a network in memory with it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// FetchMaxWait is how long Kafka holds a fetch that has nothing to return: 0 for 2 s. It bounds how late a
	// partition that is added is read when Kafka is slow to tell of it. A client that reads asks for it itself.
	FetchMaxWait time.Duration
}

const (
	// metadataMinAge is how long a partition with a retriable error waits for new metadata at most;
	// franz-go's 5 s would stall it that long.
	metadataMinAge = 50 * time.Millisecond
	metadataMaxAge = 30 * time.Second

	// requestTimeout bounds the wait for one answer.
	requestTimeout = 5 * time.Second

	dialTimeout = 5 * time.Second

	// connIdleTimeout is below the 10 minutes after which Kafka closes a connection that is not used.
	connIdleTimeout = 9 * time.Minute
)

// Options returns what every client of ours is made with. Its errors name the field of
// the configuration that cannot be used.
func (c Config) Options() ([]kgo.Opt, error) {
	codec, err := compressionCodec(c.Kafka.Compression)
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Kafka.Brokers...),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.ConnIdleTimeout(connIdleTimeout),
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.RetryTimeout(requestTimeout),
		kgo.RetryBackoffFn(retryBackoff),
		kgo.WithLogger(newLogger(c.Logger)),
		kgo.WithHooks(c.Hooks...),
		kgo.ProducerBatchCompression(codec),
		kgo.DisableClientMetrics(), // Kafka need not know how we do
	}
	if c.ClientID != "" {
		options = append(options, kgo.ClientID(c.ClientID))
	}
	dial, err := c.dialer()
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.Dialer(dial))
	mechanism, err := saslMechanism(c.Kafka.SASL)
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

// dialer returns what opens a connection, TLS included.
func (c Config) dialer() (dialFunc, error) {
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	dial = dialInTime(dial)
	if c.Kafka.TLS.Enabled {
		security, err := newSecurity(c.Kafka.TLS, c.Logger)
		if err != nil {
			return nil, err
		}
		dial = dialTLS(dial, security)
	}
	return dial, nil
}

// Heard returns Options with which several clients dial through one Hearing, which the caller closes after them.
func (c Config) Heard(log *slog.Logger) ([]kgo.Opt, *Hearing, error) {
	options, err := c.Options()
	if err != nil {
		return nil, nil, err
	}
	dial, err := c.dialer()
	if err != nil {
		return nil, nil, err
	}
	h := newHearing(dial, log)
	return append(options, kgo.Dialer(h.dial)), h, nil
}

// dialInTime bounds each dialing. franz-go dials with a context that ends with the client, so that what
// waits for a host that does not answer would wait for ever, whatever its own deadline.
func dialInTime(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(ctx, network, address)
	}
}

// compressionCodec returns none for an empty name: franz-go's own default is snappy, which many
// clients read only with a library that they do not bring.
func compressionCodec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "", "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, &config.FieldError{Field: "kafka.compression", Value: name, Remedy: "use none, gzip, snappy, lz4 or zstd"}
}

// retryBackoff grows from 20 ms to a second.
func retryBackoff(failures int) time.Duration {
	return min(20*time.Millisecond<<min(failures, 10), time.Second)
}
