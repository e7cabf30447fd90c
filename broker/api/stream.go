package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
)

const ndjsonType = "application/x-ndjson"

const (
	// stepOfStream is how many lines are made and sent at a time, and stepTime how long that shall take, with the wait
	// after it: so one stream has 125,000 lines a second at most, and deliveries find a processor free each millisecond.
	stepOfStream = 125
	stepTime     = time.Millisecond
	// lineTimeout is how long a client may take for a page.
	lineTimeout = 30 * time.Second
)

// A lastLine ends a stream: all was told, or there is more from the cursor on, and why.
type lastLine struct {
	End     bool            `json:"end,omitempty"`
	Cursor  string          `json:"cursor,omitempty"`
	Problem *client.Problem `json:"problem,omitempty"`
}

// stream answers with a message a line, page after page. The first page is asked of the desk; those after
// it are of this node's own state, which has all that the first one had, and later ends and beginnings as
// they come: so what waits throughout is told once, and no line is older than the question. A token that is
// revoked ends it with the page that it is in.
func (h *handler) stream(ctx context.Context, desk *query.Desk, request query.ListRequest) (*huma.StreamResponse, error) {
	left := request.Limit // 0: no bound
	if asked(ctx, "limit") && left < 1 {
		return nil, wrong("limit", strconv.Itoa(left), "is less than 1: give how many messages to stream, or leave it out for all")
	}
	request.Limit = pageOf(left)
	page, err := desk.List(ctx, request)
	if err != nil {
		return nil, problemOf(err)
	}
	return &huma.StreamResponse{Body: func(out huma.Context) {
		_, w := humago.Unwrap(out)
		w.Header().Set("Content-Type", ndjsonType)
		lines := newLines(w)
		last := walk(ctx, lines, desk.Local(), request, page, left)
		if lines.err == nil {
			lines.write(last)
			lines.flush()
		}
		if lines.err != nil {
			h.log.Debug("stream not sent", "error", lines.err)
		}
	}}, nil
}

// pageOf is how large a page to ask for where so many messages are left to tell; 0: no bound.
func pageOf(left int) int {
	if left == 0 {
		return query.MostListed
	}
	return min(left, query.MostListed)
}

// walk tells the page and those after it, and returns what the last line says.
func walk(ctx context.Context, lines *lines, desk *query.Desk, request query.ListRequest, page client.Page, left int) lastLine {
	bounded := left > 0
	pace := pace{from: time.Now()}
	for {
		for step := range slices.Chunk(page.Messages, stepOfStream) {
			for i := range step {
				lines.write(&step[i])
			}
			lines.flush()
			pace.wait(ctx)
		}
		left -= len(page.Messages)
		request.Cursor = page.Next
		switch {
		case page.Next == "":
			return lastLine{End: true}
		case lines.err != nil || bounded && left <= 0 || ctx.Err() != nil:
			return lastLine{Cursor: page.Next}
		}
		if refused := visitOf(ctx).ended(); refused != nil {
			return lastLine{Cursor: page.Next, Problem: &refused.Problem}
		}
		if bounded {
			request.Limit = pageOf(left)
		}
		var err error
		if page, err = desk.List(ctx, request); err != nil {
			return lastLine{Cursor: request.Cursor, Problem: &problemOf(err).told.Problem}
		}
	}
}

// A pace is how far a stream may be: a step for each stepTime.
type pace struct {
	from time.Time // when the next step may begin
}

// wait returns when the next step may begin, or ctx ends. A page that took long to read is caught up with, a client that
// reads slowly is not: what it left unused is lost.
func (p *pace) wait(ctx context.Context) {
	const most = 5 * stepTime
	now := time.Now()
	p.from = p.from.Add(stepTime)
	if p.from.Before(now.Add(-most)) {
		p.from = now.Add(-most)
	}
	if !p.from.After(now) {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(p.from.Sub(now)):
	}
}

// lines writes JSON values, one a line. After an error it writes nothing any more.
type lines struct {
	out     http.ResponseWriter
	control *http.ResponseController
	held    bytes.Buffer // what was written and not flushed: net/http would send it in pieces of 4 KB
	encoder *json.Encoder
	err     error
}

func newLines(w http.ResponseWriter) *lines {
	l := &lines{out: w, control: http.NewResponseController(w)}
	l.encoder = json.NewEncoder(&l.held)
	return l
}

func (l *lines) write(v any) {
	if l.err == nil {
		l.err = l.encoder.Encode(v)
	}
}

// flush sends what was written, and gives the client as long again for what comes.
func (l *lines) flush() {
	if l.err == nil {
		_, l.err = l.out.Write(l.held.Bytes())
		l.held.Reset()
	}
	if l.err == nil {
		l.err = l.control.Flush()
	}
	if l.err == nil {
		l.err = l.control.SetWriteDeadline(time.Now().Add(lineTimeout))
	}
}

// writerOf returns what huma writes to.
func writerOf(ctx huma.Context) http.ResponseWriter {
	_, w := humago.Unwrap(ctx)
	return w
}
