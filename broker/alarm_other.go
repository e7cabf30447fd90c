//go:build !linux

package broker

import (
	"log/slog"
	"time"
)

// An alarm is an aid that only Linux has.
type alarm struct{}

func newAlarm(*slog.Logger) *alarm { return nil }

func (*alarm) set(time.Duration) {}

func (*alarm) C() <-chan struct{} { return nil }

func (*alarm) close() {}
