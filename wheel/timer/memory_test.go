package timer_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/carillonmq/carillon/wheel/timer"
)

type (
	payload        [100]byte
	payloadService = timer.Service[string, *payload]
	payloadTimer   = timer.Timer[string, *payload]
)

func newPayloadService(t *testing.T) *payloadService {
	t.Helper()
	s, err := timer.New(timer.Config[string, *payload]{Fire: func(timer.Event[string, *payload]) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestTimer_keepsNoValueOnceItHasEnded(t *testing.T) {
	for how, end := range map[string]func(*payloadService, *payloadTimer){
		"fired":     func(*payloadService, *payloadTimer) { time.Sleep(time.Hour) },
		"stopped":   func(_ *payloadService, tm *payloadTimer) { tm.Stop() },
		"removed":   func(s *payloadService, _ *payloadTimer) { s.Remove("a") },
		"set again": func(s *payloadService, _ *payloadTimer) { _, _ = s.Set("a", nil, time.Hour) },
		"drained":   func(s *payloadService, _ *payloadTimer) { _, _ = s.Drain() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newPayloadService(t)
			value := new(payload)
			weakly := weak.Make(value)
			tm, err := s.Set("a", value, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			end(s, tm)
			synctest.Wait()
			runtime.GC()
			if weakly.Value() != nil {
				t.Errorf("a timer that was %s keeps its value", how)
			}
			runtime.KeepAlive(tm)
		})
	}
}

func TestService_keepsNoTimerThatHasFired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPayloadService(t)
		tm, err := s.Set("a", nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		weakly := weak.Make(tm)
		time.Sleep(time.Hour)
		synctest.Wait()
		runtime.GC()
		if weakly.Value() != nil {
			t.Error("the service keeps a timer that has fired")
		}
	})
}

// What the wheel keeps is 24 bytes per timer; the keys here are four times as long.
func TestService_givesTheMemoryOfALargeMapBack(t *testing.T) {
	type key [100]byte
	const n = 50_000
	for how, empty := range map[string]func(s *timer.Service[key, int], keys []key){
		"removed": func(s *timer.Service[key, int], keys []key) {
			for _, k := range keys {
				s.Remove(k)
			}
		},
		"drained": func(s *timer.Service[key, int], _ []key) { _, _ = s.Drain() },
	} {
		s, err := timer.New(timer.Config[key, int]{Fire: func(timer.Event[key, int]) {}})
		if err != nil {
			t.Fatal(err)
		}
		keys := make([]key, n)
		before := heap()
		for i := range keys {
			binary.NativeEndian.PutUint64(keys[i][:], uint64(i))
			if _, err := s.Set(keys[i], i, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		empty(s, keys)
		if grown := heap() - before; grown > n*50 {
			t.Errorf("%d bytes are kept of %d timers that were %s", grown, n, how)
		}
		runtime.KeepAlive(keys)
		if _, err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// heap returns the bytes that are in use after a collection.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
