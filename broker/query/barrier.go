package query

import (
	"context"
	"sync"
	"time"
)

// barrierTimeout bounds how long callers wait for one entry: a leader that is cut off hears only
// after a while that it is none.
const barrierTimeout = 5 * time.Second

// Barriers let callers gather while an entry is on its way, and wait for the one after it together.
//
//	callers    a b | c d e     | f
//	entries        |--a b----->|--c d e--->|--f--->
//
// c, d and e cannot use the entry of a and b: it may have been committed before they asked, and
// another leader may have answered since. So there is one entry on its way at most, whatever is asked.
type barriers struct {
	commit func(ctx context.Context) error

	mu   sync.Mutex
	next *round // whom nobody has gone for yet
	runs bool
}

type round struct {
	done chan struct{} // closed when err is there
	err  error
}

// wait returns once an entry that was proposed after the call is committed, and all before it is applied.
func (b *barriers) wait(ctx context.Context) error {
	r := b.join()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *barriers) join() *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = &round{done: make(chan struct{})}
	}
	if !b.runs {
		b.runs = true
		go b.run()
	}
	return b.next
}

// run commits one entry after the other until nobody waits.
func (b *barriers) run() {
	for {
		r := b.take()
		if r == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), barrierTimeout)
		r.err = b.commit(ctx)
		cancel()
		close(r.done)
	}
}

func (b *barriers) take() *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.next
	b.next, b.runs = nil, r != nil
	return r
}
