//go:build !linux

package wheel

import (
	"time"
)

var began = time.Now()

// Elsewhere than on Linux the wall clock has to do.
func cpuTime() time.Duration    { return time.Since(began) }
func threadTime() time.Duration { return time.Since(began) }
