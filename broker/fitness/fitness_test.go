package fitness

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/report"
)

// A disk that is behind with its flushes has room for moments only, again and again: that is no reason to move.
func TestFitness_knowsALackWithoutAGap(t *testing.T) {
	noRoom := errors.New("no room")
	for name, test := range map[string]struct {
		room  func(since time.Duration) error
		lasts bool
	}{
		"room for 150 ms of each second, never at a look at Kafka": {func(since time.Duration) error {
			if moment := since % time.Second; moment > 500*time.Millisecond && moment < 650*time.Millisecond {
				return nil
			}
			return noRoom
		}, false},
		"none": {func(time.Duration) error { return noRoom }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			said := report.New()
			here := New(said, func() error { return test.room(time.Since(began)) }, func() []string { return nil })
			lasted := false
			looks := time.NewTicker(time.Second)
			defer looks.Stop()
			for time.Since(began) < 5*time.Minute {
				select {
				case <-looks.C:
					said.HearKafka(true, time.Now())
				case <-here.RoomMayReturn():
				}
				found, fit := here.Look()
				if fit > 0 && found.Any() {
					t.Fatalf("%s: fit for %v though %v", name, fit, found)
				}
				lasted = lasted || found.Lasting(Patience).Any()
			}
			if lasted != test.lasts {
				t.Errorf("%s: a lack of ten seconds was found: %t", name, lasted)
			}
		})
	}
}

// What was lacking lately is no reason to call a node fit for as long as Kafka has answered.
func TestFitness_isFitSinceNothingWasLacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := report.New()
		unreached := []string{"kafka2:9092"}
		here := New(said, func() error { return nil }, func() []string { return unreached })
		said.HearKafka(true, time.Now())
		for range 600 {
			time.Sleep(time.Second)
			here.Look()
		}
		unreached = nil
		for range 3 {
			time.Sleep(time.Second)
			here.Look()
		}
		if _, fit := here.Look(); fit > 4*time.Second {
			t.Errorf("fit for %v, 3 s after a Kafka broker did not answer", fit)
		}
	})
}

// Nobody looks for room while others are asked for their fitness. There may have been room meanwhile.
func TestFitness_knowsNothingOfAGapThatItDidNotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noRoom := errors.New("no room")
		here := New(report.New(), func() error { return noRoom }, func() []string { return nil })
		here.Look()
		time.Sleep(Patience)
		if found, _ := here.Look(); found.Lasting(Patience).Any() {
			t.Errorf("%v, of two moments that were seen", found)
		}
	})
}
