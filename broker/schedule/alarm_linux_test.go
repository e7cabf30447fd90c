package schedule

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAlarm_ringsWhenItsTimeHasComeAndNotBefore(t *testing.T) {
	a := NewAlarm(slog.New(slog.DiscardHandler))
	if a == nil {
		t.Fatal("no alarm")
	}
	defer a.Close()
	for _, d := range []time.Duration{3 * time.Millisecond, 0, -time.Second} {
		a.set(time.Hour) // is replaced
		start := time.Now()
		a.set(d)
		<-a.C()
		if took := time.Since(start); took < d {
			t.Errorf("set for %v, rang after %v", d, took)
		}
	}
}

// A node that has no file descriptor left delivers all the same.
func TestAlarm_isDoneWithoutWhenTheKernelGivesNone(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	a := NewAlarm(slog.New(slog.NewTextHandler(&said, nil)))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if a != nil || strings.Count(said.String(), "\n") != 1 {
		t.Fatalf("alarm %v, log %q, want none and one line", a, said.String())
	}
	a.set(time.Millisecond)
	select {
	case <-a.C():
		t.Error("it rang")
	default:
	}
	a.Close()
}

// No time is out of the kernel's reach, and the longest wait is over when the wheel looks again.
func TestAlarm_ringsWithinASecondHoweverFarItIsSet(t *testing.T) {
	a := NewAlarm(slog.New(slog.DiscardHandler))
	if a == nil {
		t.Fatal("no alarm")
	}
	defer a.Close()
	a.set(1<<63 - 1)
	start := time.Now()
	<-a.C()
	if took := time.Since(start); took < longestAlarm {
		t.Errorf("rang after %v", took)
	}
}
