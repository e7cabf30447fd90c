// Package clienttest is a Carillon in memory, for tests of programs that use one. Its time passes only when
// the test says so, and it answers by the rules of a real cluster: what replaces, what a condition lets
// through, when it is too late. One suite of tests is run against it and against a cluster of three nodes
// (package conformance).
//
//	carillon := clienttest.New(t)
//	reminders := NewReminders(carillon.Admin())
//	...
//	carillon.Advance(24 * time.Hour)
//	for _, record := range carillon.Delivered() { ... }
//
// Delay topics are those whose names end in .delay, as in the configuration that ships. Every target exists,
// has as many partitions as are asked for, and takes what is sent to it, unless [Server.RefuseTarget] says
// otherwise. Nobody needs a token. Nothing is forgotten, and all counts are exact.
package clienttest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/head"
)

// Cluster is the id of every cluster in memory, as it stands in front of a delivered-seq.
const Cluster = "636c69656e7474657374000000000001"

// A Server is a Carillon in memory. It is an http.Handler with the API of a node, and an http.RoundTripper to
// it. Its methods may be called from any goroutine.
type Server struct {
	t     testing.TB
	mux   *http.ServeMux
	admin *client.Admin

	mu sync.Mutex
	// What follows is as it is at one moment; only methods whose names begin in lower case, and callers
	// that hold mu, look at it.
	now        int64 // epoch milliseconds
	index      uint64
	seq        uint64              // of the last message
	pending    map[uint64]*message // by seq
	outcomes   map[name][]client.Outcome
	offsets    map[string]int64 // by topic: of the next record
	pauses     []client.Pause
	refused    map[string]problem // by target
	answers    map[name]kept      // by delay topic and idempotency key
	operations []client.Operation
	started    map[string]started // by idempotency key
	delivered  []*client.Record
	letters    []*letter
}

// A name is an id within its delay topic.
type name struct{ topic, id string }

// New returns a Carillon whose time begins now. The test need not end it.
func New(t testing.TB) *Server {
	t.Helper()
	return NewAt(t, time.Now())
}

// NewAt returns a Carillon whose time begins then, in milliseconds, rounded down.
func NewAt(t testing.TB, start time.Time) *Server {
	t.Helper()
	s := &Server{
		t: t, now: start.UnixMilli(), index: 1, pending: map[uint64]*message{}, outcomes: map[name][]client.Outcome{}, offsets: map[string]int64{},
		refused: map[string]problem{}, answers: map[name]kept{}, started: map[string]started{},
	}
	s.mux = s.routes()
	admin, err := client.NewAdmin([]string{"clienttest"}, client.AdminOptions{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	s.admin = admin
	t.Cleanup(admin.Close)
	return s
}

// Admin returns one that asks this Carillon, without a network between.
func (s *Server) Admin() *client.Admin { return s.admin }

// ServeHTTP answers as the API of a node, for programs that want an address: see httptest.NewServer.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := head.CheckPath(r.URL); p != nil {
		complain(w, p)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Now returns the time here.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.UnixMilli(s.now)
}

// Advance lets time pass, and delivers what is due by then in order.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(s.now + d.Milliseconds())
}

// Produce takes a record as Kafka does from any client, and Carillon then from Kafka: its headers say what
// it asks for. It returns the record as it lies in the delay topic, which has one partition. A record
// without a timestamp gets the time here. What cannot be scheduled becomes a dead letter.
func (s *Server) Produce(r *client.Record) *client.Record {
	s.t.Helper()
	if !isDelayTopic(r.Topic) {
		s.t.Fatalf("topic %q is no delay topic: those of clienttest end in %s", r.Topic, delaySuffix)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	produced := *r
	produced.Partition, produced.Offset = 0, s.nextOffset(r.Topic)
	if r.Timestamp.IsZero() {
		produced.Timestamp = time.UnixMilli(s.now)
	}
	s.take(&produced)
	return &produced
}

// Delivered returns the records that were delivered so far, in order. Topic is their target, and Timestamp
// when they were.
func (s *Server) Delivered() []*client.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.delivered)
}

// DeadLetters returns the dead letters so far, in order, with their payloads.
func (s *Server) DeadLetters() []client.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	var told []client.DeadLetter
	for _, l := range s.letters {
		told = append(told, l.DeadLetter)
	}
	return told
}

// RefuseTarget has messages for the target become dead letters with this code and detail when they are due.
// "" for the code: they are delivered again.
func (s *Server) RefuseTarget(target, code, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused[target] = (problem{code, detail}); code == "" {
		delete(s.refused, target)
	}
}

const delaySuffix = ".delay"

func isDelayTopic(topic string) bool {
	return strings.HasSuffix(topic, delaySuffix)
}

// checkTopic refuses a name that Kafka takes for no topic.
func checkTopic(name string) *client.Problem {
	if _, p := parse([]client.Header{{Key: client.HeaderAfter, Value: []byte("0")}, {Key: client.HeaderTo, Value: []byte(name)}}, 0); p != nil {
		return client.BadField("topic", name, "is no name of a topic: use 1 to 249 of the characters a-z A-Z 0-9 . _ -")
	}
	return nil
}

// nextOffset returns that of the next record of a topic.
func (s *Server) nextOffset(topic string) int64 {
	offset := s.offsets[topic]
	s.offsets[topic]++
	return offset
}

// RoundTrip answers a request, whatever its host, without a network between.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, context.Cause(r.Context())
	}
	answer := httptest.NewRecorder()
	served := r.Clone(r.Context())
	served.RequestURI = r.URL.RequestURI()
	if served.Body == nil {
		served.Body = http.NoBody
	}
	s.ServeHTTP(answer, served)
	return answer.Result(), nil
}
