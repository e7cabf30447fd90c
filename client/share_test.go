package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Another endpoint is asked when one stands still, and that must cost no call of a cluster that is well, only slow.
func TestAdmin_asksAnotherAndWaitsForWhoIsSlow(t *testing.T) {
	const nodes = 3
	takes := func(each time.Duration, answers ...answer) http.Handler {
		var asked atomic.Int32
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			answer := answers[min(int(asked.Add(1)), len(answers))-1]
			time.Sleep(each)
			answer(w, r)
		})
	}
	count := says(`{"index":"1","count":"7","exact":true,"within":"0"}`)
	ask := func(ctx context.Context, a *Admin) error {
		_, err := a.Count(ctx, Filter{})
		return err
	}
	change := func(ctx context.Context, a *Admin) error {
		_, err := a.Change(ctx, Name{Topic: "t", ID: "i", Seq: 7}, ChangeRequest{DeliverAfter: "1h"})
		return err
	}
	replaced := says(`{"code":"replaced","topic":"t","id":"i","seq":"8","before":"7"}`)
	for _, tt := range []struct {
		what   string
		node   http.Handler // each of them, but for those that are off
		off    int
		within time.Duration // the caller's own bound
		token  time.Duration // what it takes to get one
		ask    func(context.Context, *Admin) error
	}{
		{"one is off, the others slow", takes(4*time.Second, count), 1, time.Hour, 0, ask},
		{"the caller has little time", takes(600*time.Millisecond, count), 0, time.Second, 0, ask},
		{"a condition that no longer holds the second time", takes(4*time.Second, replaced, refuses(412, CodeConflict)), 0, time.Hour, 0, change},
		{"a token that takes its time", takes(0, count), 0, time.Hour, 4 * time.Second, ask},
	} {
		synctest.Test(t, func(t *testing.T) {
			hosts, addresses := map[string]http.Handler{}, []string{"a:1", "b:1", "c:1"}
			for i := range nodes {
				if i < nodes-tt.off {
					hosts[addresses[i]] = tt.node
				} else {
					addresses[i] = off
				}
			}
			token := func(ctx context.Context) (string, error) {
				select {
				case <-time.After(tt.token):
					return "x", nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
			admin, err := NewAdmin(addresses, AdminOptions{Token: token, Transport: network(hosts)})
			if err != nil {
				t.Fatal(err)
			}
			for call := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), tt.within)
				if err := tt.ask(ctx, admin); err != nil && call == 0 {
					t.Errorf("%s: %v", tt.what, err)
				}
				cancel()
			}
			time.Sleep(10 * time.Minute) // nodes end their answers
		})
	}
}

// A wrapper, as for traces, passes on what is told of connections.
type wrapper struct{ http.RoundTripper }

func TestAdmin_goesOnBehindAMachineThatIsOffWithAWrappedTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeNode{answers: []answer{says(`{"code":"scheduled","topic":"t","id":"i","seq":"7"}`)}}
		through := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, host string) (net.Conn, error) {
			if host == off {
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Second):
				}
				return nil, &net.OpError{Op: "dial", Err: errors.New("i/o timeout")}
			}
			server, user := net.Pipe()
			go http.Serve(&oneConn{conn: server}, b)
			return user, nil
		}}
		admin, err := NewAdmin([]string{off, "b:1", "c:1"}, AdminOptions{Transport: wrapper{through}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Schedule(t.Context(), ScheduleRequest{Topic: "t", ID: "i"}); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
	})
}
