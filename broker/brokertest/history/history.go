// Package history holds what clients were answered, and what came out, against the promise that
// cancelling and replacing are linearizable: there must be one order of all calls, each at some moment
// between its beginning and its end, in which every answer is right. Porcupine looks for it.
package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/carillonmq/carillon/raftfsm"
)

// A Verb says what a call asks.
type Verb uint8

// The verbs.
const (
	Schedule Verb = iota
	Cancel
	Change
	Get     // what is known of the id
	List    // what waits under the id
	Deliver // the first copy of a message is in its target; nobody asked
)

// String returns the verb as a word.
func (v Verb) String() string {
	return [...]string{"schedule", "cancel", "change", "get", "list", "deliver"}[v]
}

// What the newest message of an id is.
type What uint8

// What it can be.
const (
	Nothing   What = iota // there never was one
	Waiting               // it can be cancelled
	Claimed               // nobody can do anything about it
	Cancelled             // and will never come
	Expired               // and will never come, unless it was claimed before and tried in time
	Delivered             // as is known of it
)

// maxSkew is how much sooner than by the clock of the calls a leader may find that a message has expired.
const maxSkew = int64(500 * time.Millisecond)

// A Call is one operation on an id, with what was answered.
type Call struct {
	ID     string
	Client int
	Verb   Verb
	If     raftfsm.Condition
	Exact  uint64 // with raftfsm.Exactly: the seq

	From, To int64 // nanoseconds; To is math.MaxInt64 when there was no answer

	Code   raftfsm.Code // of what changes something; 0: no answer
	Told   What         // of a Get, and of what is too late: Nothing if that was not told
	Seq    uint64       // of the answer; of a Schedule or Change without one that of the log; of a read 0 for nothing; of a Deliver its own
	Before uint64

	Expires int64 // of the message that a Schedule or a Change makes, as From and To; 0: never

	Value    string   // of the message that a Schedule or a Change makes; "": that of the one before
	Repeated bool     // it was sent more than once: the answer may tell of the effect of an earlier time
	Perhaps  []uint64 // of a Schedule or Change without an answer, where the log tells no Seq: which ones it may have
}

// Check returns nil if the calls are linearizable, and otherwise an error that tells all calls of an
// id for which they are not. It gives up after a while, which is an error as well.
func Check(calls []Call, most time.Duration) error {
	byID := make(map[string][]porcupine.Operation)
	for _, c := range calls {
		byID[c.ID] = append(byID[c.ID], porcupine.Operation{ClientId: c.Client, Input: c, Output: c, Call: c.From, Return: c.To})
	}
	model := porcupine.NondeterministicModel{
		Init:              func() []any { return []any{state{}} },
		Step:              func(s, in, _ any) []any { return step(s.(state), in.(Call)) },
		DescribeOperation: func(in, _ any) string { return in.(Call).String() },
	}
	m := model.ToModel()
	for id, operations := range byID {
		switch result := porcupine.CheckOperationsTimeout(m, operations, most); result {
		case porcupine.Ok:
		default:
			return fmt.Errorf("the calls of id %q are not linearizable (%s):\n%s", id, result, list(operations))
		}
	}
	return nil
}

func list(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	for _, o := range operations {
		fmt.Fprintf(&text, "%s\n", o.Input.(Call))
	}
	return text.String()
}

// String tells a call and its answer on one line.
func (c Call) String() string {
	what := [...]string{"nothing", "waiting", "claimed", "cancelled", "expired", "delivered"}[c.Told]
	line := fmt.Sprintf("%14v to %14v client %d: %s if %d %d: %v, %s, seq %d, before %d",
		time.Duration(c.From), time.Duration(c.To), c.Client, c.Verb, c.If, c.Exact, c.Code, what, c.Seq, c.Before)
	if len(c.Perhaps) > 0 {
		line += fmt.Sprintf(", perhaps %d", c.Perhaps)
	}
	return line
}

// A state is what is true of one id.
type state struct {
	newest  uint64
	what    What
	expires int64  // when the newest does; 0: never
	killed  string // seqs that will never come, each with a comma behind it
	let     string // seqs that a claim has let go
}

func has(seqs string, seq uint64) bool { return strings.Contains(","+seqs, fmt.Sprintf(",%d,", seq)) }

func with(seqs string, seq uint64) string { return seqs + fmt.Sprintf("%d,", seq) }

// step returns what may be true after the call. A claim may have come just before it, and its message, or one that
// nobody has claimed, may have expired then.
func step(s state, c Call) (next []any) {
	next = s.expireAndTake(c, s.take(c, next))
	if s.what == Waiting {
		s.what, s.let = Claimed, with(s.let, s.newest)
		next = s.expireAndTake(c, s.take(c, next))
	}
	return next
}

func (s state) expireAndTake(c Call, next []any) []any {
	mayExpire := s.what == Waiting || s.what == Claimed
	if !mayExpire || s.expires == 0 || c.To < s.expires-maxSkew {
		return next
	}
	s.what = Expired
	return s.take(c, next)
}

// tell appends what is true once it was told what the newest is, if that may be told. That it was delivered
// was true before anybody knew.
func (s state) tell(told What, next []any) []any {
	switch {
	case told == s.what:
		return append(next, s)
	case told == Delivered && has(s.let, s.newest) && (s.what == Claimed || s.what == Expired):
		s.what = Delivered
		return append(next, s)
	}
	return next
}

// tooLate appends the same of an answer that nothing can be done about the newest.
func (s state) tooLate(c Call, next []any) []any {
	isOver := s.what == Claimed || s.what == Expired || s.what == Delivered || s.what == Cancelled && c.Verb == Change
	switch {
	case !isOver || s.newest != c.Seq:
		return next
	case c.Told == Nothing:
		return append(next, s)
	}
	return s.tell(c.Told, next)
}

func (s state) take(c Call, next []any) []any {
	if len(c.Perhaps) > 0 {
		return s.perhaps(c, next)
	}
	switch c.Verb {
	case Schedule:
		return s.schedule(c, next)
	case Cancel:
		return s.cancel(c, next)
	case Change:
		return s.change(c, next)
	case Get:
		if s.newest == c.Seq {
			return s.tell(c.Told, next)
		}
	case List:
		if s.pending() == c.Seq {
			return append(next, s)
		}
	case Deliver:
		if has(s.let, c.Seq) && !has(s.killed, c.Seq) {
			return append(next, s)
		}
	}
	return next
}

// perhaps has the call take no effect, or make one of the messages that it may have made.
func (s state) perhaps(c Call, next []any) []any {
	next = append(next, s)
	for _, seq := range c.Perhaps {
		if seq != s.newest && !has(s.killed, seq) && !has(s.let, seq) {
			made := c
			made.Seq, made.Perhaps = seq, nil
			next = s.take(made, next)
		}
	}
	return next
}

// pending returns the seq of the message that waits, 0 for none.
func (s state) pending() uint64 {
	if s.what != Waiting {
		return 0
	}
	return s.newest
}

// holds reports whether the call's condition does.
func (s state) holds(c Call) bool {
	switch c.If {
	case raftfsm.Absent:
		return s.what != Waiting
	case raftfsm.Present:
		return s.what == Waiting
	case raftfsm.Exactly:
		return s.what == Waiting && s.newest == c.Exact
	}
	return true
}

func (s state) schedule(c Call, next []any) []any {
	before := s
	if s.what == Waiting {
		s.killed = with(s.killed, s.newest)
	}
	s.newest, s.what = c.Seq, Waiting
	s.expires = c.Expires
	switch c.Code {
	case 0: // it is in the log
		if before.holds(c) {
			return append(next, s)
		}
	case raftfsm.Scheduled:
		if before.what != Waiting && before.holds(c) {
			return append(next, s)
		}
	case raftfsm.Superseded:
		if before.what == Waiting && before.newest == c.Before && before.holds(c) {
			return append(next, s)
		}
	case raftfsm.Conflict:
		return before.conflict(c, next)
	}
	return next
}

// change takes effect where something waits, as a schedule that replaces it does.
func (s state) change(c Call, next []any) []any {
	switch c.Code {
	case 0, raftfsm.Superseded, raftfsm.Conflict:
		if s.what == Waiting {
			return s.schedule(c, next)
		}
	case raftfsm.TooLate:
		return s.tooLate(c, next)
	case raftfsm.NotFound:
		if s.what == Nothing {
			return append(next, s)
		}
	}
	return next
}

func (s state) cancel(c Call, next []any) []any {
	after := s
	after.what, after.killed = Cancelled, with(s.killed, s.newest)
	switch c.Code {
	case 0: // nobody knows
		next = append(next, s)
		if s.what == Waiting && s.holds(c) {
			next = append(next, after)
		}
		return next
	case raftfsm.WasCancelled:
		if s.what == Waiting && s.newest == c.Seq && s.holds(c) {
			return append(next, after)
		}
	case raftfsm.AlreadyCancelled:
		if s.what == Cancelled && s.newest == c.Seq {
			return append(next, s)
		}
		if c.Repeated && s.what == Waiting && s.newest == c.Seq && s.holds(c) {
			return append(next, after)
		}
	case raftfsm.TooLate:
		return s.tooLate(c, next)
	case raftfsm.NotFound:
		if s.what == Nothing {
			return append(next, s)
		}
	case raftfsm.Conflict:
		return s.conflict(c, next)
	}
	return next
}

// conflict is right where the condition does not hold, and names what waits.
func (s state) conflict(c Call, next []any) []any {
	if s.holds(c) || c.Seq != s.pending() {
		return next
	}
	return append(next, s)
}
