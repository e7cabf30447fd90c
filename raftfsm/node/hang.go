package node

import (
	"sync"
	"time"
)

// mostHang is how long a write of the leader's log may take before it falls silent.
const mostHang = 10 * time.Second

// A hang follows the writes of the log, which raft's main loop waits for. While one hangs the leader commits nothing, cannot hand
// leadership over, and does not look whether it still has a majority; but heartbeats leave beside that loop, and
// would have the others content with it for as long as its disk takes. So they end, and the others elect one of
// them. When the write ends at last raft hears of the new term, and follows.
//
// Its methods may be called from any goroutine; the log is written by one at a time.
type hang struct {
	mu    sync.Mutex
	since time.Time // when the write began that is under way; zero: none is
}

// write calls f, which writes the log.
func (h *hang) write(f func() error) error {
	h.set(time.Now())
	defer h.set(time.Time{})
	return f()
}

func (h *hang) set(since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = since
}

// lasts reports whether a write has taken too long.
func (h *hang) lasts() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.since.IsZero() && time.Since(h.since) > mostHang
}
