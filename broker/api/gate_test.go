package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/access"
)

// A crowd asks a node over HTTP, in virtual time.
type crowd struct {
	t    *testing.T
	node *pipe
}

// newCrowd serves callers with these tokens, in the bubble of the test, until it ends.
func newCrowd(t *testing.T, d *door) *crowd {
	c := &crowd{t, newPipe()}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { ended(stop) })
	go Serve(ctx, c.node, NewHandler(d.node, prometheus.NewRegistry(), Callers{Tokens: d.tokens}, quiet()), quiet())
	return c
}

// A slowBody is one that is not sent to its end.
type slowBody struct {
	taken  atomic.Int64 // bytes
	status atomic.Int64 // of the answer; 0: there is none yet
}

// send begins a batch, sends so much of it, and waits for an answer.
func (c *crowd) send(token, length string, bytes int) *slowBody {
	conn, _ := c.node.dial(c.t.Context(), "", "")
	body := &slowBody{}
	const part = 32 << 10
	go func() {
		defer conn.Close()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			c.t.Error(err)
			return
		}
		body.status.Store(int64(answer.StatusCode))
	}()
	go func() {
		_, _ = fmt.Fprintf(conn, "POST /v1/batches HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n\r\n", token, length)
		for sent := 0; sent < bytes; sent += part {
			text := strings.Repeat(" ", min(part, bytes-sent))
			if strings.HasPrefix(length, "T") {
				text = fmt.Sprintf("%x\r\n%s\r\n", len(text), text)
			}
			n, err := io.WriteString(conn, text)
			body.taken.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	return body
}

// ask sends a request and returns the status of its answer, which takes no time at all.
func (c *crowd) ask(token, method, path, body string) int {
	c.t.Helper()
	conn, _ := c.node.dial(c.t.Context(), "", "")
	defer conn.Close()
	begun := time.Now()
	go fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, token, len(body), body)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if took := time.Since(begun); took != 0 {
		c.t.Errorf("%s %s was answered after %v", method, path, took)
	}
	return answer.StatusCode
}

func (c *crowd) goesThrough(which, token string) {
	c.t.Helper()
	if status := c.ask(token, "POST", "/v1/messages", schedules); status != http.StatusOK {
		c.t.Errorf("%s: a small write is answered with %d", which, status)
	}
	if status := c.ask(token, "GET", "/v1/messages", ""); status != http.StatusOK {
		c.t.Errorf("%s: a read is answered with %d", which, status)
	}
}

const inChunks = "Transfer-Encoding: chunked"

var declared = fmt.Sprintf("Content-Length: %d", mostBatch)

// Bodies that do not come take no room, however long they say to be.
func TestGate_isNotHeldByWhatDoesNotCome(t *testing.T) {
	for _, many := range []int{8, 80} {
		for _, length := range []string{inChunks, declared} {
			for _, sent := range []int{0, 100 << 10} {
				t.Run(fmt.Sprintf("%d of %s after %d bytes", many, length, sent), func(t *testing.T) {
					d := newDoor(t)
					slow, other := d.create(access.Grant{Name: "slow", Role: access.Operator}), d.create(access.Grant{Name: "other", Role: access.Operator})
					synctest.Test(t, func(t *testing.T) {
						c := newCrowd(t, d)
						var bodies []*slowBody
						for range many {
							bodies = append(bodies, c.send(slow, length, sent))
						}
						synctest.Wait()
						c.goesThrough("another caller", other)
						c.goesThrough("the same caller", slow)
						time.Sleep(bodyTimeout + time.Second)
						for _, body := range bodies {
							if status := body.status.Load(); status != http.StatusRequestTimeout {
								t.Fatalf("a body that did not come is answered with %d", status)
							}
						}
					})
				})
			}
		}
	}
}

// large is what a body of the following tests sends. Of many that grow beside each other, those that find no
// room at the same moment are refused together, so only one is sure to go on.
const large = 15 << 20

// One caller that sends much has its part and no more; what comes beyond it is refused at once, and its small
// requests and those of others go on.
func TestGate_leavesRoomForOthers(t *testing.T) {
	for _, length := range []string{inChunks, declared} {
		d := newDoor(t)
		greedy, other := d.create(access.Grant{Name: "greedy", Role: access.Operator}), d.create(access.Grant{Name: "other", Role: access.Operator})
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, d)
			for again := range 2 { // with what the first left
				begun := time.Now()
				var bodies []*slowBody
				for range 12 {
					bodies = append(bodies, c.send(greedy, length, large))
				}
				synctest.Wait()
				held, refused := taken(t, bodies)
				if time.Since(begun) != 0 || held < large || held > mostAtOnce/2+slack(bodies) || refused == 0 {
					t.Errorf("%s, %d: %d bytes are held, %d bodies refused after %v", length, again, held, refused, time.Since(begun))
				}
				c.goesThrough("another caller", other)
				c.goesThrough("the same caller", greedy)
				another := c.send(other, length, large)
				synctest.Wait()
				if status := another.status.Load(); status != 0 {
					t.Errorf("%s: a large body of another caller is answered with %d", length, status)
				}
				time.Sleep(bodyTimeout + time.Second)
			}
		})
	}
}

// However many callers send as much as they can, what is held of it stays within the bound, and whoever comes
// next still finds room.
func TestGate_boundsWhatAllSend(t *testing.T) {
	d := newDoor(t)
	var callers []string
	for i := range 13 {
		callers = append(callers, d.create(access.Grant{Name: fmt.Sprintf("caller-%d", i), Role: access.Operator}))
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, d)
		var bodies []*slowBody
		for _, caller := range callers[1:] {
			for range 2 {
				bodies = append(bodies, c.send(caller, inChunks, large))
			}
		}
		synctest.Wait()
		held, refused := taken(t, bodies)
		if held < large || held > mostAtOnce+slack(bodies) || refused == 0 {
			t.Errorf("%d bytes are held, %d bodies refused", held, refused)
		}
		c.goesThrough("who comes last", callers[0])
		time.Sleep(bodyTimeout + time.Second)
	})
}

// taken returns how much was taken of the bodies that are not answered, and how many are, which is with a
// refusal.
func taken(t *testing.T, bodies []*slowBody) (bytes int64, refused int) {
	t.Helper()
	for _, body := range bodies {
		switch status := body.status.Load(); status {
		case 0:
			bytes += body.taken.Load()
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Fatalf("a body is answered with %d", status)
		}
	}
	return bytes, refused
}

// slack is what net/http buffers of each connection, and what chunks weigh themselves.
func slack(bodies []*slowBody) int64 { return int64(len(bodies)) * (8 << 10) }

// However much callers hold, there is room for another one to begin, and what is given comes back.
func TestGate_letsWhoeverComesLastBegin(t *testing.T) {
	g := newGate(answers{quiet()})
	var all []*place
	for i := range 200 {
		next := &place{gate: g, caller: fmt.Sprint(i)}
		if !next.take(leastBody, mayBegin) {
			t.Fatalf("after %d callers that hold all they may there is no room for one more", i)
		}
		for g.free >= 0 && next.hold(next.bytes+leastBody) {
		}
		if i == 0 && next.bytes != 56<<20 {
			t.Errorf("one caller alone may hold %d bytes", next.bytes)
		}
		all = append(all, next)
	}
	for _, p := range all {
		p.leave()
	}
	if g.free != mostAtOnce || len(g.held) != 0 {
		t.Errorf("when all have gone %d bytes are free, and %d callers hold some", g.free, len(g.held))
	}
}

// One caller cannot take all with requests that are small.
func TestGate_isNotFilledBySmallRequests(t *testing.T) {
	g := newGate(answers{quiet()})
	begun := 0
	for g.free >= 0 && (&place{gate: g, caller: "a"}).take(leastBody, mayBegin) {
		begun++
	}
	if begun < 1000 || g.free < mostAtOnce/4 {
		t.Errorf("%d requests begun leave %d bytes", begun, g.free)
	}
}

// A reader that takes nothing of its page keeps others of its own out, and nobody else.
func TestGate_countsPagesThatAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const page = 4 << 20
		g := newGate(answers{quiet()})
		release := make(chan struct{})
		serve := g.let(func(w http.ResponseWriter, r *http.Request, _ *place) {
			w.Header().Set("ETag", "a page's")
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write(make([]byte, page))
		})
		ask := func(method string) *stuckWriter {
			w := &stuckWriter{header: http.Header{}, release: release}
			go serve(w, httptest.NewRequest(method, "http://n/", nil))
			return w
		}
		var greedy []*stuckWriter
		for range 60 {
			greedy = append(greedy, ask(http.MethodGet))
		}
		synctest.Wait()
		sent, refused := 0, 0
		for _, w := range greedy {
			switch w.code {
			case http.StatusAccepted:
				sent++
			case http.StatusTooManyRequests:
				refused++
				if w.header.Get("ETag") != "" {
					t.Error("a refusal has the header of the page")
				}
			}
		}
		if sent+refused != 60 || sent*page > 56<<20 || sent < 10 {
			t.Errorf("%d pages are sent, %d refused", sent, refused)
		}
		done := ask(http.MethodPost)
		synctest.Wait()
		if done.code != http.StatusAccepted {
			t.Errorf("the answer to a write that was done is %d", done.code)
		}
		close(release)
		synctest.Wait()
		if g.free != mostAtOnce || len(g.held) != 0 {
			t.Errorf("%d bytes are free, %d callers hold some", g.free, len(g.held))
		}
	})
}

// A stream for which there is no room ends, be it at its first page or later: there may be millions behind.
func TestGate_endsAStreamThatHasNoRoom(t *testing.T) {
	for name, first := range map[string]int{"its first page is too long": mostAtOnce, "a later one is": 100} {
		g := newGate(answers{quiet()})
		steps := 0
		out := timedRecorder{httptest.NewRecorder()}
		g.let(func(w http.ResponseWriter, r *http.Request, _ *place) {
			w.WriteHeader(http.StatusOK)
			l := newLines(w)
			for size := first; l.err == nil && steps < 1000; size = mostAtOnce {
				l.write(strings.Repeat("a", size))
				l.flush()
				steps++
			}
		})(out, httptest.NewRequest(http.MethodGet, "http://n/", nil))
		want := map[bool]int{true: http.StatusTooManyRequests, false: http.StatusOK}[first == mostAtOnce]
		if steps > 2 || out.Code != want {
			t.Errorf("%s: %d steps, status %d", name, steps, out.Code)
		}
	}
}

type timedRecorder struct{ *httptest.ResponseRecorder }

// SetWriteDeadline is for http.ResponseController.
func (timedRecorder) SetWriteDeadline(time.Time) error { return nil }

// A stuckWriter sends nothing larger than a refusal before it is released.
type stuckWriter struct {
	header  http.Header
	code    int
	release chan struct{}
}

func (w *stuckWriter) Header() http.Header  { return w.header }
func (w *stuckWriter) WriteHeader(code int) { w.code = code }
func (w *stuckWriter) Write(b []byte) (int, error) {
	if len(b) > leastBody {
		<-w.release
	}
	return len(b), nil
}
