package node

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm/repeats"
)

// hclogger gives hashicorp's four loggers (raft, transport, wal, stores) our
// slog. A peer that is down costs raft several errors a second, and a majority that is away some
// seven lines for each election in vain: what they call an error is a warning here, and
// whatever comes again within a minute, about the same peer if about one, is for debugging only, as is an error because the
// node closes its connections. Their debug stays debug, and an error is called so, as in our other lines.
type hclogger struct {
	slog    *slog.Logger
	name    string
	implied []any
	said    *repeats.Subjects
	closed  <-chan struct{} // by the node; nil: never
}

var _ hclog.Logger = hclogger{}

func newHCLogger(l *slog.Logger, name string) hclogger {
	return hclogger{slog: l.With("component", name), name: name, said: repeats.New()}
}

// until returns a logger that warns of nothing once closed is.
func (l hclogger) until(closed <-chan struct{}) hclogger { l.closed = closed; return l }

func (l hclogger) Log(level hclog.Level, msg string, args ...any) {
	l.log(slogLevel(level), msg, args)
}

func (l hclogger) Trace(msg string, args ...any) { l.log(slog.LevelDebug-4, msg, args) }
func (l hclogger) Debug(msg string, args ...any) { l.log(slog.LevelDebug, msg, args) }
func (l hclogger) Info(msg string, args ...any)  { l.log(slog.LevelInfo, msg, args) }
func (l hclogger) Warn(msg string, args ...any)  { l.log(slog.LevelWarn, msg, args) }
func (l hclogger) Error(msg string, args ...any) { l.log(slog.LevelWarn, msg, args) }

func (l hclogger) log(level slog.Level, msg string, args []any) {
	select {
	case <-l.closed:
		if level >= slog.LevelWarn {
			level = slog.LevelDebug
		}
	default:
	}
	if slices.Contains(ofFlushes, msg) {
		level = slog.LevelDebug
	}
	if !l.slog.Enabled(context.Background(), level) {
		return
	}
	if level >= slog.LevelInfo && msg != ofMembers && l.said.Again(msg+"\n"+peerOf(args)) {
		level = slog.LevelDebug
	}
	plain := make([]any, len(args))
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			if format, ok := f[0].(string); ok {
				a = fmt.Sprintf(format, f[1:]...)
			}
		}
		if i%2 == 0 && a == "err" { // raft-wal's
			a = "error"
		}
		plain[i] = a
	}
	l.slog.Log(context.Background(), level, msg, plain...)
}

// ofFlushes are what raft says of each flush, several times a second under load. That one has failed says flushLoop.
var ofFlushes = []string{"starting snapshot up to", "snapshot complete up to", "compacting logs", "no logs to truncate", "failed to take snapshot"}

// ofMembers is what raft says of each change of members.
const ofMembers = "updating configuration"

// peerOf returns the peers that a line of raft is about, "" if it is about none.
func peerOf(args []any) string {
	var peers string
	for _, a := range args {
		switch a := a.(type) {
		case raft.Server:
			peers += fmt.Sprintf("%s=%s ", a.ID, a.Address)
		case raft.ServerAddress:
			peers += string(a) + " "
		case raft.ServerID:
			peers += string(a) + " "
		}
	}
	return peers
}

func (l hclogger) enabled(level slog.Level) bool { return l.slog.Enabled(context.Background(), level) }

func (l hclogger) IsTrace() bool { return l.enabled(slog.LevelDebug - 4) }
func (l hclogger) IsDebug() bool { return l.enabled(slog.LevelDebug) }
func (l hclogger) IsInfo() bool  { return l.enabled(slog.LevelInfo) }
func (l hclogger) IsWarn() bool  { return l.enabled(slog.LevelWarn) }
func (l hclogger) IsError() bool { return l.enabled(slog.LevelWarn) }

func (l hclogger) ImpliedArgs() []any { return l.implied }
func (l hclogger) Name() string       { return l.name }

func (l hclogger) With(args ...any) hclog.Logger {
	l.slog = l.slog.With(args...)
	l.implied = append(l.implied[:len(l.implied):len(l.implied)], args...)
	return l
}

func (l hclogger) Named(name string) hclog.Logger      { return l.ResetNamed(l.name + "." + name) }
func (l hclogger) ResetNamed(name string) hclog.Logger { l.name = name; return l }

// The level is slog's matter.
func (l hclogger) SetLevel(hclog.Level)  {}
func (l hclogger) GetLevel() hclog.Level { return hclog.NoLevel }

func (l hclogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.slog.Handler(), slog.LevelInfo)
}

func (l hclogger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}

func slogLevel(level hclog.Level) slog.Level {
	switch level {
	case hclog.Trace:
		return slog.LevelDebug - 4
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn, hclog.Error:
		return slog.LevelWarn
	default:
		return slog.LevelInfo
	}
}
