package api

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/carillonmq/carillon/client/body"
)

// bodyTimeout is how long a body may take to come.
const bodyTimeout = requestTimeout

// whole has the whole body in memory before anything else is done with the request. So who sends it slowly,
// without end, or in part, hears the same from every node, and what is passed on to the leader is there: should
// that fail, it is not for the client's part.
//
// The deadline for reading ends with the body: net/http takes one that passes later for a client that has gone,
// and would end what is worked on.
func (h *handler) whole(to route, serve http.HandlerFunc) http.HandlerFunc {
	if to.account == nil {
		return serve // nobody reads one
	}
	most := cmp.Or(to.account.mostBody, mostRequested)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			serve(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // only a test has a writer that cannot
		text, problem := readBody(w, r, most)
		if problem != nil {
			h.complain(w, *problem)
			return
		}
		_ = control.SetReadDeadline(time.Time{})
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
		serve(w, r)
	}
}

// readBody returns the body, or why there is none.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *problem) {
	long := fmt.Sprintf("the body has more than the %d bytes that are taken here: it is too large, send less at a time", most)
	if r.ContentLength > most {
		w.Header().Set("Connection", "close") // rather than to read it all
		return nil, wrongBody(http.StatusRequestEntityTooLarge, long)
	}
	var text bytes.Buffer
	if r.ContentLength > 0 {
		text.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := text.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	slow, timed := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return text.Bytes(), nil
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, wrongBody(http.StatusRequestEntityTooLarge, long)
	case timed && slow.Timeout():
		return nil, wrongBody(http.StatusRequestTimeout, fmt.Sprintf("the body did not come within %v, nothing was done: send it again", bodyTimeout))
	}
	return nil, wrongBody(http.StatusBadRequest, fmt.Sprintf("the body ends before it is whole, nothing was done: send it again: %v", err))
}

func wrongBody(status int, words string) *problem {
	p := problemOfStatus(status, words)
	p.Problem.Field = body.Whole
	return p
}
