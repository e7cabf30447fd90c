package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

// firing is one call of a recorder's callback.
type firing struct {
	key, value string
	after      time.Duration // since the recorder was made
}

// recorder keeps what fired, in order.
type recorder struct {
	start time.Time
	mu    sync.Mutex
	fired []firing
}

func newRecorder() *recorder { return &recorder{start: time.Now()} }

func (r *recorder) fire(e timer.Event[string, string]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fired = append(r.fired, firing{e.Key, e.Value, time.Since(r.start)})
}

func (r *recorder) want(t *testing.T, want ...firing) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.fired, want) {
		t.Errorf("fired %v, want %v", r.fired, want)
	}
}

// newService starts a service that the test's end stops. It logs nothing unless cfg says where.
func newService(t *testing.T, cfg timer.Config[string, string]) *timer.Service[string, string] {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s, err := timer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.Stop(context.Background()); err != nil && !errors.Is(err, timer.ErrStopped) {
			t.Errorf("Stop: %v", err)
		}
	})
	return s
}

func mustSet(t *testing.T, s *timer.Service[string, string], key, value string, delay time.Duration) *timer.Timer[string, string] {
	t.Helper()
	tm, err := s.Set(key, value, delay)
	if err != nil {
		t.Fatalf("Set(%s): %v", key, err)
	}
	return tm
}

func TestSet_firesOnceAndAgainWhenSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		first := mustSet(t, s, "a", "1", time.Second)
		time.Sleep(time.Hour)
		second := mustSet(t, s, "a", "2", time.Second)
		time.Sleep(time.Hour)
		r.want(t, firing{"a", "1", time.Second}, firing{"a", "2", time.Hour + time.Second})
		if first == second || first.State() != timer.Fired || s.Len() != 0 {
			t.Errorf("state of the first %v, same as the second: %v, pending %d; want fired, false, 0", first.State(), first == second, s.Len())
		}
	})
}

func TestSet_ofAPendingKeyReplacesValueAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		first := mustSet(t, s, "later", "old", time.Second)
		if again := mustSet(t, s, "later", "new", time.Minute); again != first {
			t.Error("Set of a pending key made another timer")
		}
		mustSet(t, s, "sooner", "old", time.Hour)
		mustSet(t, s, "sooner", "new", time.Second)
		time.Sleep(2 * time.Hour)
		r.want(t, firing{"sooner", "new", time.Second}, firing{"later", "new", time.Minute})
	})
}

func TestSet_ofAnEarlierTimerWakesTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		mustSet(t, s, "century", "", 100*365*24*time.Hour)
		time.Sleep(time.Minute)
		mustSet(t, s, "hour", "", time.Hour)
		mustSet(t, s, "now", "", 0)
		time.Sleep(101 * 365 * 24 * time.Hour)
		r.want(t, firing{"now", "", time.Minute}, firing{"hour", "", time.Minute + time.Hour},
			firing{"century", "", 100 * 365 * 24 * time.Hour})
	})
}

// A well-known wheel fires twice after a move to below its interval.
func TestMove_belowOneTickFiresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		mustSet(t, s, "a", "", time.Hour)
		if err := s.Move("a", time.Nanosecond); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		r.want(t, firing{"a", "", time.Millisecond})
	})
}

func TestMove_ofAKeyThatIsNotPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, timer.Config[string, string]{Fire: newRecorder().fire})
		mustSet(t, s, "a", "", time.Second)
		time.Sleep(2 * time.Second)
		if err := s.Move("a", time.Second); !errors.Is(err, timer.ErrNotPending) {
			t.Errorf("Move of a fired timer = %v, want ErrNotPending", err)
		}
	})
}

func TestRemove_saysWhetherItStoppedTheTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		tm := mustSet(t, s, "a", "value", time.Second)
		if v, ok := s.Remove("a"); !ok || v != "value" {
			t.Errorf("Remove of a pending timer = %q, %v, want value, true", v, ok)
		}
		if _, ok := s.Remove("a"); ok {
			t.Error("the second Remove stopped it again")
		}
		if tm.Stop() || tm.State() != timer.Stopped {
			t.Errorf("after Remove the timer is %v, want stopped", tm.State())
		}
		mustSet(t, s, "b", "", time.Second)
		time.Sleep(time.Second)
		r.want(t, firing{"b", "", time.Second})
		if _, ok := s.Remove("b"); ok {
			t.Error("Remove stopped a timer that has fired")
		}
	})
}

func TestStopOfTimer_leavesALaterTimerOfItsKeyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		old := mustSet(t, s, "a", "old", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		mustSet(t, s, "a", "new", time.Second)
		if old.Stop() {
			t.Error("a fired timer's Stop said true")
		}
		time.Sleep(time.Second)
		r.want(t, firing{"a", "old", time.Second}, firing{"a", "new", 2 * time.Second})
	})
}

// A well-known wheel never fires a key again that it has drained.
func TestDrain_returnsThePendingByDeadlineAndLeavesTheKeysUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		b := mustSet(t, s, "b", "2", 2*time.Second)
		mustSet(t, s, "a", "1", time.Second)
		events, err := s.Drain()
		if err != nil {
			t.Fatal(err)
		}
		wantEvents(t, events, "a", "b")
		if b.State() != timer.Stopped || s.Len() != 0 {
			t.Errorf("after Drain b is %v, %d pending, want stopped, 0", b.State(), s.Len())
		}
		mustSet(t, s, "a", "again", time.Minute)
		time.Sleep(time.Hour)
		r.want(t, firing{"a", "again", time.Minute})
	})
}

func wantEvents(t *testing.T, events []timer.Event[string, string], keys ...string) {
	t.Helper()
	var got []string
	for _, e := range events {
		got = append(got, e.Key)
	}
	if !slices.Equal(got, keys) {
		t.Errorf("returned %v, want %v", got, keys)
	}
}

func TestStop_returnsTheUnfiredAndRefusesWhatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		mustSet(t, s, "fired", "", time.Second)
		mustSet(t, s, "year", "", 365*24*time.Hour)
		mustSet(t, s, "hour", "", time.Hour)
		if _, err := s.Every("minute", "", time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		unfired, err := s.Stop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantEvents(t, unfired, "minute", "hour", "year")
		time.Sleep(2 * time.Hour)
		r.want(t, firing{"fired", "", time.Second})

		_, set := s.Set("a", "", time.Second)
		_, every := s.Every("a", "", time.Second)
		_, drain := s.Drain()
		_, stop := s.Stop(t.Context())
		for _, err := range []error{set, every, drain, stop, s.Move("hour", 0)} {
			if !errors.Is(err, timer.ErrStopped) {
				t.Errorf("use after Stop = %v, want ErrStopped", err)
			}
		}
		if _, ok := s.Remove("hour"); ok || s.Len() != 0 {
			t.Error("a timer is left after Stop")
		}
	})
}

func TestStop_waitsForRunningCallbacksUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, timer.Config[string, string]{
			Fire: func(timer.Event[string, string]) { time.Sleep(time.Minute) },
		})
		mustSet(t, s, "slow", "", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop with a callback running = %v, want deadline exceeded", err)
		}
		time.Sleep(time.Minute) // the callback ends by itself
	})
}

func TestStop_withAnEndedContextFailsOnlyWhileACallbackRuns(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, full := range []timer.WhenFull{timer.Wait, timer.Spawn, timer.Drop} {
		for _, runs := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := overloaded(t, newRecorder(), timer.Config[string, string]{WhenFull: full, Dropped: ignore})
				if !runs {
					time.Sleep(10 * time.Hour)
					synctest.Wait()
				}
				mustSet(t, s, "year", "", 365*24*time.Hour)
				unfired, err := s.Stop(ended)
				if got := errors.Is(err, context.Canceled); got != runs {
					t.Errorf("WhenFull %d, Stop with a callback running %v = %v", full, runs, err)
				}
				if len(unfired) == 0 {
					t.Error("Stop returned no timer, want the year's at least")
				}
				time.Sleep(10 * time.Hour)
			})
		}
	}
}

func TestStop_ofNilWaitsAsLongAsCallbacksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, timer.Config[string, string]{Fire: func(timer.Event[string, string]) { time.Sleep(time.Minute) }})
		mustSet(t, s, "slow", "", 0)
		mustSet(t, s, "hour", "", time.Hour)
		synctest.Wait()
		var none context.Context
		start := time.Now()
		unfired, err := s.Stop(none)
		if took := time.Since(start); err != nil || len(unfired) != 1 || took != time.Minute {
			t.Errorf("Stop(nil) = %v, %v after %v, want one timer after a minute", unfired, err, took)
		}
	})
}

// With one deadline for all, none but the first wakes the alarm by being earlier.
func TestSet_ofACrowdForOneMomentMakesTheAlarmSplitItAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		s := newService(t, timer.Config[string, string]{
			Fire: newRecorder().fire,
			Now:  func() time.Time { reads.Add(1); return time.Now() },
		})
		mustSet(t, s, "first", "", time.Hour)
		synctest.Wait()
		reads.Store(0)
		const others = 5000
		for i := range others {
			mustSet(t, s, fmt.Sprint(i), "", time.Hour)
		}
		synctest.Wait() // no time passes
		if got := reads.Load(); got <= others {
			t.Errorf("the clock was read %d times, want once for each of %d, and by the alarm", got, others)
		}
	})
}
