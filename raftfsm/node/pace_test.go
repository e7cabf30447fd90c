package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacer_spreadsBytesOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{rate: 1000}
		began := time.Now()
		for range 20 {
			if err := p.wait(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 9500*time.Millisecond {
			t.Errorf("10,000 bytes at 1,000 a second took %v, the last half second is not waited for", took)
		}
		time.Sleep(time.Hour) // earns nothing
		began = time.Now()
		for range 3 {
			if err := p.wait(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("1,500 bytes after an idle hour took %v", took)
		}
	})
}

func TestPacer_stopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{rate: 1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.wait(ctx, 1000); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := p.wait(ctx, 1000); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
