package api

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/carillonmq/carillon/client/body"
	"github.com/carillonmq/carillon/client/head"
)

// bodyTimeout is how long a body may take to come.
const bodyTimeout = requestTimeout

// whole has the whole body in memory before anything else is done with the request. So who sends it slowly,
// without end, or in part, hears the same from every node, and what is passed on to the leader is there: should
// that fail, it is not for the client's part.
//
// The deadline for reading ends with the body: net/http takes one that passes later for a client that has gone,
// and would end what is worked on.
func (h *handler) whole(to route, serve http.HandlerFunc) func(http.ResponseWriter, *http.Request, *place) {
	most := int64(mostRequested)
	if to.account != nil {
		most = cmp.Or(to.account.mostBody, most)
	}
	return func(w http.ResponseWriter, r *http.Request, room *place) {
		if to.account == nil || r.Body == nil || r.Body == http.NoBody { // nobody reads one, or there is none
			serve(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // only a test has a writer that cannot
		text, problem := readBody(w, r, most, room)
		if problem != nil {
			h.complain(w, *problem)
			return
		}
		if text.length > 0 && !to.account.takesBody {
			h.complain(w, refuses(*head.Unread(string(text.pieces[0][:min(len(text.pieces[0]), 100)]))).told)
			return
		}
		_ = control.SetReadDeadline(time.Time{})
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(&text.pieces), text.length, nil
		serve(w, r)
	}
}

// A bodyText is a body that has come, in pieces.
type bodyText struct {
	pieces net.Buffers
	length int64
}

// errNoRoom says that there is no room for what comes.
var errNoRoom = errors.New("no room for the body")

// readBody returns the body, or why there is none.
func readBody(w http.ResponseWriter, r *http.Request, most int64, room *place) (bodyText, *problem) {
	long := fmt.Sprintf("the body has more than the %d bytes that are taken here: it is too large, send less at a time", most)
	if r.ContentLength > most {
		w.Header().Set("Connection", "close") // rather than to read it all
		return bodyText{}, wrongBody(http.StatusRequestEntityTooLarge, long)
	}
	text, err := readPieces(http.MaxBytesReader(w, r.Body, most), r.ContentLength, room)
	slow, timed := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, errNoRoom):
		w.Header().Set("Connection", "close")
		return bodyText{}, &problem{Problem: noRoom()}
	case errors.As(err, new(*http.MaxBytesError)):
		return bodyText{}, wrongBody(http.StatusRequestEntityTooLarge, long)
	case timed && slow.Timeout():
		return bodyText{}, wrongBody(http.StatusRequestTimeout, fmt.Sprintf("the body did not come within %v, nothing was done: send it again", bodyTimeout))
	}
	return bodyText{}, wrongBody(http.StatusBadRequest, fmt.Sprintf("the body ends before it is whole, nothing was done: send it again: %v", err))
}

// readPieces reads to the end. It takes room for a piece only once what came before fills the others, whatever
// length the client has declared; less than none: it has not.
func readPieces(from io.Reader, declared int64, room *place) (text bodyText, err error) {
	var piece []byte
	for err == nil {
		if len(piece) == cap(piece) {
			size := int64(leastBody)
			if declared >= 0 {
				size = min(size, declared-text.length+1) // one for the end
			}
			if !room.hold(text.length + size) {
				return bodyText{}, errNoRoom
			}
			piece = make([]byte, 0, size)
			text.pieces = append(text.pieces, piece)
		}
		var n int
		n, err = from.Read(piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		text.pieces[len(text.pieces)-1] = piece
		text.length += int64(n)
	}
	if err != io.EOF {
		return bodyText{}, err
	}
	return text, nil
}

func wrongBody(status int, words string) *problem {
	p := problemOfStatus(status, words)
	p.Problem.Field = body.Whole
	return p
}
