package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// The log ends at 1000; the flush before last ended at 900.
func TestRetention_keepsTheLogThatAFollowerNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, tt := range []struct {
			name     string
			peer     peer
			spacious bool
			want     uint64
		}{
			{"never answered", peer{}, true, 900},
			{"keeps up", peer{lastIndex: 1000, contact: now}, true, 1000},
			{"is behind", peer{lastIndex: 700, contact: now}, true, 700},
			{"is far behind", peer{lastIndex: 50, contact: now}, true, 200},
			{"is silent", peer{lastIndex: 700, contact: now.Add(-2 * time.Second)}, true, 900},
			{"receives a snapshot", peer{lastIndex: 5, contact: now, snapshot: 100, receives: true}, true, 100},
			{"stutters while it receives", peer{lastIndex: 5, contact: now.Add(-5 * time.Second), snapshot: 100, receives: true}, true, 100},
			{"catches up after it", peer{lastIndex: 150, contact: now, snapshot: 100, moved: now.Add(-30 * time.Second)}, true, 150},
			{"takes nothing after it", peer{lastIndex: 150, contact: now, snapshot: 100, moved: now.Add(-2 * time.Minute)}, true, 200},
			{"hangs while it receives", peer{lastIndex: 5, contact: now.Add(-11 * time.Second), snapshot: 100, receives: true}, true, 900},
			{"receives, and the disk is nearly full", peer{lastIndex: 5, contact: now, snapshot: 100, receives: true}, false, 200},
		} {
			if got := tt.peer.needs(1000, 900, time.Second, tt.spacious); got != tt.want {
				t.Errorf("%s: the log after %d is kept, want %d", tt.name, got, tt.want)
			}
		}
	})
}
