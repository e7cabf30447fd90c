// Package bulk has operations on many messages at once: what was asked by whom, how far it is, and
// what came of it. What an operation does is told by whoever leads; here it is a text that nobody looks
// into, as is the place where it goes on. Package storage holds the Set among the replicated values.
package bulk

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/codec"
)

// A State says whether an operation goes on.
type State uint8

// The states. They are written to disk.
const (
	Running  State = 1 + iota
	Stopped        // by somebody; what was done stays done
	Finished       // there is nothing more to do
)

// String returns the state's name, as users read it.
func (s State) String() string {
	switch s {
	case Running:
		return "running"
	case Stopped:
		return "stopped"
	case Finished:
		return "finished"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Bounds of a Set and of an Operation, so that the replicated values stay small.
const (
	MostRunning = 8    // operations at a time
	MostEnded   = 1000 // that are known
	// KeptFor is how long an operation is known after its end, milliseconds of the schedule's time.
	KeptFor = 24 * 60 * 60 * 1000

	MostWhat    = 4096 // bytes
	MostWho     = 256
	MostCursor  = 512
	MostProblem = 512
)

// ErrTooLong says that a text of an operation has more bytes than it may.
var ErrTooLong = errors.New("text of an operation is too long")

// CheckTexts returns an ErrTooLong if one of them is.
func CheckTexts(what, who, cursor, problem string) error {
	for _, text := range []struct {
		name, text string
		most       int
	}{{"what is asked", what, MostWhat}, {"who asks", who, MostWho}, {"cursor", cursor, MostCursor}, {"problem", problem, MostProblem}} {
		if len(text.text) > text.most {
			return fmt.Errorf("%w: %s has %d bytes: %d at most", ErrTooLong, text.name, len(text.text), text.most)
		}
	}
	return nil
}

// An Operation is one that was started.
type Operation struct {
	ID       uint64 // counted from 1, in the order of their start
	What     string // what is asked
	Who      string // in words of the user's
	UpperSeq uint64 // messages with a higher seq are not meant: they came after the start
	Started  int64  // epoch milliseconds
	Ended    int64  // likewise; 0: it runs
	State    State
	Cursor   string // where it goes on; "": at its beginning
	Counts
	Problem string // of the last one that failed, or why it was stopped
}

// Counts say what came of the messages that an operation has come to, each in one of them.
type Counts struct {
	Done     uint64
	TooLate  uint64 // they had ended, or were on their way
	NotFound uint64 // nothing is known of them any more
	Failed   uint64 // refused by who leads: what is asked cannot be done to them
}

// Plus returns the sums.
func (c Counts) Plus(d Counts) Counts {
	return Counts{c.Done + d.Done, c.TooLate + d.TooLate, c.NotFound + d.NotFound, c.Failed + d.Failed}
}

// A Set is the operations that run, and those that have ended and are known. It never changes, so
// copies share it. The zero value is empty.
type Set struct {
	started uint64      // operations that ever were: the last one's ID
	running []Operation // by ID
	ended   []Operation // in the order in which they ended
}

// Start returns the set with an operation that begins, false if as many run as may. Of o only What,
// Who, UpperSeq and Started count.
func (s Set) Start(o Operation) (Set, bool) {
	if len(s.running) >= MostRunning {
		return s, false
	}
	s.started++
	o = Operation{ID: s.started, What: o.What, Who: o.Who, UpperSeq: o.UpperSeq, Started: o.Started, State: Running}
	s.running = append(slices.Clone(s.running), o)
	return s, true
}

// Started returns how many were ever started, which is the ID of the last one.
func (s Set) Started() uint64 { return s.started }

// Running returns the operation if it runs.
func (s Set) Running(id uint64) (Operation, bool) {
	at, found := s.find(id)
	if !found {
		return Operation{}, false
	}
	return s.running[at], true
}

func (s Set) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.running, id, func(o Operation, id uint64) int { return cmp.Compare(o.ID, id) })
}

// With returns the set with o in the place of the running one with its ID, which there is. If o has
// ended it runs no more, and of more than MostEnded the one that ended first is forgotten.
func (s Set) With(o Operation) Set {
	at, _ := s.find(o.ID)
	s.running = slices.Clone(s.running)
	if o.State == Running {
		s.running[at] = o
		return s
	}
	s.running = slices.Delete(s.running, at, at+1)
	s.ended = append(slices.Clone(s.ended[max(0, len(s.ended)+1-MostEnded):]), o)
	return s
}

// Forget returns the set without those that have ended KeptFor before now, epoch milliseconds. They go
// in the order in which they ended: one whose time lies ahead holds up those behind it.
func (s Set) Forget(now int64) Set {
	for len(s.ended) > 0 && s.ended[0].Ended < now-KeptFor {
		s.ended = s.ended[1:]
	}
	return s
}

// All returns all that are known, the newest first.
func (s Set) All() []Operation {
	all := append(slices.Clone(s.running), s.ended...)
	slices.SortFunc(all, func(a, b Operation) int { return cmp.Compare(b.ID, a.ID) })
	return all
}

// Append writes the set:
//
//	| started uvarint | n uvarint | n x operation that runs | n uvarint | n x operation that has ended |
//
// where an operation is
//
//	| id uvarint | what | who | upper seq uvarint | started varint | ended varint | state u8 | cursor |
//	| done, too late, not found, failed: uvarints | problem |
func (s Set) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, s.started)
	for _, some := range [][]Operation{s.running, s.ended} {
		b = binary.AppendUvarint(b, uint64(len(some)))
		for i := range some {
			b = some[i].append(b)
		}
	}
	return b
}

func (o *Operation) append(b []byte) []byte {
	b = binary.AppendUvarint(b, o.ID)
	b = codec.AppendString(codec.AppendString(b, o.What), o.Who)
	b = binary.AppendUvarint(b, o.UpperSeq)
	b = binary.AppendVarint(binary.AppendVarint(b, o.Started), o.Ended)
	b = codec.AppendString(append(b, byte(o.State)), o.Cursor)
	for _, n := range []uint64{o.Done, o.TooLate, o.NotFound, o.Failed} {
		b = binary.AppendUvarint(b, n)
	}
	return codec.AppendString(b, o.Problem)
}

// leastOperation is how many bytes an operation takes at least.
const leastOperation = 13

// Read reads what Append wrote. It fails the decoder where that is not what it wrote.
func Read(d *codec.Decoder) Set {
	s := Set{started: d.Uvarint()}
	last := uint64(0)
	for range d.CountOf(leastOperation) {
		o := read(d)
		if o.State != Running || o.ID <= last || o.ID > s.started || len(s.running) == MostRunning {
			d.Fail("running operation out of its order")
			return Set{}
		}
		s.running, last = append(s.running, o), o.ID
	}
	for range d.CountOf(leastOperation) {
		o := read(d)
		if o.State != Stopped && o.State != Finished || o.ID == 0 || o.ID > s.started || len(s.ended) == MostEnded {
			d.Fail("ended operation out of its bounds")
			return Set{}
		}
		s.ended = append(s.ended, o)
	}
	return s
}

func read(d *codec.Decoder) Operation {
	return Operation{
		ID: d.Uvarint(), What: d.Text(), Who: d.Text(), UpperSeq: d.Uvarint(), Started: d.Varint(), Ended: d.Varint(),
		State: State(d.Byte()), Cursor: d.Text(), Counts: Counts{d.Uvarint(), d.Uvarint(), d.Uvarint(), d.Uvarint()}, Problem: d.Text(),
	}
}
