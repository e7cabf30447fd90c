package node

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// wires are the connections of a cluster: they note when they were written to, and may lose all for a moment of
// each second.
type wires struct {
	mu    sync.Mutex
	heard map[string][]time.Time // by the address that was dialed
	loses time.Duration
}

// retransmission is how long TCP waits for an answer before it sends a packet again, and what that takes.
const retransmission = 210 * time.Millisecond

func (l *wires) tune(cfg *Config) {
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, wires: l, addr: addr}, nil
	}
}

type wire struct {
	net.Conn
	*wires
	addr string
}

func (l *wire) Write(b []byte) (int, error) {
	l.mu.Lock()
	now, loses := time.Now(), l.loses
	l.heard[l.addr] = append(l.heard[l.addr], now)
	l.mu.Unlock()
	if now.Sub(now.Truncate(time.Second)) < loses {
		time.Sleep(retransmission)
	}
	return l.Conn.Write(b)
}

// An idle leader says no more than its followers need to know that it is there: each word wakes two processes.
func TestCluster_idlesWithFewWords(t *testing.T) {
	const span = time.Minute
	synctest.Test(t, func(t *testing.T) {
		l := &wires{heard: map[string][]time.Time{}}
		c := newCluster(t, 3, l.tune)
		c.open("n1", "n2", "n3")
		n := c.leader()
		time.Sleep(10 * time.Second) // they know each other
		l.mu.Lock()
		clear(l.heard)
		l.mu.Unlock()
		time.Sleep(span)
		if c.leader() != n {
			t.Error("leadership changed hands")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.heard) != 2 {
			t.Fatalf("%d followers were written to", len(l.heard))
		}
		moments := map[time.Time]bool{}
		for addr, times := range l.heard {
			for _, at := range times {
				moments[at] = true
			}
			var longest time.Duration
			for i := range len(times) - 1 {
				longest = max(longest, times[i+1].Sub(times[i]))
			}
			t.Logf("%s: %d words, %v apart at most", addr, len(times), longest)
			if len(times) > int(4*span/defaultHeartbeat) || longest > defaultHeartbeat/2 {
				t.Errorf("%s: %d words in %v, %v apart at most: want no more than four in a time-out of %v, and no gap of more than half of it", addr, len(times), span, longest, defaultHeartbeat)
			}
		}
		t.Logf("in %d moments", len(moments))
		for addr, times := range l.heard {
			if alone := len(moments) - len(times); alone > len(times)/20 {
				t.Errorf("%s was not spoken to in %d of %d moments in which another one was: want no more than one in twenty", addr, alone, len(moments))
			}
		}
	})
}

// What is lost comes late by more than half of the time-out. The next word comes by another connection.
func TestCluster_keepsItsLeaderThoughPacketsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &wires{heard: map[string][]time.Time{}}
		c := newCluster(t, 3, l.tune)
		c.open("n1", "n2", "n3")
		n := c.leader()
		time.Sleep(10 * time.Second)
		term := n.Status().Term
		l.mu.Lock()
		l.loses = 20 * time.Millisecond
		l.mu.Unlock()
		time.Sleep(30 * time.Minute)
		if again := c.leader(); again != n || n.Status().Term != term {
			t.Errorf("term %d became %d", term, again.Status().Term)
		}
	})
}

func TestTransport_sendsABoundedNumberOfBytes(t *testing.T) {
	for _, tt := range []struct {
		name        string
		size, count int
		want        int
	}{
		{"small ones", 100, 64, 64},
		{"up to the bound", requestBytes / 4, 64, 4},
		{"one that is larger", 16 << 20, 16, 1},
	} {
		reads := 0
		tr := &transport{transportConfig: transportConfig{whole: func(lean *raft.Log) (*raft.Log, error) {
			reads++
			return &raft.Log{Index: lean.Index, Term: lean.Term, Data: make([]byte, tt.size)}, nil
		}}}
		var req raft.AppendEntriesRequest
		for i := range tt.count {
			req.Entries = append(req.Entries, &raft.Log{Index: uint64(i) + 1, Term: 1})
		}
		if err := tr.load(&req); err != nil || len(req.Entries) != tt.want || reads > tt.want+1 {
			t.Errorf("%s: %d sent, %d read, %v, want %d", tt.name, len(req.Entries), reads, err, tt.want)
		}
	}
}

// A slowConn takes so many bytes a second.
type slowConn struct {
	net.Conn
	perSecond int
}

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(c.perSecond))
	return c.Conn.Write(b)
}

// 8 Mbit/s carry a record of 16 MiB in 17 s, and others wait behind it.
func TestCluster_catchesUpWithLargeCommandsOnASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return slowConn{conn, 1 << 20}, nil
			}
			cfg.FlushBytes, cfg.SegmentSize = 64<<20, 1<<20
		})
		c.open("n1", "n2", "n3")
		n := c.leader()
		l := startLoad(t, n)
		away := otherThan(c, n)
		c.close(away)
		must(t, n, l.batch(1, 16<<20))
		for range 4 {
			must(t, n, l.batch(1, 2<<20))
		}
		if c.leader() != n {
			t.Error("leadership changed hands")
		}
		c.open(away)
		time.Sleep(time.Minute)
		c.agree()
	})
}

// What raft answers beside its main loop must not move its term: a vote that is on its way to the disk there
// would be overtaken.
func TestTransport_answersBesideTheMainLoopWhatMovesNothing(t *testing.T) {
	listen := func() net.Listener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	listener := listen()
	streamed := streamConfig{
		cluster: "a", advertised: listener.Addr().String(), dial: new(net.Dialer).DialContext,
		raftID: func() raft.ServerID { return "n1" }, patience: time.Minute, log: testLogger(t),
	}
	logger := newHCLogger(testLogger(t), "raft-net")
	closed := make(chan struct{})
	const term = 3
	server := newTransport(newStreams(listener, streamed), transportConfig{
		timeout: time.Minute, closed: closed, saved: nothingSaved, within: func(asked uint64, answer func()) bool {
			if asked == term {
				answer()
			}
			return asked == term
		},
	}, logger)
	client := newTransport(newStreams(listen(), streamed), transportConfig{timeout: time.Minute, closed: closed, saved: nothingSaved}, logger)
	defer func() {
		close(closed)
		_ = client.Close()
		_ = server.Close()
	}()
	type way struct {
		beside bool
		term   uint64
	}
	took := make(chan way, 1)
	answer := func(rpc raft.RPC, beside bool) {
		term := rpc.Command.(*raft.AppendEntriesRequest).Term
		took <- way{beside, term}
		rpc.Respond(&raft.AppendEntriesResponse{Term: term, Success: true}, nil)
	}
	server.SetHeartbeatHandler(func(rpc raft.RPC) { answer(rpc, true) })
	go func() {
		for {
			select {
			case rpc := <-server.Consumer():
				answer(rpc, false)
			case <-closed:
				return
			}
		}
	}()
	for asked := uint64(term - 1); asked <= term+1; asked++ {
		request := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("leader"), ID: []byte("n2")}, Term: asked}
		var response raft.AppendEntriesResponse
		if err := client.NetworkTransport.AppendEntries("n1", peerAt("n1", raft.ServerAddress(listener.Addr().String())), request, &response); err != nil {
			t.Fatal(err)
		}
		if got, want := <-took, (way{asked == term, asked}); got != want {
			t.Errorf("in term %d a heartbeat of term %d went %+v, want %+v", term, asked, got, want)
		}
	}
}

// nothingSaved is where the schedule of a node ends that has written none.
func nothingSaved() storage.SnapshotMeta { return storage.SnapshotMeta{} }

func TestTransport_takesWhatTheScheduleHoldsForAgreed(t *testing.T) {
	entries := func(from, to uint64) (all []*raft.Log) {
		for index := from; index <= to; index++ {
			all = append(all, &raft.Log{Index: index, Term: 3})
		}
		return all
	}
	for _, tt := range []struct {
		name                 string
		previous, term       uint64
		sent                 []*raft.Log
		wantPrevious, inTerm uint64
		want                 []*raft.Log
		wantCommitted        uint64
	}{
		{"all is saved", 100, 2, entries(101, 120), 0, 0, nil, 0},
		{"it goes beyond", 100, 2, entries(101, 154), 150, 3, entries(151, 154), 140},
		{"from the first on", 0, 0, entries(1, 151), 150, 3, entries(151, 151), 140},
		{"from where the schedule ends", 150, 3, entries(151, 154), 150, 3, entries(151, 154), 140},
		{"nothing of it is saved", 160, 3, entries(161, 161), 160, 3, entries(161, 161), 140},
		{"a word without entries", 160, 3, nil, 160, 3, nil, 140},
	} {
		req := &raft.AppendEntriesRequest{Term: 4, PrevLogEntry: tt.previous, PrevLogTerm: tt.term, Entries: tt.sent, LeaderCommitIndex: 140}
		skipSaved(req, storage.SnapshotMeta{Index: 150, Term: 3})
		if req.Term != 4 || req.PrevLogEntry != tt.wantPrevious || req.PrevLogTerm != tt.inTerm || !reflect.DeepEqual(req.Entries, tt.want) || req.LeaderCommitIndex != tt.wantCommitted {
			t.Errorf("%s: %+v with %d entries", tt.name, req, len(req.Entries))
		}
	}
}

// A schedule that is saved is committed: no leader from its term on has anything else there.
func TestTransport_findsALeaderOfAnotherHistory(t *testing.T) {
	entries := func(from, to, term uint64) (all []*raft.Log) {
		for index := from; index <= to; index++ {
			all = append(all, &raft.Log{Index: index, Term: term})
		}
		return all
	}
	saved := storage.SnapshotMeta{Index: 150, Term: 3}
	for _, tt := range []struct {
		name           string
		previous, term uint64
		sent           []*raft.Log
		want           string
	}{
		{"a heartbeat", 0, 0, nil, ""},
		{"before", 100, 2, entries(101, 120, 3), ""},
		{"the same", 100, 2, entries(101, 154, 3), ""},
		{"later terms behind it", 149, 2, append(entries(150, 150, 3), entries(151, 154, 9)...), ""},
		{"where it ends", 150, 3, entries(151, 154, 9), ""},
		{"beyond", 160, 9, entries(161, 161, 9), ""},
		{"a later term there", 149, 3, entries(150, 151, 4), "the leader has entry 150 of term 4"},
		{"an earlier one there", 149, 2, entries(150, 151, 2), "the leader has entry 150 of term 2"},
		{"a later one before it", 100, 3, entries(101, 120, 4), "the leader has entry 101 of term 4"},
		{"and before what is sent", 100, 4, nil, "the leader has entry 100 of term 4"},
		{"another one before what is sent", 150, 2, nil, "the leader has entry 150 of term 2"},
	} {
		err := contradiction(&raft.AppendEntriesRequest{Term: 9, PrevLogEntry: tt.previous, PrevLogTerm: tt.term, Entries: tt.sent}, saved)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, raftfsm.ErrDamaged) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
