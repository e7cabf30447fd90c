package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"time"
)

// Messages returns what is pending of what the filter means, in order of delivery, however much that is.
// What waits from the first message to the last comes once; what is changed meanwhile may come again, with
// another seq. Nothing is asked before the first message is wanted. When a node fails in between, another
// one goes on. The sequence ends after an error.
func (a *Admin) Messages(ctx context.Context, f Filter) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		w := walk{admin: a, filter: f}
		err := w.run(ctx, func(m Message) bool { return yield(m, nil) })
		if err != nil && !errors.Is(err, errEnough) {
			yield(Message{}, fmt.Errorf("list messages: %w", err))
		}
	}
}

// errEnough ends a walk whose caller wants no more.
var errEnough = errors.New("enough")

// A walk reads what is pending in pieces, as nodes give them. A piece is lines of JSON, the last of which
// says how to go on:
//
//	{"topic": ...}           a Message
//	{"cursor": "..."}        there may be more: ask for it with this cursor
//	{"end": true}            there is none
//	{"problem": {...}}       why there is nothing more
//
// or, from a node of an older version, one Page. A piece that breaks is asked for anew from the message
// that came last: it is (due, seq) that orders them, so a filter from its due time on has it among the
// first, and those up to it are passed over.
type walk struct {
	admin  *Admin
	filter Filter
	cursor string
	// What was handed on last, and how many there were.
	due   int64
	seq   uint64
	count int
}

// A line is one of a piece.
type line struct {
	Message
	Cursor  string   `json:"cursor"`
	End     bool     `json:"end"`
	Problem *Problem `json:"problem"`
}

func (w *walk) run(ctx context.Context, yield func(Message) bool) error {
	for {
		done, err := w.piece(ctx, yield)
		if done || err != nil {
			return err
		}
	}
}

// piece reads one, from whichever endpoint gives it, and reports whether it was the last.
func (w *walk) piece(ctx context.Context, yield func(Message) bool) (done bool, err error) {
	nodes := w.admin.nodes
	before := w.count
	quiet := time.Now()
	for round := nodes.round(); ; {
		done, tried := w.try(ctx, round.turn(ctx, true), quiet.Add(nodes.timeout), yield)
		switch {
		case tried.err == nil:
			round.answered()
			return done, nil
		case !tried.undone && !tried.unknown:
			return false, tried.err
		case w.count > before: // it broke on the way
			before, quiet = w.count, time.Now()
			w.cursor, w.filter.From = "", w.due // and so in the pieces after it: a cursor is of its filter
		}
		round.failed(ctx)
		waits, cancel := context.WithDeadline(ctx, quiet.Add(nodes.timeout))
		goesOn := round.next(waits, tried)
		cancel()
		if !goesOn {
			if errors.Is(tried.err, ErrUnavailable) {
				return false, tried.err
			}
			return false, fmt.Errorf("%w: %w", ErrUnavailable, tried.err)
		}
	}
}

// try asks one endpoint for a piece, of which something is to come before the deadline.
func (w *walk) try(ctx context.Context, turn turn, deadline time.Time, yield func(Message) bool) (done bool, t try) {
	nodes := w.admin.nodes
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(time.Until(deadline), func() { cancel(fmt.Errorf("nothing came for %v", nodes.timeout)) })
	defer silence.Stop()

	query := w.admin.asked(w.filter.values())
	if w.cursor != "" {
		query.Set("cursor", w.cursor)
	}
	answer, t := nodes.open(ctx, cancel, turn, call{method: http.MethodGet, path: messagesPath, query: query, header: map[string]string{"Accept": "application/x-ndjson, application/json;q=0.5"}}, nil)
	if t.err != nil {
		return false, t
	}
	defer answer.Body.Close()
	next := func(m Message) bool {
		silence.Stop() // the caller takes its time
		defer silence.Reset(nodes.timeout)
		return w.next(m, yield)
	}
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind == "application/json" {
		done, t.err = w.page(answer.Body, next)
	} else {
		done, t.err = w.lines(answer.Body, next)
	}
	if t.err != nil && !errors.Is(t.err, errEnough) {
		t.unknown = !errors.As(t.err, new(*Problem)) || errors.Is(t.err, ErrUnavailable)
		t.err = fmt.Errorf("read the answer of %s: %w", turn.base, errors.Join(t.err, context.Cause(ctx)))
	}
	return done, t
}

// next hands on what was not handed on before.
func (w *walk) next(m Message, yield func(Message) bool) bool {
	if w.count > 0 && (m.Due < w.due || m.Due == w.due && m.Seq <= w.seq) {
		return true
	}
	w.due, w.seq, w.count = m.Due, m.Seq, w.count+1
	return yield(m)
}

func (w *walk) lines(body io.Reader, next func(Message) bool) (done bool, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, mostAnswered)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return false, err
		}
		switch {
		case l.End:
			return true, nil
		case l.Problem != nil:
			return false, l.Problem
		case l.Cursor != "":
			w.cursor = l.Cursor
			return false, nil
		case l.Seq == 0:
			return false, errors.New("a line is no message, is this the api address of a node?")
		case !next(l.Message):
			return false, errEnough
		}
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	return false, io.ErrUnexpectedEOF
}

func (w *walk) page(body io.Reader, next func(Message) bool) (done bool, err error) {
	text, err := readAll(body)
	if err != nil {
		return false, err
	}
	var page Page
	if err := decode(text, &page); err != nil {
		return false, err
	}
	for _, m := range page.Messages {
		if !next(m) {
			return false, errEnough
		}
	}
	w.cursor = page.Next
	return page.Next == "", nil
}

// DeadLetters returns the dead letters that the filter means, the newest first. Its Topic is the delay topic
// that they came by. What is written meanwhile may come or not. The sequence ends after an error.
func (a *Admin) DeadLetters(ctx context.Context, f Filter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		query := f.values()
		for {
			var page DeadLetterPage
			if err := a.read(ctx, "list dead letters", deadLettersPath, query, &page); err != nil {
				yield(DeadLetter{}, err)
				return
			}
			for _, d := range page.DeadLetters {
				if !yield(d, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.Set("cursor", page.Next)
		}
	}
}

// The wait between two looks at an operation begins at one and doubles to the other.
const leastLook, mostLook = 100 * time.Millisecond, 2 * time.Second

// WaitOperation blocks until the operation has ended, or until ctx ends, and returns how it is then. It
// calls progress, unless that is nil, with each state that it sees, from the goroutine of the caller.
func (a *Admin) WaitOperation(ctx context.Context, id string, progress func(Operation)) (Operation, error) {
	for wait := leastLook; ; wait = min(2*wait, mostLook) {
		o, err := a.Operation(ctx, id)
		if err != nil {
			return o, err
		}
		if progress != nil {
			progress(o)
		}
		if o.State != OperationRunning {
			return o, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return o, fmt.Errorf("wait for operation %s: %w", id, context.Cause(ctx))
		}
	}
}
