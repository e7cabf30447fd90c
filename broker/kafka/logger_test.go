package kafka

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
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
	inBubble(t, func(t *testing.T, kafka bubble) {
		config := kafka.config()
		var info, debug lineBuffer
		config.Logger = slog.New(slog.NewMultiHandler(
			slog.NewTextHandler(&info, nil), slog.NewTextHandler(&debug, &slog.HandlerOptions{Level: slog.LevelDebug})))
		source, err := NewSource(config, func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		kafka.Close()
		for range 150 {
			if _, _, err := source.Discover(t.Context()); err == nil {
				t.Fatal("a Kafka that is away was found")
			}
			if err := CreateTopic(t.Context(), config, "t"); err == nil {
				t.Fatal("a Kafka that is away has created a topic")
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
