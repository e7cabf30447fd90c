package api

import (
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/carillonmq/carillon/client"
)

const (
	// mostAtOnce bounds the bodies of requests that are worked on at a time, in bytes.
	mostAtOnce = 128 << 20
	// leastBody is what a request counts as whose body, and whose answer, is smaller.
	leastBody = 64 << 10
)

// keptForSmall is where bodies grow no more, in bytes: what is free then is for requests that need only leastBody.
const keptForSmall = 16 << 20

// mayGrow says whether a caller may hold so much for its bodies, if that leaves so much free. Alone it may have
// 56 MiB, and whoever sends much beside it half of what is left then: nobody can take all.
func mayGrow(held, free int64) bool { return held <= free-keptForSmall }

// mayBegin says whether a caller may begin one more request. It can when its bodies grow no more, so that it
// can still read, and cancel.
func mayBegin(held, free int64) bool { return held <= 2*free }

// A gate bounds what is worked on at a time, so that whoever asks too much is told so, and nobody else
// goes without memory. What has not come yet takes no room:
//
//	           begin         a piece is there         the next           answered
//	a request  64 KiB -----> 64 KiB ----------------> 128 KiB, ... ----> nothing
//	                         or 429, nothing done
type gate struct {
	answers
	mu   sync.Mutex
	free int64            // bytes
	held map[string]int64 // bytes, by caller
}

func newGate(a answers) *gate {
	return &gate{answers: a, free: mostAtOnce, held: make(map[string]int64)}
}

// A place is what one request holds of the room.
type place struct {
	gate   *gate
	caller string
	bytes  int64
}

// let serves while there is room.
func (g *gate) let(serve func(http.ResponseWriter, *http.Request, *place)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := &place{gate: g, caller: callerOf(r)}
		defer p.leave()
		if !p.take(leastBody, mayBegin) {
			if r.ContentLength != 0 {
				w.Header().Set("Connection", "close") // rather than to wait for the body
			}
			g.complain(w, problem{Problem: noRoom()})
			return
		}
		answer := &heldAnswer{ResponseWriter: w, room: p, reads: isRead(r)}
		serve(answer, r, p)
		answer.begin()
	}
}

// A heldAnswer has the room of its request while it is written: a page with payloads has megabytes, and who does not read it
// keeps them for as long as an answer may take. One to a read that has no room is not begun, and says that instead.
type heldAnswer struct {
	http.ResponseWriter
	room    *place
	reads   bool
	code    int // is yet to be written; 0: none is
	begun   bool
	refused bool
}

// WriteHeader waits for the first bytes of the answer.
func (a *heldAnswer) WriteHeader(code int) {
	if a.begun || code < http.StatusOK {
		a.ResponseWriter.WriteHeader(code)
	} else if a.code == 0 {
		a.code = code
	}
}

func (a *heldAnswer) begin() {
	if !a.begun && a.code != 0 {
		a.ResponseWriter.WriteHeader(a.code)
	}
	a.begun = true
}

// Write takes what is refused for written. Of a stream that has begun the part for which there is no room is an error, which
// ends it.
func (a *heldAnswer) Write(b []byte) (int, error) {
	if !a.refused && a.reads && !a.room.hold(int64(len(b))) {
		if a.begun {
			return 0, errNoRoom
		}
		a.begun, a.refused = true, true
		clear(a.Header())
		a.room.gate.complain(a.ResponseWriter, problem{Problem: noRoom()})
	}
	if a.refused {
		return len(b), nil
	}
	a.begin()
	return a.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController. Who streams learns by it that the answer is refused.
func (a *heldAnswer) FlushError() error {
	a.begin()
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if a.refused {
		return errNoRoom
	}
	return err
}

// Unwrap is for http.ResponseController.
func (a *heldAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// noRoom tells a caller so.
func noRoom() client.Problem {
	return client.Problem{Status: http.StatusTooManyRequests, Code: client.CodeRateLimited,
		Detail: fmt.Sprintf("your requests take your part already of the %d MiB that are worked on at a time, nothing was done: ask again, fewer at a time", mostAtOnce>>20)}
}

// hold has the request hold so many bytes, or reports that there is no room.
func (p *place) hold(bytes int64) bool {
	return bytes <= p.bytes || p.take(bytes-p.bytes, mayGrow)
}

func (p *place) take(bytes int64, may func(held, free int64) bool) bool {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if !may(g.held[p.caller]+bytes, g.free-bytes) {
		return false
	}
	p.bytes += bytes
	g.held[p.caller] += bytes
	g.free -= bytes
	return true
}

func (p *place) leave() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free += p.bytes
	if g.held[p.caller] -= p.bytes; g.held[p.caller] == 0 {
		delete(g.held, p.caller)
	}
}

// callerOf returns whose part of the room the request takes: that of its token, or of an issuer's user; without
// any, that of the host that has sent it, which is a node if that has passed it on.
func callerOf(r *http.Request) string {
	if who := visitOf(r.Context()).who; who.ID != "" {
		return who.ID + "\n" + who.Name
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
