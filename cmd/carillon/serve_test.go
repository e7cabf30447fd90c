package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestServe_endsThoughItsDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("not flushed")
		if err := inTime(func() error { time.Sleep(closePatience / 2); return failed }); !errors.Is(err, failed) {
			t.Errorf("closed with %v", err)
		}
		begun, release := time.Now(), make(chan struct{})
		err := inTime(func() error { <-release; return nil })
		if err == nil || !strings.Contains(err.Error(), "its disk hangs") || time.Since(begun) != closePatience {
			t.Errorf("a disk that hangs: %v after %v", err, time.Since(begun))
		}
		close(release)
	})
}
