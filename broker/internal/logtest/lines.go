// Package logtest lets tests read what was logged.
package logtest

import (
	"bytes"
	"log/slog"
	"strings"
)

// Lines keeps what is logged as lines without their time.
type Lines struct{ bytes.Buffer }

// Logger returns what writes the lines.
func (l *Lines) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// With returns the lines that have the text.
func (l *Lines) With(text string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
