package timer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/wheel/timer"
)

func ignore(timer.Event[string, string]) {}

func TestLine_aCrowdForIdleWorkersIsNeitherDroppedNorSpawned(t *testing.T) {
	for _, full := range []timer.WhenFull{timer.Wait, timer.Spawn, timer.Drop} {
		synctest.Test(t, func(t *testing.T) {
			const workers, queue = 600, 2 // more than a batch
			r := newRecorder()
			s := newService(t, timer.Config[string, string]{Fire: r.slowly, Workers: workers, Queue: queue, WhenFull: full, Dropped: ignore})
			for i := range workers + queue + 3 {
				mustSet(t, s, fmt.Sprint("slow ", i), "", time.Second)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			want := timer.Stats{Pending: queue, Waiting: queue, Workers: workers, Fired: workers}
			switch full {
			case timer.Wait:
				want.Pending += 3
			case timer.Spawn:
				want.Fired += 3
			case timer.Drop:
				want.Dropped = 3
			}
			if got := s.Stats(); got != want {
				t.Errorf("WhenFull %d: stats %+v, want %+v", full, got, want)
			}
			time.Sleep(3 * time.Hour)
		})
	}
}

func TestLine_whoLeavesItMakesRoom(t *testing.T) {
	leave := map[string]func(*timer.Service[string, string], string) error{
		"Remove": func(s *timer.Service[string, string], key string) error { s.Remove(key); return nil },
		"Move":   func(s *timer.Service[string, string], key string) error { return s.Move(key, time.Hour) },
		"Set": func(s *timer.Service[string, string], key string) error {
			_, err := s.Set(key, "", time.Hour)
			return err
		},
		"Drain": func(s *timer.Service[string, string], _ string) error { _, err := s.Drain(); return err },
	}
	for name, leave := range leave {
		for _, full := range []timer.WhenFull{timer.Wait, timer.Drop} {
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder()
				s := newService(t, timer.Config[string, string]{Fire: r.slowly, Workers: 1, Queue: 3, WhenFull: full, Dropped: ignore})
				mustSet(t, s, "slow", "", 0)
				synctest.Wait()
				for range 3 { // each time round all places are taken and left
					for _, key := range []string{"a", "b", "c"} {
						mustSet(t, s, key, "", 0)
					}
					synctest.Wait()
					if got := s.Stats().Waiting; got != 3 {
						t.Fatalf("%s: %d wait, want 3", name, got)
					}
					for _, key := range []string{"b", "a", "c"} {
						if err := leave(s, key); err != nil {
							t.Fatalf("%s: %v", name, err)
						}
					}
					synctest.Wait()
					if got := s.Stats(); got.Waiting != 0 || got.Dropped != 0 {
						t.Fatalf("%s: stats %+v, want none waiting, none dropped", name, got)
					}
				}
			})
		}
	}
}

func TestLine_isServedInOrderAlsoAfterSomeHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := newService(t, timer.Config[string, string]{Fire: r.slowly, Workers: 1, Queue: 3})
		mustSet(t, s, "slow", "", 0)
		synctest.Wait()
		mustSet(t, s, "first", "", 0)
		synctest.Wait()
		mustSet(t, s, "again", "", 0)
		synctest.Wait()
		for range 100 {
			mustSet(t, s, "again", "", 0)
			synctest.Wait()
		}
		mustSet(t, s, "last", "", 0)
		mustSet(t, s, "beyond", "", time.Millisecond)
		time.Sleep(time.Second)
		if got := s.Stats(); got.Waiting != 3 || got.Pending != 4 {
			t.Errorf("stats %+v, want 3 of 4 pending in line", got)
		}
		s.Remove("first") // makes room, but wakes nobody before half of Queue is free
		time.Sleep(time.Hour)
		r.want(t, firing{"slow", "", 0}, firing{"again", "", time.Hour}, firing{"last", "", time.Hour}, firing{"beyond", "", time.Hour})
	})
}

func TestLine_emptiedByRemovalsLetsWaitingTimersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := overloaded(t, r, timer.Config[string, string]{WhenFull: timer.Wait})
		for _, key := range []string{"queued", "over", "moved"} { // each lets the next one in
			if got := s.Stats().Waiting; got != 1 {
				t.Errorf("%d wait before %s is removed, want 1", got, key)
			}
			s.Remove(key)
			synctest.Wait()
		}
		mustSet(t, s, "later", "", 2*time.Hour)
		time.Sleep(3 * time.Hour)
		r.want(t, firing{"slow", "", time.Second}, firing{"later", "", 2*time.Hour + 2*time.Second})
	})
}

func TestDrain_whileTheLineIsFullLeavesTheServiceAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := overloaded(t, r, timer.Config[string, string]{WhenFull: timer.Wait})
		if _, err := s.Drain(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		mustSet(t, s, "after", "", time.Second)
		time.Sleep(time.Minute)
		r.want(t, firing{"slow", "", time.Second}, firing{"after", "", 2*time.Hour + 3*time.Second})
	})
}
