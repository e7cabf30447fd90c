package broker

import (
	"testing"
	"time"
)

func TestAlarm_ringsWhenItsTimeHasComeAndNotBefore(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, d := range []time.Duration{3 * time.Millisecond, 0, -time.Second} {
		if err := a.set(time.Hour); err != nil { // is replaced
			t.Fatal(err)
		}
		start := time.Now()
		if err := a.set(d); err != nil {
			t.Fatal(err)
		}
		<-a.C()
		if took := time.Since(start); took < d {
			t.Errorf("set for %v, rang after %v", d, took)
		}
	}
}
