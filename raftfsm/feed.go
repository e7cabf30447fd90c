package raftfsm

import (
	"sync"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// An Event tells a leader's scheduler what one command of the log has done.
type Event struct {
	Index    uint64
	Accepted []storage.Item   // ascending by Seq
	Claim    *storage.Claim   // as it stands after the command, without holds; nil if unchanged
	Killed   []storage.SeqRun // as proposed: may hold seqs that were dead before
	Held     []Held           // what was paused or resumed, and topics whose holds a claim changed
	Bounds   *pause.Bounds    // of what is paused, after a command that may have changed them; else nil
}

// A Held says how it stands after a command with a delay topic or target that can be paused.
type Held struct {
	Kind    pause.Kind
	Name    string
	Paused  bool
	Held    bool  // and then
	Through int64 // how far it is claimed
	Mark    storage.Ref
}

// A Feed is the one ordered queue from Apply to the scheduler of a term. Apply
// never waits for it: at most its capacity of accepted items is kept, what comes
// above is dropped and remembered by its lowest (due, seq) alone. Claims and
// kills are never lost; while the queue is full they are merged into its last
// event. One goroutine takes; any may close.
type Feed struct {
	ready    chan struct{}
	capacity int
	detach   func()

	mu      sync.Mutex
	events  []Event
	items   int // accepted items in events
	lost    storage.Ref
	didLose bool
}

func newFeed(capacity int, detach func()) *Feed {
	return &Feed{ready: make(chan struct{}, 1), capacity: capacity, detach: detach}
}

// Ready is signalled when something waits. It may be signalled once too often.
func (f *Feed) Ready() <-chan struct{} { return f.ready }

// Take returns all that waits in the order of the log, appended to buf[:0], and
// whether accepted items were dropped since the last Take: then lost is the
// lowest of them, and all others are found in storage from there on. It does
// not block.
func (f *Feed) Take(buf []Event) (events []Event, lost storage.Ref, didLose bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events = append(buf[:0], f.events...)
	lost, didLose = f.lost, f.didLose
	clear(f.events)
	f.events, f.items, f.lost, f.didLose = f.events[:0], 0, storage.Ref{}, false
	return events, lost, didLose
}

// Close detaches the feed from the node: it gets nothing more, but for what is
// being applied at this moment. What waits can still be taken.
func (f *Feed) Close() { f.detach() }

// put is called by the FSM goroutine alone.
func (f *Feed) put(e Event) {
	f.mu.Lock()
	full := f.items+len(e.Accepted) > f.capacity
	if full {
		for _, it := range e.Accepted {
			if !f.didLose || it.Ref.Compare(f.lost) < 0 {
				f.lost, f.didLose = it.Ref, true
			}
		}
		e.Accepted = nil
	}
	f.items += len(e.Accepted)
	// Events without items would pile up behind a scheduler that stands still.
	if last := len(f.events) - 1; last >= 0 && (full || last >= f.capacity) && len(e.Accepted) == 0 {
		f.events[last].merge(e)
	} else {
		f.events = append(f.events, e)
	}
	f.mu.Unlock()
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// merge adds to e what later did without accepting anything.
func (e *Event) merge(later Event) {
	e.Index = later.Index
	e.Held = append(e.Held, later.Held...)
	if later.Claim != nil {
		e.Claim = later.Claim
	}
	if later.Bounds != nil {
		e.Bounds = later.Bounds
	}
	for _, run := range later.Killed {
		if n := len(e.Killed); n > 0 && e.Killed[n-1].Last+1 == run.First {
			e.Killed[n-1].Last = run.Last
			continue
		}
		e.Killed = append(e.Killed, run)
	}
}
