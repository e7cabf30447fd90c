package dev

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestChild_saysWhatIsWaitedForWhenItTakesLonger(t *testing.T) {
	for after, want := range map[time.Duration]string{
		900 * time.Millisecond: "",
		10 * time.Second:       "waiting for n1: no leader is known; its log is n1.log\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			ready := func(context.Context) error {
				if time.Since(start) < after {
					return errors.New("no leader is known")
				}
				return nil
			}
			var out strings.Builder
			if err := (&child{name: "n1", log: "n1.log"}).await(t.Context(), &out, ready); err != nil || out.String() != want {
				t.Errorf("ready after %v: %q, %v, want %q", after, out.String(), err, want)
			}
		})
	}
}
