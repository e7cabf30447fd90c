package raftfsm

import (
	"math"
	"sync"

	"github.com/hashicorp/raft"
)

// retention decides how much log stays behind a snapshot. Raft counts that in
// entries, which may be 50 bytes or 500 KB; here it is the log of one flush, so
// that a follower which was away for less catches up from the log alone. While
// a snapshot is being sent nothing is cut: the follower needs what comes after.
type retention struct {
	reload func(trailing uint64) error

	mu      sync.Mutex
	sending int
	keep    uint64 // entries to keep when nothing is being sent
}

func newRetention() *retention {
	return &retention{reload: func(uint64) error { return nil }}
}

// bind connects it to r, once raft runs.
func (t *retention) bind(r *raft.Raft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reload = func(trailing uint64) error {
		cfg := r.ReloadableConfig()
		cfg.TrailingLogs = trailing
		return r.ReloadConfig(cfg)
	}
	t.apply()
}

// hold begins the sending of a snapshot, release ends it.
func (t *retention) hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sending++
	t.apply()
}

func (t *retention) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sending--
	t.apply()
}

// set says how many entries to keep from now on.
func (t *retention) set(entries uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep = entries
	t.apply()
}

func (t *retention) apply() {
	trailing := t.keep
	if t.sending > 0 {
		trailing = math.MaxUint64
	}
	_ = t.reload(trailing) // fails for an invalid Config only, which a running one is not
}
