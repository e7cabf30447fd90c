package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// repeatEvery paces a line of franz-go above debug: while Kafka is away it has one for each attempt to connect.
	repeatEvery = time.Minute
	// mostSaid bounds what is remembered; nearly all lines are constants.
	mostSaid = 100
)

// logger passes franz-go's lines on, one level lower than franz-go has them: what a failing connection
// means is for the broker to say, and it says it once. A line that comes again within a minute is for
// debugging only.
type logger struct {
	log  *slog.Logger
	mu   sync.Mutex
	said map[string]time.Time // by the line, without its values
}

func newLogger(log *slog.Logger) *logger { return &logger{log: log, said: make(map[string]time.Time)} }

func (l *logger) Level() kgo.LogLevel {
	switch {
	case l.log.Enabled(context.Background(), slog.LevelDebug):
		return kgo.LogLevelInfo
	case l.log.Enabled(context.Background(), slog.LevelInfo):
		return kgo.LogLevelWarn
	}
	return kgo.LogLevelError
}

func (l *logger) Log(level kgo.LogLevel, msg string, pairs ...any) {
	to := slog.LevelDebug
	switch level {
	case kgo.LogLevelError:
		to = slog.LevelWarn
	case kgo.LogLevelWarn:
		to = slog.LevelInfo
	}
	if to > slog.LevelDebug && l.repeats(msg) {
		to = slog.LevelDebug
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, pairs...)
}

// repeats reports whether the line was passed on less than repeatEvery ago, and notes that it is now if not.
func (l *logger) repeats(msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at, ok := l.said[msg]; ok && now.Sub(at) < repeatEvery {
		return true
	}
	if len(l.said) >= mostSaid {
		clear(l.said)
	}
	l.said[msg] = now
	return false
}
