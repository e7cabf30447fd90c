package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
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
	t := w.admin.nodes.trail()
	for {
		before := w.count
		done, err := w.piece(ctx, yield)
		if done || err != nil {
			return err
		}
		if w.count > before {
			t = w.admin.nodes.trail()
		}
		if err := t.follow(ctx, w.cursor); err != nil {
			return err
		}
	}
}

// A trail is made of the cursors that came since something was found. That they lead in a circle is noticed by one
// of them, in whose place a newer one comes again and again, each time after twice as many.
type trail struct {
	timeout     time.Duration // for how long a node may come no further
	mark        string
	marked      time.Time
	steps, most int
	pause       time.Duration
}

func (e *endpoints) trail() trail { return trail{timeout: e.timeout, pause: leastPause} }

// follow returns an error if there is a circle, and no way out of it for the timeout: a node that comes no further
// for a while, as when Kafka answers slowly, gives the same cursor again. It waits before that is asked with anew.
func (t *trail) follow(ctx context.Context, cursor string) error {
	if t.most > 0 && cursor == t.mark {
		if time.Since(t.marked) >= t.timeout || !pass(ctx, t.pause) {
			return cmp.Or(context.Cause(ctx), fmt.Errorf("%w: the node leads in a circle: it gives the cursor %q again and again, and tells nothing", ErrUnavailable, cut(cursor)))
		}
		t.pause = min(2*t.pause, mostPause)
		return nil
	}
	if t.steps == t.most {
		t.mark, t.marked, t.steps, t.most = cursor, time.Now(), 0, 2*t.most+1
	}
	t.steps++
	return nil
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
			w.cursor = ""
			if CheckMillis("from", w.due) == nil { // others are refused; what came before is passed over anyway
				w.filter.From = w.due // and so in the pieces after it: a cursor is of its filter
			}
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
		const what = "list dead letters"
		query := f.values()
		t := a.nodes.trail()
		for {
			var page DeadLetterPage
			if err := a.read(ctx, what, deadLettersPath, query, &page); err != nil {
				yield(DeadLetter{}, err)
				return
			}
			if len(page.DeadLetters) > 0 {
				t = a.nodes.trail()
			}
			for _, d := range page.DeadLetters {
				if !yield(d, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			if err := t.follow(ctx, page.Next); err != nil {
				yield(DeadLetter{}, fmt.Errorf("%s: %w", what, err))
				return
			}
			query.Set("cursor", page.Next)
		}
	}
}

// Get returns what is known of an id: the message that waits under it, with its payload if the token may
// read that, and what became of those before. The error is [ErrNotFound] when nothing is. A message without
// an id of its own is named by the topic/partition/offset of its record, and is searched among what is
// pending: that takes the longer the more there is. The timeout bounds each page of that search.
func (a *Admin) Get(ctx context.Context, topic, id string) (Life, error) {
	n := Name{Topic: topic, ID: id}
	what := "get " + n.String()
	query := url.Values{}
	t := a.nodes.trail()
	for {
		var known struct {
			Life
			Next string `json:"next"` // of a Finding
		}
		if err := a.read(ctx, what, n.path(""), query, &known); err != nil {
			return Life{}, err
		}
		if m := known.Message; m != nil && !m.Unreadable {
			if err := n.isOf(what, m.Topic, m.ID); err != nil {
				return Life{}, err
			}
		}
		if known.Next == "" {
			return known.Life, nil
		}
		if err := t.follow(ctx, known.Next); err != nil {
			return Life{}, fmt.Errorf("%s: %w", what, err)
		}
		query = url.Values{"cursor": {known.Next}}
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
