package repeats

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestAgain_isNewOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		for i, want := range []bool{false, true, true, false} {
			if got := s.Again("n2 is down"); got != want {
				t.Errorf("after %d times 20 s: %t, want %t", i, got, want)
			}
			if i == 1 && s.Again("n3 is down") {
				t.Error("another subject counts as said")
			}
			time.Sleep(Every / 3)
		}
	})
}

func TestSubjects_forgetRatherThanGrow(t *testing.T) {
	s := New()
	for i := range 10 * mostSubjects {
		s.Again(strconv.Itoa(i))
	}
	if len(s.said) > mostSubjects {
		t.Errorf("%d remembered, want at most %d", len(s.said), mostSubjects)
	}
}
