package reach

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// configOf says how to reach the Kafka of a bubble.
func configOf(t *testing.T, kafka kafkatest.Bubble) Config {
	return Config{
		Kafka:  config.Kafka{Brokers: kafka.ListenAddrs()},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Dial:   kafka.Network.DialContext,
	}
}

// ask returns what puts questions with a client of its own, and what ends both.
func ask(t *testing.T, c Config) (questions *Questions, end func()) {
	t.Helper()
	options, hearing, err := c.Heard(c.Logger)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	return NewQuestions(client, nil), func() {
		client.Close()
		hearing.Close()
	}
}

// askInTime asks, and gives up after five seconds.
func askInTime(t *testing.T, questions *Questions, request func() kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return questions.Ask(ctx, request)
}
