package api

import (
	"fmt"
	"net/http"

	"golang.org/x/sync/semaphore"

	"github.com/carillonmq/carillon/client"
)

const (
	// mostAtOnce bounds the bodies of requests that are worked on at a time, in bytes.
	mostAtOnce = 128 << 20
	// leastBody is what a request counts as whose body is smaller: an answer takes room, too.
	leastBody = 64 << 10
)

// A gate bounds what is worked on at a time, so that whoever asks too much is told so, and nobody else
// goes without memory.
type gate struct {
	answers
	room *semaphore.Weighted
}

func newGate(a answers) gate { return gate{a, semaphore.NewWeighted(mostAtOnce)} }

// let serves while there is room.
func (g gate) let(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		weight := min(max(r.ContentLength, leastBody), mostBatch)
		if r.ContentLength < 0 { // it does not say
			weight = mostBatch
		}
		if !g.room.TryAcquire(weight) {
			g.complain(w, problem{Problem: client.Problem{Status: http.StatusTooManyRequests, Code: client.CodeRateLimited,
				Detail: fmt.Sprintf("requests with %d MiB are worked on already, nothing was done: ask again, fewer at a time", mostAtOnce>>20)}})
			return
		}
		defer g.room.Release(weight)
		serve(w, r)
	}
}
