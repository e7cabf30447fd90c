package timer_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

// slowly records, and takes an hour when the key begins with "slow".
func (r *recorder) slowly(e timer.Event[string, string]) {
	r.fire(e)
	if strings.HasPrefix(e.Key, "slow") {
		time.Sleep(time.Hour)
	}
}

// A well-known wheel runs a tick's callbacks one after the other.
func TestFire_slowCallbackDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.slowly})
		mustSet(t, s, "slow", "", time.Second)
		time.Sleep(time.Millisecond)
		mustSet(t, s, "same tick", "", time.Second-time.Millisecond)
		mustSet(t, s, "next", "", time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(r.fired); got != 3 {
			t.Fatalf("%d fired beside the slow callback, want 3", got)
		}
		for _, f := range r.fired {
			if want := map[string]time.Duration{"slow": time.Second, "same tick": time.Second, "next": time.Second + time.Millisecond}[f.key]; f.after != want {
				t.Errorf("%s fired after %v, want %v", f.key, f.after, want)
			}
		}
	})
}

// overloaded returns a service whose one worker is busy for an hour from second 1 on, and whose
// queue of one is taken by "queued"; "over" and "moved" are due as well, two seconds in.
func overloaded(t *testing.T, r *recorder, cfg timer.Config[string, string]) *timer.Service[string, string] {
	cfg.Fire, cfg.Workers, cfg.Queue = r.slowly, 1, 1
	s := newService(t, cfg)
	mustSet(t, s, "slow", "", time.Second)
	time.Sleep(time.Second)
	synctest.Wait()
	mustSet(t, s, "queued", "", 0)
	synctest.Wait()
	mustSet(t, s, "over", "", time.Second)
	mustSet(t, s, "moved", "", time.Second)
	time.Sleep(time.Second)
	synctest.Wait()
	return s
}

func TestWait_leavesDueTimersPendingUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := overloaded(t, r, timer.Config[string, string]{WhenFull: timer.Wait})
		if err := s.Move("moved", 2*time.Hour); err != nil {
			t.Errorf("Move of a timer that waits: %v", err)
		}
		if got := s.Stats(); got.Pending != 3 || got.Waiting != 1 || got.Workers != 1 || got.Fired != 1 {
			t.Errorf("stats %+v, want 3 pending, 1 waiting, 1 worker, 1 fired", got)
		}
		time.Sleep(3 * time.Hour)
		end := time.Hour + time.Second // of the slow callback
		r.want(t, firing{"slow", "", time.Second}, firing{"queued", "", end}, firing{"over", "", end},
			firing{"moved", "", 2*time.Hour + 2*time.Second})
	})
}

func TestWait_timersInLineCanBeStoppedMovedAndSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.slowly, Workers: 1, Queue: 8})
		mustSet(t, s, "slow", "", 0)
		synctest.Wait()
		for _, key := range []string{"removed", "moved", "set", "left"} {
			mustSet(t, s, key, "old", 0)
		}
		synctest.Wait()
		if got := s.Stats().Waiting; got != 4 {
			t.Fatalf("%d wait for the worker, want 4", got)
		}
		if _, ok := s.Remove("removed"); !ok {
			t.Error("Remove did not stop a timer that waits for a worker")
		}
		if err := s.Move("moved", 2*time.Hour); err != nil {
			t.Error(err)
		}
		mustSet(t, s, "set", "new", 3*time.Hour)
		time.Sleep(4 * time.Hour)
		r.want(t, firing{"slow", "", 0}, firing{"left", "old", time.Hour},
			firing{"moved", "old", 2 * time.Hour}, firing{"set", "new", 3 * time.Hour})
	})
}

func TestStop_returnsTheTimersThatWaitForAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := overloaded(t, r, timer.Config[string, string]{})
		unfired, err := s.Stop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(unfired[1:], func(a, b timer.Event[string, string]) int { return strings.Compare(b.Key, a.Key) })
		wantEvents(t, unfired, "queued", "over", "moved")
		r.want(t, firing{"slow", "", time.Second})
	})
}

func TestSpawn_goesBeyondTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := overloaded(t, r, timer.Config[string, string]{WhenFull: timer.Spawn})
		time.Sleep(time.Second)
		synctest.Wait()
		r.mu.Lock()
		got := len(r.fired)
		r.mu.Unlock()
		if got != 3 || s.Stats().Waiting != 1 {
			t.Errorf("%d fired and %d wait, want 3 and 1: slow, over, moved; queued waits", got, s.Stats().Waiting)
		}
	})
}

func TestDrop_reportsWhatItDropsAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		var dropped []string
		s := overloaded(t, r, timer.Config[string, string]{
			WhenFull: timer.Drop,
			Dropped: func(e timer.Event[string, string]) {
				dropped = append(dropped, e.Key)
				panic("contained")
			},
		})
		if want := []string{"over", "moved"}; !slices.Equal(dropped, want) {
			t.Errorf("dropped %v, want %v", dropped, want)
		}
		every, err := s.Every("every", "", 50*time.Minute) // dropped once, then there is room
		if err != nil {
			t.Fatal(err)
		}
		late := mustSet(t, s, "late", "", time.Minute)
		time.Sleep(2*50*time.Minute + time.Second)
		synctest.Wait()
		if late.State() != timer.Dropped || every.State() != timer.Pending {
			t.Errorf("late is %v and every %v, want dropped and pending", late.State(), every.State())
		}
		if got := s.Stats(); got.Dropped != 4 || got.Panics != 4 {
			t.Errorf("stats %+v, want 4 dropped, 4 panics", got)
		}
		r.want(t, firing{"slow", "", time.Second}, firing{"queued", "", time.Hour + time.Second},
			firing{"every", "", 100*time.Minute + 2*time.Second})
	})
}

func TestFire_panicIsContainedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var calls atomic.Int32
		s, err := timer.New(timer.Config[string, string]{
			Workers: 1,
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Fire: func(e timer.Event[string, string]) {
				calls.Add(1)
				switch e.Key {
				case "panics":
					panic("boom")
				case "exits":
					runtime.Goexit()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range []string{"fine", "panics", "exits"} { // then one more in the same tick
			mustSet(t, s, key, "", time.Duration(i)*time.Second)
			mustSet(t, s, fmt.Sprint(i), "", time.Duration(i)*time.Second)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.Stats(); calls.Load() != 6 || got.Panics != 1 || got.Workers != 0 {
			t.Errorf("%d calls, stats %+v, want 6 calls, 1 panic, no worker", calls.Load(), got)
		}
		if _, err := s.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"key=panics", "panic=boom", "executor_test.go"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("log does not say %q:\n%s", part, log.String())
			}
		}
	})
}
