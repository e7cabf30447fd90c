package schedule

import (
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// longestAlarm is how long the wheel sleeps at most. It keeps the seconds small enough
// for the kernels that count them in 32 bits.
const longestAlarm = time.Second

// An Alarm wakes the scheduler some ten microseconds after the time that is set. Go's
// timers alone do it up to a millisecond late on an idle machine, since the runtime
// sleeps for whole milliseconds; a timer of the kernel that it polls as it does a
// connection wakes it at once.
//
// It is an aid and no more: what it misses, the wheel's own timer does. A nil alarm
// never rings.
type Alarm struct {
	timer int // file descriptor
	file  *os.File
	rings chan struct{}
}

// NewAlarm returns an alarm that is not set, or nil, and says so, if the kernel gives no timer.
// It follows the machine's clock, never a virtual one.
func NewAlarm(log *slog.Logger) *Alarm {
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		log.Warn("no timer of the kernel: messages may be a millisecond later", "error", err)
		return nil
	}
	a := &Alarm{timer: timer, file: os.NewFile(uintptr(timer), "timer"), rings: make(chan struct{}, 1)}
	go a.ring()
	return a
}

// ring ends when the file is closed.
func (a *Alarm) ring() {
	expirations := make([]byte, 8)
	for {
		if _, err := a.file.Read(expirations); err != nil {
			return
		}
		select {
		case a.rings <- struct{}{}:
		default:
		}
	}
}

// set makes it ring after d, or after longestAlarm, instead of whenever it was set for.
// Not after Close.
func (a *Alarm) set(d time.Duration) {
	if a == nil {
		return
	}
	d = min(max(d, 1), longestAlarm) // 0 would unset it
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	_ = unix.TimerfdSettime(a.timer, 0, &at, nil) // what it does not ring for, the wheel's own timer does
}

// C is received from when it rings; nil for a nil alarm.
func (a *Alarm) C() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.rings
}

// Close ends it; it never rings again. It may be called on nil.
func (a *Alarm) Close() {
	if a != nil {
		a.file.Close()
	}
}
