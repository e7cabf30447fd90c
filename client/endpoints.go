package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/client/body"
)

const (
	// usualTimeout is how long a call may take with all its tries.
	usualTimeout = 15 * time.Second
	// mostAnswered bounds an answer, and a line of a long one, in bytes: a record has 16 MiB at most, and a
	// third more in base64.
	mostAnswered = 32 << 20
	// The wait between two rounds over all endpoints begins at one and doubles to the other.
	leastPause, mostPause = 50 * time.Millisecond, time.Second
	// idleConnection is less than nodes keep one that is idle, so that it is not closed under a request.
	idleConnection = time.Minute
)

// Endpoints are the nodes that an Admin may ask. Each of them can answer; the one that answered last is
// asked first, until nothing comes of asking it.
type endpoints struct {
	bases  []string      // such as https://carillon-1:7401/prefix, without a slash at the end
	best   atomic.Uint32 // index of the one to ask first
	closed atomic.Bool
	http   *http.Client
	traced bool                                  // http tells when something of a request is sent
	token  func(context.Context) (string, error) // nil: none is shown
	// timeout bounds a call with all its tries.
	timeout time.Duration
}

func newEndpoints(addresses []string, o AdminOptions) (*endpoints, error) {
	e := &endpoints{token: o.Token, timeout: o.Timeout}
	if e.timeout <= 0 {
		e.timeout = usualTimeout
	}
	for _, address := range addresses {
		base, err := baseOf(address, o.TLS != nil)
		if err != nil {
			return nil, err
		}
		e.bases = append(e.bases, base)
	}
	if len(e.bases) == 0 {
		return nil, fmt.Errorf("%w: no endpoint: give the API address of a node, host:port", ErrBadRequest)
	}
	transport := o.Transport
	if transport == nil {
		transport = &http.Transport{TLSClientConfig: o.TLS.Clone(), IdleConnTimeout: idleConnection, MaxIdleConnsPerHost: 64, Proxy: http.ProxyFromEnvironment}
	}
	_, e.traced = transport.(*http.Transport) // another one need not
	e.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // no node sends one: the token stays here
	}}
	return e, nil
}

// baseOf returns the URL that paths are put behind.
func baseOf(address string, secure bool) (string, error) {
	text := address
	if !strings.Contains(text, "://") {
		scheme := "http://"
		if secure {
			scheme = "https://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: endpoint %q: %w", ErrBadRequest, address, err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%w: endpoint %q: write host:port, or http:// or https:// with host, port and a path", ErrBadRequest, address)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// A call is one request, to whichever endpoint answers.
type call struct {
	what   string // the verb and its object, for errors
	method string
	path   string // percent-encoded
	query  url.Values
	header map[string]string
	body   any // nil: none
	// again: a second request has no other effect than the first, and the answer tells the truth or a
	// refusal that is then in doubt. Reads are such.
	again bool
	// settled: what the log answers to a second request is the answer to the first, also a refusal.
	settled bool
	into    any // what the answer is decoded into; nil: nothing
}

// A try is what came of sending a call to one endpoint.
type try struct {
	err error
	// undone: nothing was done, ask another endpoint. Otherwise the error is the answer, or, if unknown,
	// it may have been done.
	undone, unknown bool
	hopeless        bool          // it will not be otherwise in a moment
	wait            time.Duration // that the node asks for
	limited         bool          // since so much was asked of it
}

// do sends the call until it has an answer, as long as that is safe. It blocks for the timeout at most,
// or until ctx ends.
func (e *endpoints) do(ctx context.Context, c call) error {
	_, err := e.ask(ctx, c)
	return err
}

// ask is do that tells of an answer whether it is the first: doubt is of a try before it that may have been carried
// out.
func (e *endpoints) ask(ctx context.Context, c call) (doubt, err error) {
	body, err := encode(c.body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for round := e.round(); ; {
		tried := e.send(ctx, round.turn(ctx, c.settled || c.method == http.MethodGet), c, body)
		definite := !tried.undone && !tried.unknown
		if !definite {
			round.failed(ctx)
		}
		switch {
		case tried.err == nil:
			round.answered()
			return doubt, nil
		case tried.unknown && c.method != http.MethodGet:
			doubt = tried.err
		}
		switch {
		case definite && doubt != nil && !(c.settled && ofTheLog(tried.err)):
			return doubt, fmt.Errorf("%s: %w: %w", c.what, ErrInDoubt, afterDoubt(tried.err, doubt))
		case definite:
			round.answered()
			return doubt, fmt.Errorf("%s: %w", c.what, tried.err)
		case (tried.undone || c.again) && round.next(ctx, tried):
			continue
		case doubt != nil && !errors.Is(doubt, ErrInDoubt):
			return doubt, fmt.Errorf("%s: %w: it was sent, and may have been carried out: %w", c.what, ErrInDoubt, doubt)
		case doubt != nil:
			return doubt, fmt.Errorf("%s: %w", c.what, doubt)
		case errors.Is(tried.err, ErrUnavailable), errors.Is(tried.err, ErrClosed):
			return doubt, fmt.Errorf("%s: %w", c.what, tried.err)
		}
		return doubt, fmt.Errorf("%s: %w: %w", c.what, ErrUnavailable, tried.err)
	}
}

// afterDoubt is what a refusal means of something that was sent before.
func afterDoubt(refusal, doubt error) error {
	return fmt.Errorf("it was sent again and answered %w, which may be the effect of the first time, of which is known only: %v", refusal, doubt)
}

// ofTheLog reports whether the log refuses, so that the refusal is of every time that the same is sent. Any
// other is of one time: a token ends, and so does the time that a request names.
func ofTheLog(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrKeyReused) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrTooLate)
}

// send sends the call once, and decodes the answer.
func (e *endpoints) send(ctx context.Context, turn turn, c call, body []byte) try {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answer, tried := e.open(ctx, cancel, turn, c, body)
	if tried.err != nil {
		return tried
	}
	defer answer.Body.Close()
	text, err := readAll(answer.Body)
	if err == nil && c.into != nil {
		err = decode(text, c.into)
	}
	if err != nil {
		return try{unknown: true, err: fmt.Errorf("read the answer of %s: %w", turn.base, err)}
	}
	return try{}
}

// open sends the call once and returns a success, whose body is to be read and closed, or the try. It cancels
// ctx when the turn has passed and nothing has come.
func (e *endpoints) open(ctx context.Context, cancel context.CancelCauseFunc, turn turn, c call, body []byte) (*http.Response, try) {
	if e.closed.Load() {
		return nil, try{err: ErrClosed}
	}
	base := turn.base
	var silence *time.Timer
	var sent, connects atomic.Bool // something of it may have reached the node; it waits for a connection
	trace := &httptrace.ClientTrace{
		GetConn:      func(string) { connects.Store(true); silence.Reset(turn.connect) },
		GotConn:      func(httptrace.GotConnInfo) { connects.Store(false); silence.Reset(turn.answer) },
		WroteHeaders: func() { sent.Store(true) },
	}
	request, err := e.request(httptrace.WithClientTrace(ctx, trace), base, c, body)
	if err != nil {
		return nil, try{err: err}
	}
	if err := ctx.Err(); err != nil {
		return nil, try{undone: true, err: fmt.Errorf("ask %s: %w", base, err)}
	}
	// A transport of another's need not tell of its connections.
	silence = time.AfterFunc(turn.answer, func() { cancel(errSilent) })
	defer silence.Stop()
	answer, err := e.http.Do(request)
	if err != nil {
		hopeless := errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, http.ErrSchemeMismatch)
		undone := !sent.Load() && (e.traced || hopeless || ofDialing(err) || connects.Load())
		return nil, try{undone: undone, unknown: !undone, hopeless: hopeless, err: fmt.Errorf("ask %s: %w", base, err)}
	}
	if answer.StatusCode/100 == 2 {
		return answer, try{}
	}
	defer answer.Body.Close()
	text, err := readAll(answer.Body)
	return nil, refused(base, answer, text, err)
}

// errSilent cuts a try off.
var errSilent = errors.New("nothing came in its share of the time")

// ofDialing reports whether there was no connection that anything could be sent on.
func ofDialing(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func (e *endpoints) request(ctx context.Context, base string, c call, body []byte) (*http.Request, error) {
	where := base + c.path
	if len(c.query) > 0 {
		where += "?" + c.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, c.method, where, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if err := checkAddress(c.path, c.query); err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.header {
		request.Header.Set(name, value)
	}
	if e.token != nil {
		token, err := e.token(ctx)
		if err != nil {
			return nil, fmt.Errorf("get a token: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}

// refused says what an answer means that is no success.
func refused(base string, answer *http.Response, text []byte, err error) try {
	if err != nil {
		return try{unknown: true, err: fmt.Errorf("read the answer of %s: %w", base, err)}
	}
	var told struct {
		Problem
		Old string `json:"error"` // of nodes and answers that have no detail
	}
	if json.Unmarshal(text, &told) != nil || told.Code == "" && told.Old == "" {
		words := fmt.Errorf("%s answered %s, is this the api address of a node?", base, answer.Status)
		if bytes.Contains(text, []byte("HTTP request to an HTTPS server")) { // words of net/http
			words = fmt.Errorf("%s speaks TLS: write https://", base)
		}
		return try{unknown: answer.StatusCode >= http.StatusInternalServerError, err: words}
	}
	problem := told.Problem
	if problem.Detail == "" {
		problem.Detail = told.Old
	}
	problem.Status = answer.StatusCode
	tried := try{err: &problem}
	switch problem.Unwrap() {
	case ErrUnavailable:
		tried.undone = true
		tried.limited, tried.wait = problem.Code == CodeRateLimited, retryAfter(answer.Header)
	case ErrInDoubt:
		tried.unknown = true
	case nil: // of no node, but of a proxy that may have passed the request on
		tried.unknown = problem.Status >= http.StatusInternalServerError && problem.Code != CodeInternal
	}
	return tried
}

// retryAfter returns how long the node wants not to be asked; it may say seconds or a time, which is of its clock.
func retryAfter(given http.Header) time.Duration {
	text := given.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if now, err := http.ParseTime(given.Get("Date")); err == nil {
		return at.Sub(now)
	}
	return time.Until(at)
}

// encode writes a request as JSON, as it is or not at all.
func encode(request any) ([]byte, error) {
	if request == nil {
		return nil, nil
	}
	if wrong := body.CheckText(request); wrong != nil {
		return nil, refusedHere(wrong)
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	if err := out.Encode(request); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return text.Bytes(), nil
}

// checkAddress refuses what is beside the body if it is no text. The path is percent-encoded.
func checkAddress(path string, query url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, value := range query[name] {
			if wrong := body.CheckOne(name, value); wrong != nil {
				return refusedHere(wrong)
			}
		}
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" { // as where a variable was not set
			return BadField("path", path, "has an empty part: give each name that it is made of")
		}
		text, err := url.PathUnescape(part)
		if err != nil {
			return fmt.Errorf("%w: path %q: %w", ErrBadRequest, path, err)
		}
		if wrong := body.CheckOne("path", text); wrong != nil {
			return refusedHere(wrong)
		}
	}
	return nil
}

// refusedHere returns the problem of a request that is not sent.
func refusedHere(wrong *body.Fault) *Problem {
	status := CodeBadRequest.Status()
	return &Problem{Title: http.StatusText(status), Status: status, Code: CodeBadRequest, Field: wrong.Field, Value: wrong.Value, Detail: wrong.Words}
}

func readAll(from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, mostAnswered+1))
	if err == nil && len(text) > mostAnswered {
		err = fmt.Errorf("it has more than %d bytes", mostAnswered)
	}
	return text, err
}

// A round goes from one endpoint to the next, and waits when all have been asked.
type round struct {
	e           *endpoints
	first, done int
	hopeless    int // of the tries since all were asked last
	pause       time.Duration
	rests       []rest // by index of the endpoint
}

// A rest is what an endpoint asks for that says that nothing was done.
type rest struct {
	until  time.Time
	double int // how often it has said that so much was asked of it: each time it is left alone for twice as long
}

func (e *endpoints) round() round {
	return round{e: e, first: int(e.best.Load()), pause: leastPause, rests: make([]rest, len(e.bases))}
}

func (r *round) at() int { return (r.first + r.done) % len(r.e.bases) }

// A turn is that of one endpoint.
type turn struct {
	base    string
	connect time.Duration // for a connection
	answer  time.Duration // from then on, for the beginning of an answer
}

// forever is as long as ctx.
const forever = time.Duration(math.MaxInt64)

// turn returns whose turn it is now. One of several has its share of the time for a connection: a machine that
// is off does not refuse any, and another one may answer. So it is with the first answer of what may be sent again
// without a doubt, of a node that stands still. The others have all that is left for theirs, since answers may be slower
// than a share.
func (r *round) turn(ctx context.Context, again bool) turn {
	all := len(r.e.bases)
	t := turn{base: r.e.bases[r.at()], connect: forever, answer: forever}
	if all == 1 {
		return t
	}
	t.connect = r.e.timeout / time.Duration(all+1)
	if again && r.done == 0 {
		t.answer = t.connect
	}
	if deadline, ok := ctx.Deadline(); ok {
		t.connect = min(t.connect, time.Until(deadline)/2)
	}
	return t
}

// answered has the next call begin here.
func (r *round) answered() { r.e.best.Store(uint32(r.at())) }

// failed has the next call begin behind this one, if it would have begun here. That a caller cancels its ctx says
// nothing of the endpoint.
func (r *round) failed(ctx context.Context) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	at := r.at()
	r.e.best.CompareAndSwap(uint32(at), uint32((at+1)%len(r.e.bases)))
}

// next turns to the next endpoint after a try, past those that want not to be asked now. It waits when all have
// been asked, or want so. It reports false when ctx ends before that, or when no endpoint is going to answer.
func (r *round) next(ctx context.Context, tried try) bool {
	at := &r.rests[r.at()]
	at.until = time.Now().Add(tried.wait << at.double)
	if tried.limited {
		at.double++
	}
	if tried.hopeless {
		r.hopeless++
	}
	for {
		r.done++
		var wait time.Duration // another node may answer at once
		if r.done%len(r.e.bases) == 0 {
			if r.hopeless == len(r.e.bases) {
				return false
			}
			r.hopeless = 0
			earliest := slices.MinFunc(r.rests, func(a, b rest) int { return a.until.Compare(b.until) })
			wait = max(time.Until(earliest.until), r.pause/2+rand.N(r.pause/2)) // not all clients at once
			r.pause = min(2*r.pause, mostPause)
		}
		if !pass(ctx, wait) {
			return false
		}
		if !r.rests[r.at()].until.After(time.Now()) {
			return true
		}
	}
}

// pass lets the time pass. It reports false when ctx ends by then, without waiting for that.
func pass(ctx context.Context, wait time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
