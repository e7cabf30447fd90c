package node

import (
	"sync"
	"time"
)

// longestHold bounds how long a heartbeat is held back, in times of quiet.after: raft's goroutine that sends
// them for a leadership which is over hears of that only between two of them.
const longestHold = 10

// A quiet tells for how long a follower has taken nothing but heartbeats. While the log is sent as it should be
// those are held back, and no timer runs out for it: each that does wakes an idle process.
//
// Raft sends something of the log at least every two CommitTimeouts, less than after, so that what may keep a
// follower waiting is a request that is not answered, or what is read from the disk between two of them. Raft
// reads nothing for a follower that has all there is. So the alarm is set from the beginning of a request until
// the follower has said that it has all:
//
//	idle       request -- answer                    request -- answer
//	alarm      set        stopped                   set        stopped
//	busy       entries -- answer  entries ...       request -- no answer
//	alarm      set                                  ...        rings, after the last answer
//
// Its methods may be called from any goroutine.
type quiet struct {
	after time.Duration

	mu    sync.Mutex
	taken time.Time // the last time
	set   bool      // alarm will ring
	alarm *time.Timer
	rang  chan struct{} // closed when it rings, and made anew
}

func newQuiet(after time.Duration) *quiet {
	q := &quiet{after: after, rang: make(chan struct{})}
	q.alarm = time.AfterFunc(after, q.ring)
	q.alarm.Stop()
	return q
}

// begin is called before anything but a heartbeat is prepared for the follower.
func (q *quiet) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setAlarm()
}

// took is called when the follower has taken it. all: there was nothing more to send.
func (q *quiet) took(all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = time.Now()
	if all {
		q.set = false
		q.alarm.Stop()
	} else {
		q.setAlarm()
	}
}

// setAlarm is called with mu held.
func (q *quiet) setAlarm() {
	if !q.set {
		q.set = true
		q.alarm.Reset(max(0, q.rest()))
	}
}

// rest returns how long it takes until it has been quiet for long enough, not above 0 when it has. It is called
// with mu held.
func (q *quiet) rest() time.Duration { return q.after - time.Since(q.taken) }

func (q *quiet) ring() {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch rest := q.rest(); {
	case !q.set: // stopped as it rang
	case rest > 0: // entries were taken meanwhile
		q.alarm.Reset(rest)
	default:
		q.set = false
		close(q.rang)
		q.rang = make(chan struct{})
	}
}

// wait returns when it has been quiet for long enough, or at the end of the longest hold, and false when closed
// is closed before.
func (q *quiet) wait(closed <-chan struct{}) bool {
	limit := time.NewTimer(longestHold * q.after)
	defer limit.Stop()
	for {
		q.mu.Lock()
		rest, rang := q.rest(), q.rang
		q.mu.Unlock()
		if rest <= 0 {
			return true
		}
		select {
		case <-rang:
		case <-limit.C:
			return true
		case <-closed:
			return false
		}
	}
}
