package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/twmb/franz-go/pkg/kfake"
)

// heldFor returns how long a heartbeat that comes now is held back.
func (q *quiet) heldFor(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if !q.wait(t.Context().Done()) {
		t.Error("it was closed")
	}
	return time.Since(began)
}

func TestQuiet_holdsHeartbeatsWhileTheLogIsSent(t *testing.T) {
	const after = 200 * time.Millisecond
	for _, tt := range []struct {
		name string
		log  func(q *quiet) // what happens of the log, at and after the moment in which a heartbeat comes
		want time.Duration
	}{
		{"nothing was ever taken", func(*quiet) {}, 0},
		{"all was taken", func(q *quiet) { q.begin(); q.took(true) }, longestHold * after},
		{"a request is not answered", func(q *quiet) {
			q.took(true)
			time.Sleep(150 * time.Millisecond)
			q.begin()
		}, after},
		{"one that comes late is not answered", func(q *quiet) {
			q.took(true)
			time.Sleep(2 * after)
			q.begin()
		}, 2 * after},
		{"some was taken, and nothing is sent", func(q *quiet) { q.begin(); q.took(false) }, after},
		{"the end of what was taken bit by bit is not answered", func(q *quiet) {
			for range 10 {
				q.begin()
				q.took(false)
				time.Sleep(after / 2)
			}
			q.begin()
		}, 9*after/2 + after},
		{"all was taken in the end", func(q *quiet) {
			q.begin()
			q.took(false)
			time.Sleep(after / 2)
			q.begin()
			q.took(true)
		}, longestHold * after},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQuiet(after)
				go tt.log(q)
				synctest.Wait()
				if held := q.heldFor(t); held != tt.want {
					t.Errorf("held back for %v, want %v", held, tt.want)
				}
			})
		})
	}
}

func TestQuiet_endsWithItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, closed := newQuiet(time.Second), make(chan struct{})
		q.took(true)
		go close(closed)
		if q.wait(closed) {
			t.Error("a heartbeat goes out of a node that is closed")
		}
	})
}

// A follower that has agreed to all there is need not hear it again: it is told that the leader is there.
func TestTransport_tellsAStandingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 200 * time.Millisecond
		var network kfake.VirtualNetwork
		closed := make(chan struct{})
		transportOf := func(id raft.ServerID, addr string) *transport {
			listener, err := network.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			return newTransport(newStreams(listener, streamConfig{
				cluster: "a", advertised: addr, dial: network.DialContext,
				raftID: func() raft.ServerID { return id }, patience: time.Minute, log: testLogger(t),
			}), transportConfig{
				timeout: time.Minute, quietFor: after, closed: closed,
				within: func(_ uint64, answer func()) bool { answer(); return true },
			}, newHCLogger(testLogger(t), "raft-net"))
		}
		leader, follower := transportOf("n1", "localhost:7301"), transportOf("n2", "localhost:7302")
		defer func() {
			close(closed)
			for _, each := range []*transport{leader, follower} {
				_ = each.Close()
				_ = each.streams.Close()
				each.CloseStreams()
			}
		}()

		told, beaten := 0, 0
		agrees, lastLog := true, uint64(7)
		answer := func(rpc raft.RPC) {
			rpc.Respond(&raft.AppendEntriesResponse{Term: 3, LastLog: lastLog, Success: agrees}, nil)
		}
		follower.SetHeartbeatHandler(func(rpc raft.RPC) { beaten++; answer(rpc) })
		go func() {
			for {
				select {
				case rpc := <-follower.Consumer():
					told++
					answer(rpc)
				case <-closed:
					return
				}
			}
		}()
		request := func(addr raft.ServerAddress, term, end, commit uint64) (resp raft.AppendEntriesResponse, err error) {
			req := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("localhost:7301")}, Term: term, PrevLogEntry: end, LeaderCommitIndex: commit}
			if end > 0 {
				req.PrevLogTerm = 3
			}
			return resp, leader.AppendEntries("n2", addr, req, &resp)
		}
		for _, tt := range []struct {
			when              string
			term, end, commit uint64
			agrees            bool
			lastLog           uint64
			told              bool
			before            func()
		}{
			{"first", 3, 7, 6, true, 7, true, nil},
			{"the same again", 3, 7, 6, true, 7, false, nil},
			{"the same once more", 3, 7, 6, true, 7, false, nil},
			{"more is committed", 3, 7, 7, true, 7, true, nil},
			{"nothing is new", 3, 7, 7, true, 7, false, nil},
			{"it refuses", 3, 7, 7, false, 7, false, nil},
			{"after a refusal", 3, 7, 7, true, 7, true, nil},
			{"its log ends before", 3, 7, 7, true, 6, false, nil},
			{"after it ended before", 3, 7, 7, true, 7, true, nil},
			{"in another term", 4, 7, 7, true, 7, true, nil},
			{"when a heartbeat has found nobody", 4, 7, 7, true, 7, true, func() {
				time.Sleep(after) // or it is held back
				if _, err := request("localhost:7303", 4, 0, 0); err == nil {
					t.Error("nobody has answered a heartbeat")
				}
			}},
			{"the same then", 4, 7, 7, true, 7, false, nil},
			{"when it has not been told for long", 4, 7, 7, true, 7, true, func() { time.Sleep(longestHold * after) }},
		} {
			if tt.before != nil {
				tt.before()
			}
			before := [2]int{told, beaten}
			agrees, lastLog = tt.agrees, tt.lastLog
			resp, err := request("localhost:7302", tt.term, tt.end, tt.commit)
			if err != nil {
				t.Fatal(err)
			}
			want := [2]int{0, 1}
			if tt.told {
				want = [2]int{1, 0}
			}
			if got := [2]int{told - before[0], beaten - before[1]}; got != want || resp.Success != tt.agrees {
				t.Errorf("%s: it was told %d times and beaten %d, want %v; success %t", tt.when, got[0], got[1], want, resp.Success)
			}
		}
	})
}
