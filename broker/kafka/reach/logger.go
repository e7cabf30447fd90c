package reach

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/raftfsm/repeats"
)

// logger passes franz-go's lines on, one level lower than franz-go has them: what a failing connection
// means is for the broker to say, and it says it once. A line that comes again within a minute, of the
// same broker and with the same error, is for debugging only.
type logger struct {
	log  *slog.Logger
	said *repeats.Subjects
}

func newLogger(log *slog.Logger) *logger { return &logger{log: log, said: repeats.New()} }

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
	if to > slog.LevelDebug && l.said.Again(subject(msg, pairs)) {
		to = slog.LevelDebug
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, named(pairs)...)
}

// named returns the pairs with an error called as it is in our other lines.
func named(pairs []any) []any {
	ours := slices.Clone(pairs)
	for i := 0; i < len(ours); i += 2 {
		if ours[i] == "err" {
			ours[i] = "error"
		}
	}
	return ours
}

// subject returns what a line is about: its text, its broker and its error without digits. An error may
// name our own port, another one at each attempt.
func subject(msg string, pairs []any) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		switch pairs[i] {
		case "broker":
			msg += fmt.Sprintf("\n%v", pairs[i+1])
		case "err":
			msg += "\n" + strings.Map(func(r rune) rune {
				if unicode.IsDigit(r) {
					return -1
				}
				return r
			}, fmt.Sprint(pairs[i+1]))
		}
	}
	return msg
}
