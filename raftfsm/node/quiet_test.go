package node

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
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
				timeout: time.Minute, quietFor: after, closed: closed, saved: nothingSaved,
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
			{"when it has not been told for long", 4, 7, 7, true, 7, true, func() { time.Sleep(tellAgain * after) }},
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

func TestRounds_oneWordWaitsForTheOthers(t *testing.T) {
	const gap = 150 * time.Millisecond
	type word struct {
		to  raft.ServerID
		at  time.Duration // when raft would send it
		out time.Duration // when it goes out
		end uint64        // of the log, as it says
	}
	for _, tt := range []struct {
		name  string
		heard map[raft.ServerID]time.Duration // how long before the first moment
		grows time.Duration                   // when the log grows to its first entry; 0: never
		words []word
	}{
		{"to all", map[raft.ServerID]time.Duration{"n2": 0, "n3": 0, "n4": 0}, 0,
			[]word{{"n2", 80 * time.Millisecond, 120 * time.Millisecond, 0}, {"n3", 120 * time.Millisecond, 120 * time.Millisecond, 0}, {"n4", 90 * time.Millisecond, 120 * time.Millisecond, 0}}},
		{"to one that comes too late", map[raft.ServerID]time.Duration{"n2": 10 * time.Millisecond, "n3": 0}, 0,
			[]word{{"n2", 80 * time.Millisecond, 140 * time.Millisecond, 0}, {"n3", 145 * time.Millisecond, gap, 0}}},
		{"to one that has not answered for long", map[raft.ServerID]time.Duration{"n2": 0, "n3": gap}, 0,
			[]word{{"n2", 80 * time.Millisecond, 80 * time.Millisecond, 0}}},
		{"to the only one", map[raft.ServerID]time.Duration{"n2": 0}, 0, []word{{"n2", 80 * time.Millisecond, 80 * time.Millisecond, 0}}},
		{"to nobody who answered yet", nil, 0, []word{{"n2", 0, 0, 0}}},
		{"of an end that is not the end any more", map[raft.ServerID]time.Duration{"n2": 0, "n3": 0, "n4": 0}, 90 * time.Millisecond,
			[]word{{"n2", 80 * time.Millisecond, 90 * time.Millisecond, 0}, {"n3", 120 * time.Millisecond, 120 * time.Millisecond, 0}, {"n4", 130 * time.Millisecond, gap, 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRounds(gap)
				began := time.Now()
				for id, before := range tt.heard {
					r.answered(id)
					r.heard[id] = began.Add(-before)
				}
				if tt.grows > 0 {
					time.AfterFunc(tt.grows, func() { r.grow(1) })
				}
				for _, w := range tt.words {
					go func() {
						time.Sleep(w.at)
						if !r.wait(w.to, w.end, t.Context().Done()) {
							t.Errorf("the word to %s: closed", w.to)
						}
						if out := time.Since(began); out != w.out {
							t.Errorf("the word to %s went out after %v, want %v", w.to, out, w.out)
						}
						r.answered(w.to)
					}()
				}
				time.Sleep(time.Second)
				synctest.Wait()
			})
		})
	}
}

// A slowLog takes its time for each sync, while it is told to.
type slowLog struct {
	types.VFS
	takes *atomic.Int64
}

func (l slowLog) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := l.VFS.Create(dir, name, size)
	return slowLogFile{f, l.takes}, err
}

type slowLogFile struct {
	types.WritableFile
	takes *atomic.Int64
}

func (f slowLogFile) Sync() error {
	time.Sleep(time.Duration(f.takes.Load())) // of the bubble
	return f.WritableFile.Sync()
}

// Words come while the leader writes an entry to its own log, which it sends after that. None is held then, or the
// entry would wait behind it.
func TestRounds_holdNoEntryThatTheLeaderHasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const write = defaultHeartbeat * 2 / 5 // which most words come in, and none would go in
		takes := map[string]*atomic.Int64{}
		c := newCluster(t, 5, func(cfg *Config) {
			takes[cfg.NodeID] = new(atomic.Int64)
			cfg.LogFiles = slowLog{fs.New(), takes[cfg.NodeID]}
		})
		c.open("n1", "n2", "n3", "n4", "n5")
		n := c.leader()
		l := startLoad(t, n)
		time.Sleep(10 * time.Second)
		takes[n.cfg.NodeID].Store(int64(write))
		for range 50 {
			time.Sleep(time.Second)
			began := time.Now()
			must(t, n, l.batch(1, 100))
			if took := time.Since(began); took != write {
				t.Errorf("a command took %v, and the leader's write %v", took, write)
			}
		}
	})
}

func TestRounds_endWithTheirNode(t *testing.T) {
	r := newRounds(time.Hour)
	r.answered("n3")
	closed := make(chan struct{})
	close(closed)
	r.answered("n2")
	if r.wait("n2", 0, closed) {
		t.Error("a word went out though the node was closed and another follower's word had not come")
	}
}
