package reach

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// A lineBuffer counts the lines that hold a text.
type lineBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lineBuffer) count(part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), part)
}

// A night without Kafka must not bury everything else.
func TestLogSaysOnceAMinuteThatKafkaIsAway(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		config := configOf(t, kafka)
		var info, debug lineBuffer
		config.Logger = slog.New(slog.NewMultiHandler(
			slog.NewTextHandler(&info, nil), slog.NewTextHandler(&debug, &slog.HandlerOptions{Level: slog.LevelDebug})))
		questions, end := ask(t, config)
		defer end()
		kafka.Close()
		for range 150 {
			if _, err := askInTime(t, questions, forNothing); err == nil {
				t.Fatal("a Kafka that is away was found")
			}
			pass(time.Second)
		}
		const line = "unable to open connection to broker"
		if said := info.count(line); said < 2 || said > 4 {
			t.Errorf("said %d times in 150 seconds:\n%s", said, info.text.String())
		}
		if all := debug.count(line); all < 100 {
			t.Errorf("%d lines for debugging, this tests nothing", all)
		}
	})
}

// What another broker has, or the same one has now, is news; the port that we called from is not.
func TestLogTellsBrokersAndErrorsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var info lineBuffer
		l := newLogger(slog.New(slog.NewTextHandler(&info, nil)))
		for _, tt := range []struct {
			broker, err string
			said        int // lines so far
		}{
			{"1", "dial tcp 10.0.0.1:9092: connection refused", 1},
			{"1", "dial tcp 10.0.0.1:9092: connection refused", 1},
			{"2", "dial tcp 10.0.0.2:9092: connection refused", 2},
			{"1", "remote error: tls: bad certificate", 3},
			{"1", "lookup kafka: read udp 10.0.0.9:4711->10.0.0.8:53: i/o timeout", 4},
			{"1", "lookup kafka: read udp 10.0.0.9:4712->10.0.0.8:53: i/o timeout", 4},
		} {
			l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "addr", "kafka:9092", "broker", tt.broker, "err", errors.New(tt.err))
			if said := info.count("unable to open"); said != tt.said || info.count(" error=") != said {
				t.Errorf("broker %s, %s: %d lines, want %d:\n%s", tt.broker, tt.err, said, tt.said, info.text.String())
			}
		}
	})
}
