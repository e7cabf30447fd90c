package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// off is the host of a machine without power: no connection to it is made, or refused, for as long as a kernel tries.
const off = "off:1"

// network is a transport of package net/http whose connections lead to handlers by host.
func network(handlers map[string]http.Handler) *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, host string) (net.Conn, error) {
		if host == off {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(2 * time.Minute):
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection timed out")}
			}
		}
		server, user := net.Pipe()
		go http.Serve(&oneConn{conn: server}, handlers[host])
		return user, nil
	}}
}

// onNetwork runs the test with a node b, and an Admin that asks the first endpoint before it.
func onNetwork(t *testing.T, name, first string, a http.Handler, test func(t *testing.T, admin *Admin, b *fakeNode)) {
	t.Helper()
	inTime := func(t *testing.T) {
		b := &fakeNode{answers: []answer{says(`{"code":"scheduled","topic":"t","id":"i","seq":"7"}`)}}
		admin, err := NewAdmin([]string{first, "b:1"}, AdminOptions{Transport: network(map[string]http.Handler{"a:1": a, "b:1": b})})
		if err != nil {
			t.Fatal(err)
		}
		test(t, admin, b)
		admin.Close()
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, inTime) })
}

func TestAdmin_goesOnBehindAMachineThatIsOff(t *testing.T) {
	onNetwork(t, "writes", off, nil, func(t *testing.T, admin *Admin, b *fakeNode) {
		for _, most := range []time.Duration{usualTimeout / 3, 0} { // the next call begins at the one that answers
			began := time.Now()
			_, err := admin.Schedule(t.Context(), ScheduleRequest{Topic: "t", ID: "i"})
			if took := time.Since(began); err != nil || took > most {
				t.Errorf("error %v after %v", err, took)
			}
		}
	})
	onNetwork(t, "lists", off, nil, func(t *testing.T, admin *Admin, b *fakeNode) {
		b.answers = []answer{streams(pending(10, 1), `{"end":true}`)}
		count := 0
		for _, err := range admin.Messages(t.Context(), Filter{}) {
			if count++; err != nil {
				t.Error(err)
			}
		}
		if count != 1 {
			t.Errorf("listed %d", count)
		}
	})
	onNetwork(t, "in the time of the caller", off, nil, func(t *testing.T, admin *Admin, b *fakeNode) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := admin.Schedule(ctx, ScheduleRequest{Topic: "t", ID: "i"}); err != nil {
			t.Error(err)
		}
	})
	onNetwork(t, "its turn comes last", off, nil, func(t *testing.T, admin *Admin, b *fakeNode) {
		b.answers = []answer{refuses(503, CodeUnavailable), says(`{"code":"scheduled","topic":"t","id":"i","seq":"7"}`)}
		admin.nodes.best.Store(1)
		if _, err := admin.Schedule(t.Context(), ScheduleRequest{Topic: "t", ID: "i"}); err != nil {
			t.Error(err)
		}
	})
}

// A process that stands still takes connections and requests.
func TestAdmin_leavesANodeThatStandsStill(t *testing.T) {
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	onNetwork(t, "it answers nobody", "a:1", silent, func(t *testing.T, admin *Admin, b *fakeNode) {
		for _, want := range []error{ErrInDoubt, nil, nil} {
			if _, err := admin.Schedule(t.Context(), ScheduleRequest{Topic: "t", ID: "i"}); !errors.Is(err, want) {
				t.Errorf("error %v, want %v", err, want)
			}
		}
	})
	onNetwork(t, "who asks gives up", "a:1", silent, func(t *testing.T, admin *Admin, b *fakeNode) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := admin.Schedule(ctx, ScheduleRequest{Topic: "t", ID: "i"}); !errors.Is(err, ErrInDoubt) || admin.nodes.best.Load() != 0 {
			t.Errorf("error %v, and %d is asked first", err, admin.nodes.best.Load())
		}
	})
}

// What takes longer than a node's share of the time comes all the same.
func TestAdmin_waitsForSlowAnswers(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(2 * usualTimeout / 5)
		says(`{"index":"1","count":"7","exact":true,"within":"0"}`)(w, r)
	}
	for _, addresses := range [][]string{{"a:1"}, {"a:1", "b:1"}, {"a:1", "b:1", "c:1"}} {
		synctest.Test(t, func(t *testing.T) {
			node := http.HandlerFunc(slow)
			admin, err := NewAdmin(addresses, AdminOptions{Transport: network(map[string]http.Handler{"a:1": node, "b:1": node, "c:1": node})})
			if err != nil {
				t.Fatal(err)
			}
			if c, err := admin.Count(t.Context(), Filter{}); err != nil || c.Count != 7 {
				t.Errorf("%d endpoints: %+v, %v", len(addresses), c, err)
			}
		})
	}
}

// Each node says for itself how long it wants not to be asked, and again each time that it is.
func TestAdmin_leavesEachNodeAloneForAsLongAsItAsks(t *testing.T) {
	limits := func(after func() string) answer {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", after())
			refuses(429, CodeRateLimited)(w, r)
		}
	}
	aSecond := func() string { return "1" }
	for _, tt := range []struct {
		name         string
		a, b         answer
		mostA, mostB int
	}{
		{"each of them", limits(aSecond), limits(aSecond), 4, 4}, // after 1, 3 and 7 s
		{"one for longer", limits(func() string { return "14" }), refuses(503, CodeUnavailable), 2, 30},
		{"until a time", limits(func() string { return time.Now().Add(14 * time.Second).UTC().Format(http.TimeFormat) }), refuses(503, CodeUnavailable), 2, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
				a.answers, b.answers = []answer{tt.a}, []answer{tt.b}
				if _, err := admin.Schedule(t.Context(), ScheduleRequest{Topic: "t", ID: "i"}); !errors.Is(err, ErrUnavailable) {
					t.Error(err)
				}
				if len(a.requests()) > tt.mostA || len(b.requests()) > tt.mostB {
					t.Errorf("a was asked %d times, want %d at most; b %d times, want %d at most", len(a.requests()), tt.mostA, len(b.requests()), tt.mostB)
				}
			})
		})
	}
}
