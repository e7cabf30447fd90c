package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
)

const (
	// listVisits bounds the memtable entries that a page looks at under the lock, half a millisecond.
	listVisits = 2048
	// listChunks bounds the chunks that a page reads, beside one per segment.
	listChunks = 64
	// listBodies bounds the bodies that a page has, in bytes, unless one alone has more.
	listBodies = 4 << 20
)

// A ListQuery says what a page is to have.
type ListQuery struct {
	From  Ref   // it begins at or after
	Last  int64 // and has nothing that is due later
	Limit int   // messages at most
	// Keep says which messages are meant, nil: all. It is shown them without bodies, must be quick,
	// must not call the store, and must not hold on to the entry.
	Keep func(m *Moment, e *Entry) bool
	// Bodies: the bodies are wanted, too.
	Bodies bool
}

// Listed is a message on a page.
type Listed struct {
	Item
	Standing Standing
	Body     []byte // if it was asked for
}

// Entry returns it as it was accepted. The body is that of the page, not a copy.
func (l *Listed) Entry() Entry {
	return Entry{Due: l.Due, Seq: l.Seq, Target: l.Target, Topic: l.Topic, ID: l.ID, Expires: l.Expires, Body: l.Body}
}

// Page is a part of what is pending, in order of delivery, at one log index.
type Page struct {
	Moment Moment
	Items  []Listed
	Next   Ref  // where the page after it begins
	Done   bool // there is nothing at or after Next
}

// List returns the messages alive that the query means. All of the page is of one log index, which Moment tells.
// It does a bounded amount of work, so a page may be short, or empty, with more to come. A walk
// over pages sees once whatever was there from its first page to its last: nothing changes its
// place, and what is accepted or dies between two pages is on those after or before it alone.
//
// It may be called from any goroutine. It waits for a command that is being carried out, which ctx bounds, and may wait
// for the disk.
func (s *Store) List(ctx context.Context, q ListQuery) (Page, error) {
	l := list{ListQuery: q, page: Page{Next: q.From}}
	if l.Keep == nil {
		l.Keep = func(*Moment, *Entry) bool { return true }
	}
	if err := s.lockAtIndex(ctx); err != nil {
		return Page{}, fmt.Errorf("list: %w", err)
	}
	l.page.Moment = s.moment()
	l.walk.lookAtMemory(s, q.From, listVisits, q.Limit, l.means)
	s.mu.Unlock()
	defer segment.ReleaseAll(l.walk.segments)
	if err := disk.Guard(l.run); err != nil {
		return Page{}, fmt.Errorf("list: %w", err)
	}
	return l.page, nil
}

type list struct {
	ListQuery
	walk walk
	page Page
}

// means reports whether the entry is one for the page, and takes its body away. Memory may hold what is dead, as files do.
func (l *list) means(e *Entry) bool {
	e.Body = nil
	return e.Due <= l.Last && l.page.Moment.alive.Contains(e.Seq) && l.Keep(&l.page.Moment, e)
}

func (l *list) run() error {
	defer l.walk.close()
	if err := l.walk.start(l.From); err != nil {
		return err
	}
	bodies := 0
	for looked := 0; ; looked++ {
		e := l.walk.peek()
		if e == nil {
			l.page.Next, l.page.Done = l.walk.end(l.page.Next)
			return nil
		}
		if e.Due > l.Last {
			l.page.Done = true
			return nil
		}
		if len(l.page.Items) >= l.Limit || bodies >= listBodies {
			return nil
		}
		// To begin may take more chunks than a page may read: each page comes on nevertheless.
		if looked > 0 && looked%64 == 0 && l.walk.spent(listChunks) {
			return nil
		}
		body := e.Body
		if l.means(e) {
			e.Body = body
			if err := l.take(e); err != nil {
				return err
			}
			if l.Bodies {
				bodies += len(body)
			}
		}
		l.page.Next = Ref{Due: e.Due, Seq: e.Seq + 1}
		if err := l.walk.skip(); err != nil {
			return err
		}
	}
}

// take puts the entry on the page.
func (l *list) take(e *Entry) error {
	listed := Listed{Item: itemOf(e), Standing: l.page.Moment.Standing(e)}
	if l.Bodies {
		var err error
		if listed.Body, err = l.walk.body(); err != nil {
			return err
		}
	}
	if l.page.Items == nil { // most pages are full
		l.page.Items = make([]Listed, 0, min(l.Limit, 1024))
	}
	l.page.Items = append(l.page.Items, listed)
	return nil
}

// Known is what is known of an id at one log index.
type Known struct {
	Moment  Moment
	Message *Listed            // the newest that is alive, with its body; nil: none is
	Life    []outcomes.Outcome // as of Store.Life
	Since   int64              // as of Store.OutcomesSince
}

// Get returns what is known of an id of a delay topic. All of it is of one log index. A message from before LevelThree
// has neither Topic nor ID: its body tells them. Get blocks as List does.
func (s *Store) Get(ctx context.Context, topic, id string) (Known, error) {
	for {
		if ctx.Err() != nil {
			return Known{}, fmt.Errorf("get %q of %s: %w", id, topic, context.Cause(ctx))
		}
		seen := s.seen()
		found, ok, err := s.Lookup(topic, id)
		if err != nil {
			return Known{}, fmt.Errorf("get: %w", err)
		}
		var entries []Entry
		if ok {
			if entries, err = s.Read([]Ref{found.Ref}, nil); err != nil {
				return Known{}, fmt.Errorf("get %q of %s: %w", id, topic, err)
			}
			if len(entries) == 0 {
				continue // it has died meanwhile
			}
			entries[0].Expires = found.Expires
		}
		if err := s.lockAtIndex(ctx); err != nil {
			return Known{}, fmt.Errorf("get %q of %s: %w", id, topic, err)
		}
		k, still := s.known(name.Of(topic, id), entries, seen)
		s.mu.Unlock()
		if still {
			return k, nil
		}
	}
}

func (s *Store) seen() []*segment.Segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.segments
}

// known returns what is known now, if the entry, or none, is still the newest of the name: a newer one
// lies in memory as long as no segment has come since it was looked up. The caller holds mu.
func (s *Store) known(h name.Hash, entry []Entry, seen []*segment.Segment) (Known, bool) {
	newest, _, _ := s.findInTables(h)
	if !slices.Equal(s.segments, seen) {
		return Known{}, false
	}
	k := Known{Moment: s.moment(), Life: s.outcomes.Life(h), Since: s.outcomes.Since()}
	if len(entry) == 0 {
		return k, newest.Seq == 0
	}
	e := &entry[0]
	k.Message = &Listed{Item: itemOf(e), Standing: k.Moment.Standing(e), Body: e.Body}
	return k, s.alive.Contains(e.Seq) && newest.Seq <= e.Seq
}
