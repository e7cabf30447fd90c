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
	Get
	Deliver // the first copy of a message is in its target; nobody asked
)

// A Call is one operation on an id, with what was answered.
type Call struct {
	ID     string
	Client int
	Verb   Verb
	If     raftfsm.Condition
	Exact  uint64 // with raftfsm.Exactly: the seq

	From, To int64 // nanoseconds; To is math.MaxInt64 when there was no answer

	Code   raftfsm.Code // 0: no answer
	Seq    uint64       // of the answer; of a Schedule without an answer that of the log; of a Get 0 for nothing; of a Deliver its own
	Before uint64
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
	verb := [...]string{"schedule", "cancel", "get", "deliver"}[c.Verb]
	return fmt.Sprintf("%14v to %14v client %d: %s if %d %d: code %d, seq %d, before %d",
		time.Duration(c.From), time.Duration(c.To), c.Client, verb, c.If, c.Exact, c.Code, c.Seq, c.Before)
}

// A state is what is true of one id.
type state struct {
	newest uint64
	what   what
	killed string // seqs that will never come, each with a comma behind it
	let    string // seqs that a claim has let go
}

// What the newest message of an id is.
type what uint8

const (
	nothing what = iota // there never was one
	waiting
	claimed // or delivered: nobody can do anything about it
	cancelled
)

func has(seqs string, seq uint64) bool { return strings.Contains(","+seqs, fmt.Sprintf(",%d,", seq)) }

func with(seqs string, seq uint64) string { return seqs + fmt.Sprintf("%d,", seq) }

// step returns what may be true after the call. A claim may have come just before it.
func step(s state, c Call) (next []any) {
	next = s.take(c, next)
	if s.what == waiting {
		s.what, s.let = claimed, with(s.let, s.newest)
		next = s.take(c, next)
	}
	return next
}

func (s state) take(c Call, next []any) []any {
	switch c.Verb {
	case Schedule:
		return s.schedule(c, next)
	case Cancel:
		return s.cancel(c, next)
	case Get:
		if found := s.what == waiting || s.what == claimed && c.Seq != 0; found == (c.Seq != 0) && (!found || c.Seq == s.newest) {
			return append(next, s)
		}
	case Deliver:
		if has(s.let, c.Seq) && !has(s.killed, c.Seq) {
			return append(next, s)
		}
	}
	return next
}

// holds reports whether the call's condition does.
func (s state) holds(c Call) bool {
	switch c.If {
	case raftfsm.Absent:
		return s.what != waiting
	case raftfsm.Present:
		return s.what == waiting
	case raftfsm.Exactly:
		return s.what == waiting && s.newest == c.Exact
	}
	return true
}

func (s state) schedule(c Call, next []any) []any {
	before := s
	if s.what == waiting {
		s.killed = with(s.killed, s.newest)
	}
	s.newest, s.what = c.Seq, waiting
	switch c.Code {
	case 0: // it is in the log
		return append(next, s)
	case raftfsm.Scheduled:
		if before.what != waiting && before.holds(c) {
			return append(next, s)
		}
	case raftfsm.Superseded:
		if before.what == waiting && before.newest == c.Before && before.holds(c) {
			return append(next, s)
		}
	case raftfsm.Conflict:
		return before.conflict(c, next)
	}
	return next
}

func (s state) cancel(c Call, next []any) []any {
	after := s
	after.what, after.killed = cancelled, with(s.killed, s.newest)
	switch c.Code {
	case 0: // nobody knows
		next = append(next, s)
		if s.what == waiting && s.holds(c) {
			next = append(next, after)
		}
		return next
	case raftfsm.WasCancelled:
		if s.what == waiting && s.newest == c.Seq && s.holds(c) {
			return append(next, after)
		}
	case raftfsm.AlreadyCancelled:
		if s.what == cancelled && s.newest == c.Seq {
			return append(next, s)
		}
	case raftfsm.TooLate:
		if s.what == claimed && s.newest == c.Seq {
			return append(next, s)
		}
	case raftfsm.NotFound:
		if s.what == nothing {
			return append(next, s)
		}
	case raftfsm.Conflict:
		return s.conflict(c, next)
	}
	return next
}

// conflict is right where the condition does not hold, and names what waits.
func (s state) conflict(c Call, next []any) []any {
	pending := uint64(0)
	if s.what == waiting {
		pending = s.newest
	}
	if s.holds(c) || c.Seq != pending {
		return next
	}
	return append(next, s)
}
