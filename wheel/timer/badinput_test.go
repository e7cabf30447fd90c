package timer_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

func TestNew_refusesUnusableSettingsByName(t *testing.T) {
	fire := func(timer.Event[string, string]) {}
	for _, bad := range []struct {
		field string
		cfg   timer.Config[string, string]
	}{
		{"Fire", timer.Config[string, string]{}},
		{"Workers", timer.Config[string, string]{Fire: fire, Workers: -1}},
		{"Queue", timer.Config[string, string]{Fire: fire, Queue: -1}},
		{"Queue", timer.Config[string, string]{Fire: fire, Queue: 1<<20 + 1}},
		{"Queue", timer.Config[string, string]{Fire: fire, Queue: math.MaxInt}},
		{"MaxPending", timer.Config[string, string]{Fire: fire, MaxPending: -1}},
		{"WhenFull", timer.Config[string, string]{Fire: fire, WhenFull: 9}},
		{"Dropped", timer.Config[string, string]{Fire: fire, WhenFull: timer.Drop}},
	} {
		_, err := timer.New(bad.cfg)
		if !errors.Is(err, timer.ErrConfig) || !strings.Contains(err.Error(), bad.field) {
			t.Errorf("bad %s: %v, want ErrConfig that names it", bad.field, err)
		}
	}
}

func TestNew_takesTheLargestSettings(t *testing.T) {
	for _, full := range []timer.WhenFull{timer.Wait, timer.Spawn, timer.Drop} {
		synctest.Test(t, func(t *testing.T) {
			r := newRecorder()
			s := newService(t, timer.Config[string, string]{Fire: r.fire, Workers: math.MaxInt, Queue: 1 << 20, MaxPending: math.MaxInt, WhenFull: full, Dropped: ignore})
			mustSet(t, s, "a", "", time.Second)
			time.Sleep(time.Minute)
			r.want(t, firing{"a", "", time.Second})
		})
	}
}

func TestSet_refusesNegativeAndTakesTheLongestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, timer.Config[string, string]{Fire: newRecorder().fire})
		if _, err := s.Set("a", "", -1); !errors.Is(err, timer.ErrDelay) {
			t.Errorf("Set with a negative delay = %v, want ErrDelay", err)
		}
		mustSet(t, s, "a", "", math.MaxInt64)
		if err := s.Move("a", -1); !errors.Is(err, timer.ErrDelay) {
			t.Errorf("Move with a negative delay = %v, want ErrDelay", err)
		}
		set, err := s.Drain()
		if err != nil || len(set) != 1 {
			t.Fatalf("Drain = %v, %v, want the one timer", set, err)
		}
		if got, least := set[0].Due, time.Now().Add(math.MaxInt64); got.Before(least) {
			t.Errorf("a delay of 292 years is due at %v, want %v at the earliest", got, least)
		}
	})
}

func TestSet_beyondTheWheelIsRefusedAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		now := time.UnixMilli(1<<48 - 2)
		s := newService(t, timer.Config[string, string]{Fire: r.fire, Now: func() time.Time { return now }})
		tm := mustSet(t, s, "a", "old", time.Millisecond)
		if _, err := s.Set("a", "new", time.Second); !errors.Is(err, timer.ErrDeadline) {
			t.Errorf("Set beyond the wheel = %v, want ErrDeadline", err)
		}
		if _, err := s.Set("b", "", time.Second); !errors.Is(err, timer.ErrDeadline) {
			t.Errorf("Set of a new key beyond the wheel = %v, want ErrDeadline", err)
		}
		if v, ok := s.Remove("a"); tm.State() != timer.Stopped || v != "old" || !ok || s.Len() != 0 {
			t.Errorf("the pending timer became %q, %v, want old, removed now", v, ok)
		}
	})
}

func TestSet_refusesAboveMaxPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, timer.Config[string, string]{Fire: newRecorder().fire, MaxPending: 1})
		mustSet(t, s, "a", "", time.Second)
		if _, err := s.Set("b", "", time.Second); !errors.Is(err, timer.ErrFull) {
			t.Errorf("Set above the limit = %v, want ErrFull", err)
		}
		mustSet(t, s, "a", "again", time.Second) // needs no room
		time.Sleep(time.Second)
		synctest.Wait()
		mustSet(t, s, "b", "", time.Second)
	})
}

func TestSet_refusesAKeyThatDoesNotEqualItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := timer.New(timer.Config[float64, int]{Fire: func(timer.Event[float64, int]) {}})
		if err != nil {
			t.Fatal(err)
		}
		_, set := s.Set(math.NaN(), 1, time.Second)
		_, every := s.Every(math.NaN(), 1, time.Second)
		if !errors.Is(set, timer.ErrKey) || !errors.Is(every, timer.ErrKey) {
			t.Errorf("Set and Every under NaN = %v and %v, want ErrKey", set, every)
		}
		if unfired, err := s.Stop(t.Context()); len(unfired) != 0 || err != nil {
			t.Errorf("Stop = %v, %v, want none unfired", unfired, err)
		}
	})
}

func TestSet_panicsUnderAKeyThatNoMapTakesAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := timer.New(timer.Config[any, int]{Fire: func(timer.Event[any, int]) {}})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Set under a slice did not panic")
				}
			}()
			_, _ = s.Set([]int{1}, 1, time.Second)
		}()
		if _, err := s.Set("a", 1, time.Second); err != nil {
			t.Errorf("Set after the panic = %v", err)
		}
		if unfired, err := s.Stop(t.Context()); len(unfired) != 1 || err != nil {
			t.Errorf("Stop = %v, %v, want one unfired", unfired, err)
		}
	})
}

func TestZeroValues_refuseAndDoNotPanic(t *testing.T) {
	var s timer.Service[string, string]
	_, set := s.Set("a", "", time.Second)
	_, every := s.Every("a", "", time.Second)
	_, drain := s.Drain()
	_, stop := s.Stop(context.Background())
	for _, err := range []error{set, every, drain, stop, s.Move("a", 0)} {
		if !errors.Is(err, timer.ErrNotMade) {
			t.Errorf("use of a zero Service = %v, want ErrNotMade", err)
		}
	}
	if _, ok := s.Remove("a"); ok || s.Len() != 0 || s.Stats() != (timer.Stats{}) {
		t.Error("a zero Service is not empty")
	}
	var tm timer.Timer[string, string]
	if tm.Stop() || tm.State().String() != "unset" {
		t.Error("a zero Timer is not unset")
	}
	var none *timer.Timer[string, string]
	if none.Stop() || none.State().String() != "unset" {
		t.Error("a nil Timer is not unset")
	}
}

func TestService_onAWallClockLogsStepsAndIsNeverEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		c := &setClock{}
		r := newRecorder()
		s, err := timer.New(timer.Config[string, string]{Fire: r.fire, Now: c.now, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		mustSet(t, s, "before", "", time.Minute)
		c.set(-time.Hour)
		mustSet(t, s, "after", "", time.Minute)
		time.Sleep(2 * time.Hour)
		r.want(t, firing{"after", "", time.Minute}, firing{"before", "", time.Hour + time.Minute})
		if _, err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "by=-1h0m0s") {
			t.Errorf("log does not tell of the step: %s", log.String())
		}
	})
}
