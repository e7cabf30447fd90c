//go:build !linux

package schedule

import (
	"log/slog"
	"time"
)

// An Alarm is an aid that only Linux has.
type Alarm struct{}

// NewAlarm returns nil.
func NewAlarm(*slog.Logger) *Alarm { return nil }

func (*Alarm) set(time.Duration) {}

// C is never received from.
func (*Alarm) C() <-chan struct{} { return nil }

// Close does nothing.
func (*Alarm) Close() {}
