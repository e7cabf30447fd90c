package timer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

func mustEvery(t *testing.T, s *timer.Service[string, string], key string, period time.Duration) *timer.Timer[string, string] {
	t.Helper()
	tm, err := s.Every(key, "", period)
	if err != nil {
		t.Fatalf("Every(%s): %v", key, err)
	}
	return tm
}

func TestEvery_keepsToItsGridForAYear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		const period = 7*time.Hour + 7*time.Millisecond
		var n int
		s := newService(t, timer.Config[string, string]{Fire: func(e timer.Event[string, string]) {
			n++
			if want := start.Add(time.Duration(n) * period); !e.Due.Equal(want) || !time.Now().Equal(want) {
				t.Errorf("firing %d came at %v for %v, want %v", n, time.Now(), e.Due, want)
			}
			time.Sleep(time.Minute) // slowness must not shift the next one
		}})
		mustEvery(t, s, "a", period)
		time.Sleep(365 * 24 * time.Hour)
		synctest.Wait()
		if want := int(365 * 24 * time.Hour / period); n != want {
			t.Errorf("fired %d times in a year, want %d", n, want)
		}
	})
}

func TestEvery_skipsWhileItsCallbackRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.slowly})
		tm := mustEvery(t, s, "slow", 25*time.Minute) // the callback takes an hour
		time.Sleep(149 * time.Minute)
		if !tm.Stop() || tm.State() != timer.Stopped {
			t.Error("Stop of a periodic timer whose callback runs said false")
		}
		time.Sleep(10 * time.Hour)
		r.want(t, firing{"slow", "", 25 * time.Minute}, firing{"slow", "", 100 * time.Minute})
		if got := s.Stats().Skipped; got != 3 {
			t.Errorf("%d firings skipped, want 3: at 50, 75 and 125 minutes", got)
		}
	})
}

func TestEvery_doesNotMakeUpForWhatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &setClock{}
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire, Now: c.now})
		mustEvery(t, s, "a", time.Minute)
		time.Sleep(30500 * time.Millisecond)
		c.set(time.Hour)             // as after a suspended night
		time.Sleep(31 * time.Second) // which the service sees within a second
		r.want(t, firing{"a", "", 31 * time.Second}, firing{"a", "", time.Minute})
		if got := s.Stats().Skipped; got != 59 {
			t.Errorf("%d firings skipped, want 59", got)
		}
	})
}

func TestSet_endsThePeriodAndEveryBeginsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		mustEvery(t, s, "once", time.Minute)
		mustSet(t, s, "once", "set", time.Second)
		mustSet(t, s, "often", "", time.Second)
		mustEvery(t, s, "often", time.Minute)
		time.Sleep(150 * time.Second)
		r.want(t, firing{"once", "set", time.Second}, firing{"often", "", time.Minute}, firing{"often", "", 2 * time.Minute})
	})
}

func TestMove_shiftsTheGridOfAPeriodicTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.fire})
		mustEvery(t, s, "a", time.Minute)
		if err := s.Move("a", time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Second)
		r.want(t, firing{"a", "", time.Second}, firing{"a", "", 61 * time.Second})
	})
}

func TestEvery_refusesPeriodsItCannotKeep(t *testing.T) {
	s := newService(t, timer.Config[string, string]{Fire: newRecorder().fire})
	for _, period := range []time.Duration{-time.Second, 0, time.Microsecond, 1500 * time.Microsecond} {
		if _, err := s.Every("a", "", period); !errors.Is(err, timer.ErrDelay) {
			t.Errorf("Every(%v) = %v, want ErrDelay", period, err)
		}
	}
}
