//go:build !linux

package broker

import "time"

// An alarm is an aid that only Linux has.
type alarm struct{}

func newAlarm() (*alarm, error) { return nil, nil }

func (*alarm) set(time.Duration) error { return nil }

func (*alarm) C() <-chan struct{} { return nil }

func (*alarm) close() {}
