package timer_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonmq/carillon/wheel/timer"
)

// happened is one firing, by due time and by the time it came.
type happened struct {
	Key, Value int
	Due, Came  time.Duration // since the model's start
}

func compareHappened(a, b happened) int {
	switch {
	case a.Due < b.Due:
		return -1
	case a.Due > b.Due:
		return 1
	default:
		return a.Key - b.Key
	}
}

// model is a service as simple as can be.
type model struct {
	start   time.Time
	pending map[int]modelTimer
}

type modelTimer struct {
	value       int
	due, period time.Duration
}

func (m *model) now() time.Duration { return time.Since(m.start) }

// after rounds up to the millisecond; start is on one.
func (m *model) after(d time.Duration) time.Duration {
	return (m.now() + d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// fire returns what is due by now.
func (m *model) fire() (fired []happened) {
	for key, t := range m.pending {
		for t.due <= m.now() {
			fired = append(fired, happened{key, t.value, t.due, t.due})
			if t.period == 0 {
				delete(m.pending, key)
				break
			}
			t.due += t.period
			m.pending[key] = t
		}
	}
	slices.SortFunc(fired, compareHappened)
	return fired
}

func TestService_doesWhatASimpleModelDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The bubble forbids Deadline, which rapid would call if it saw it.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			m := &model{start: time.Now().Truncate(time.Millisecond), pending: map[int]modelTimer{}}
			got := make(chan happened, 100_000)
			s, err := timer.New(timer.Config[int, int]{
				Fire:    func(e timer.Event[int, int]) { got <- happened{e.Key, e.Value, e.Due.Sub(m.start), m.now()} },
				Workers: rapid.IntRange(1, 3).Draw(t, "workers"),
				Queue:   rapid.IntRange(1, 3).Draw(t, "queue"),
				Log:     slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop(context.Background())
			key := rapid.IntRange(0, 3)
			delay := rapid.Custom(func(t *rapid.T) time.Duration {
				unit := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, time.Minute, time.Hour}).Draw(t, "unit")
				return time.Duration(rapid.IntRange(0, 70).Draw(t, "units")) * unit
			})
			value := 0
			t.Repeat(map[string]func(*rapid.T){
				"set": func(t *rapid.T) {
					k, d := key.Draw(t, "key"), delay.Draw(t, "delay")
					value++
					if _, err := s.Set(k, value, d); err != nil {
						t.Fatal(err)
					}
					m.pending[k] = modelTimer{value: value, due: m.after(d)}
				},
				"every": func(t *rapid.T) {
					k, p := key.Draw(t, "key"), time.Duration(rapid.IntRange(100, 5000).Draw(t, "period"))*time.Second
					value++
					if _, err := s.Every(k, value, p); err != nil {
						t.Fatal(err)
					}
					m.pending[k] = modelTimer{value: value, due: m.after(p), period: p}
				},
				"move": func(t *rapid.T) {
					k, d := key.Draw(t, "key"), delay.Draw(t, "delay")
					mt, ok := m.pending[k]
					if err := s.Move(k, d); ok != (err == nil) {
						t.Fatalf("Move(%d) = %v, pending %v", k, err, ok)
					}
					if ok {
						mt.due = m.after(d)
						m.pending[k] = mt
					}
				},
				"remove": func(t *rapid.T) {
					k := key.Draw(t, "key")
					mt, ok := m.pending[k]
					if v, stopped := s.Remove(k); stopped != ok || v != mt.value {
						t.Fatalf("Remove(%d) = %d, %v, want %d, %v", k, v, stopped, mt.value, ok)
					}
					delete(m.pending, k)
				},
				"sleep": func(t *rapid.T) { time.Sleep(delay.Draw(t, "sleep")) },
				"": func(t *rapid.T) {
					synctest.Wait()
					var fired []happened
					for len(got) > 0 {
						fired = append(fired, <-got)
					}
					slices.SortFunc(fired, compareHappened)
					if diff := cmp.Diff(m.fire(), fired); diff != "" {
						t.Fatalf("fired (-want +got):\n%s", diff)
					}
					if s.Len() != len(m.pending) {
						t.Fatalf("%d pending, want %d", s.Len(), len(m.pending))
					}
				},
			})
		})
	})
}
