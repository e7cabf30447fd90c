package timer_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel"
	"github.com/carillonmq/carillon/wheel/timer"
)

// handler is a log's handler that is told of each record.
type handler func(slog.Record)

func (h handler) Enabled(context.Context, slog.Level) bool      { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }

// waitFor fails the test when done is not closed: what should close it waits for a lock. That takes
// real time, as a bubble's clock stands still meanwhile.
func waitFor(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("foreign code that uses the service waits for its lock")
	}
}

func TestLog_itsHandlerMayUseTheService(t *testing.T) {
	for message, provoke := range map[string]func(s *timer.Service[string, int], clock *atomic.Int64){
		"callback panicked": func(s *timer.Service[string, int], _ *atomic.Int64) {
			_, _ = s.Set("a", 1, 0)
		},
		"clock was set": func(s *timer.Service[string, int], clock *atomic.Int64) {
			clock.Add(-time.Hour.Milliseconds())
			_, _ = s.Set("a", 0, 0)
		},
		"periodic timer ends": func(s *timer.Service[string, int], clock *atomic.Int64) {
			_, _ = s.Every("a", 0, time.Millisecond)
			clock.Store(wheel.MaxTick)
		},
	} {
		t.Run(message, func(t *testing.T) {
			var clock atomic.Int64 // ms
			clock.Store(wheel.MaxTick - 1)
			var s *timer.Service[string, int]
			var once sync.Once
			used := make(chan struct{})
			s, err := timer.New(timer.Config[string, int]{
				Now: func() time.Time { return time.UnixMilli(clock.Load()) },
				Fire: func(e timer.Event[string, int]) {
					if e.Value == 1 {
						panic("boom")
					}
				},
				Log: slog.New(handler(func(r slog.Record) {
					s.Len()
					if r.Message == message {
						once.Do(func() { close(used) })
					}
				})),
			})
			if err != nil {
				t.Fatal(err)
			}
			provoke(s, &clock)
			waitFor(t, used)
			if _, err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// countedKey asks the service when it is printed.
type countedKey struct{ service *timer.Service[any, int] }

func (k countedKey) String() string {
	if k.service.Len() == 0 {
		return "of an empty service"
	}
	return "of a full service"
}

func TestMove_printsAKeyThatUsesTheService(t *testing.T) {
	s, err := timer.New(timer.Config[any, int]{Fire: func(timer.Event[any, int]) {}})
	if err != nil {
		t.Fatal(err)
	}
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		err := s.Move(countedKey{s}, time.Second)
		if !errors.Is(err, timer.ErrNotPending) || !strings.Contains(err.Error(), "of an empty service") {
			t.Errorf("Move = %v, want ErrNotPending that names the key", err)
		}
	}()
	waitFor(t, moved)
	if _, err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDrop_aCallbackThatEndsItsGoroutineCostsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		var dropped []string
		s := overloaded(t, r, timer.Config[string, string]{
			WhenFull: timer.Drop,
			Dropped: func(e timer.Event[string, string]) {
				dropped = append(dropped, e.Key)
				runtime.Goexit()
			},
		})
		if want := []string{"over", "moved"}; !slices.Equal(dropped, want) {
			t.Errorf("told of %v as dropped, want %v", dropped, want)
		}
		mustSet(t, s, "later", "", 2*time.Hour)
		time.Sleep(3 * time.Hour)
		r.want(t, firing{"slow", "", time.Second}, firing{"queued", "", time.Hour + time.Second},
			firing{"later", "", 2*time.Hour + 2*time.Second})
		stopWithNothingRunning(t, s)
	})
}

func TestLog_aHandlerThatPanicsOrEndsItsGoroutineCostsNoTimer(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("from the log") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &setClock{}
				r := newRecorder()
				s := newService(t, timer.Config[string, string]{
					Fire: func(e timer.Event[string, string]) {
						r.fire(e)
						panic("from the callback")
					},
					Workers: 1,
					Now:     c.now,
					Log:     slog.New(handler(func(slog.Record) { fail() })),
				})
				c.set(time.Hour)
				mustSet(t, s, "a", "", 2*time.Second)
				mustEvery(t, s, "b", 3*time.Second)
				time.Sleep(7 * time.Second)
				r.want(t, firing{"a", "", 2 * time.Second}, firing{"b", "", 3 * time.Second}, firing{"b", "", 6 * time.Second})
				if got, want := s.Stats(), (timer.Stats{Pending: 1, Fired: 3, Panics: 3}); got != want {
					t.Errorf("stats %+v, want %+v", got, want)
				}
				stopWithNothingRunning(t, s)
			})
		})
	}
}

// stopWithNothingRunning stops s, which is to count no callback as begun.
func stopWithNothingRunning(t *testing.T, s *timer.Service[string, string]) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Stop(ended); err != nil {
		t.Errorf("Stop without a running callback = %v", err)
	}
}
