package node

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm/raftlog"
)

// longestHold bounds how long a heartbeat is held back, in times of quiet.after: raft's goroutine that sends
// them for a leadership which is over hears of that only between two of them.
const longestHold = 50

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

// A rounds has an idle leader speak to all its followers in one moment. Raft has a timer for each follower, at random,
// and each word wakes the leader twice: when its timer runs out, and when it is answered. So a word that tells its
// follower nothing new waits for those to the others, and their answers come together:
//
//	n2   answer ---- timer, waits ----- word -- answer
//	n3   answer ----------------- timer, word -- answer
//
// It waits for nobody who was not heard within gap, and no longer than until its own follower has heard nothing for
// that long, so that one that is gone delays nothing.
//
// What a follower is to write does not wait, nor does a word that would be in its way: raft sends one request to a
// follower after the other. Raft writes an entry to the leader's log, sees the log's new end, and then asks for a
// request to each follower; until it sees that end it prepares words of the one before. So a word waits only while
// it speaks of the log's end, and that is here before the write (announced): a word that waits by then goes, and one
// that begins to wait later speaks of an end before it, be it during the write or between write and request.
//
// Its methods may be called from any goroutine.
type rounds struct {
	gap time.Duration

	mu      sync.Mutex
	end     uint64                      // index of the log's last entry, be it that it is only being written
	heard   map[raft.ServerID]time.Time // when the follower answered last
	waiting map[raft.ServerID]bool      // a word for it
	begun   chan struct{}               // closed when those that wait are sent, and made anew
}

func newRounds(gap time.Duration) *rounds {
	return &rounds{gap: gap, heard: map[raft.ServerID]time.Time{}, waiting: map[raft.ServerID]bool{}, begun: make(chan struct{})}
}

// answered is called when the follower has answered anything.
func (r *rounds) answered(id raft.ServerID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard[id] = time.Now()
}

// wait returns when a word that tells the follower nothing new, of a log that ends there, is to be sent, and false
// when closed is closed before.
func (r *rounds) wait(id raft.ServerID, end uint64, closed <-chan struct{}) bool {
	r.mu.Lock()
	if end < r.end {
		r.mu.Unlock()
		return true
	}
	r.waiting[id] = true
	rest, begun := r.gap-time.Since(r.heard[id]), r.begun
	if rest <= 0 || r.isComplete() {
		r.begin()
	}
	r.mu.Unlock()
	limit := time.NewTimer(rest)
	defer limit.Stop()
	select {
	case <-begun:
	case <-limit.C:
		r.mu.Lock()
		r.begin()
		r.mu.Unlock()
	case <-closed:
		return false
	}
	return true
}

// grow is called before the log is written to that index, and sends what waits. A write that fails leaves the
// log shorter; then nothing waits until a term here has begun with an entry of its own.
func (r *rounds) grow(end uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = end
	if len(r.waiting) > 0 {
		r.begin()
	}
}

// isComplete reports whether there is a word for each follower that was heard lately. It is called with mu held.
func (r *rounds) isComplete() bool {
	for id, at := range r.heard {
		if !r.waiting[id] && time.Since(at) < r.gap {
			return false
		}
	}
	return true
}

// begin is called with mu held.
func (r *rounds) begin() {
	clear(r.waiting)
	close(r.begun)
	r.begun = make(chan struct{})
}

// An announced is the log as raft has it on this node: it tells rounds of each write before it begins, whatever is
// written, of commands, members or raft's own, and hang while it lasts.
type announced struct {
	*raftlog.Lean
	rounds *rounds
	hang   *hang
}

// StoreLog is StoreLogs of one.
func (l announced) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs tells before it writes.
func (l announced) StoreLogs(entries []*raft.Log) error {
	if len(entries) > 0 {
		l.rounds.grow(entries[len(entries)-1].Index)
	}
	return l.hang.write(func() error { return l.Lean.StoreLogs(entries) })
}
