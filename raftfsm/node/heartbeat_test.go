package node

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/carillonmq/carillon/raftfsm/raftlog"
)

// A standingStable lets the writer of a term stand still behind its write, once.
type standingStable struct {
	*raftlog.Stable
	term     uint64
	released chan struct{} // nil: nobody stands still any more
}

func (s *standingStable) SetUint64(key []byte, value uint64) error {
	err := s.Stable.SetUint64(key, value)
	if released := s.released; released != nil && string(key) == "CurrentTerm" && value == s.term {
		s.released = nil
		<-released
	}
	return err
}

// emptyFSM applies nothing.
type emptyFSM struct{}

func (emptyFSM) Apply(*raft.Log) any                 { return nil }
func (emptyFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, errNotWritten }
func (emptyFSM) Restore(r io.ReadCloser) error       { return r.Close() }

// A heartbeat of the old leader is answered beside raft's main loop by a follower that becomes a candidate
// meanwhile. It writes its term, and stands still before raft has it in memory, while the node is asked for a
// vote in the next term. Whatever becomes of the vote, the node must not be in the old term after it.
func TestNode_isInNoTermBelowItsVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const old = 3
		var network kfake.VirtualNetwork
		closed := make(chan struct{})
		transportOf := func(id raft.ServerID, addr string, within func(uint64, func()) bool) *transport {
			listener, err := network.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			return newTransport(newStreams(listener, streamConfig{
				cluster: "a", advertised: addr, dial: network.DialContext,
				raftID: func() raft.ServerID { return id }, patience: time.Minute, log: testLogger(t),
			}), transportConfig{timeout: time.Minute, closed: closed, within: within, saved: nothingSaved}, newHCLogger(testLogger(t), "raft-net"))
		}
		servers := []raft.Server{{ID: "n1", Address: "localhost:7301"}, {ID: "n2", Address: "localhost:7302"}, {ID: "n3", Address: "localhost:7303"}}

		stable, err := raftlog.OpenStable(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		standing := &standingStable{Stable: stable, term: old}
		node := &Node{stable: stable}
		passed := make(chan struct{}) // to the heartbeat that has been found to be of the follower's term
		server := transportOf("n1", "localhost:7301", func(term uint64, answer func()) bool {
			return node.within(term, func() {
				<-passed
				answer()
			})
		})
		leader, candidate := transportOf("n2", "localhost:7302", nil), transportOf("n3", "localhost:7303", nil)

		cfg := raft.DefaultConfig()
		cfg.LocalID, cfg.Logger = "n1", newHCLogger(testLogger(t), "raft")
		logs, shots := raft.NewInmemStore(), raft.NewDiscardSnapshotStore()
		if err := raft.BootstrapCluster(cfg, logs, standing, shots, server, raft.Configuration{Servers: servers}); err != nil {
			t.Fatal(err)
		}
		r, err := raft.NewRaft(cfg, emptyFSM{}, logs, standing, shots, server)
		if err != nil {
			t.Fatal(err)
		}
		node.raft.Store(r)
		defer func() {
			err := r.Shutdown().Error()
			close(closed)
			for _, each := range []*transport{leader, candidate, server} {
				_ = each.Close()
				_ = each.streams.Close()
				each.CloseStreams()
			}
			if err != nil || stable.Close() != nil {
				t.Error("close:", err)
			}
		}()

		from := func(s raft.Server) raft.RPCHeader {
			return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(s.ID), Addr: []byte(s.Address)}
		}
		to := peerAt("n1", servers[0].Address)
		beat := func(answered *raft.AppendEntriesResponse, entries ...*raft.Log) error {
			return leader.NetworkTransport.AppendEntries("n1", to, &raft.AppendEntriesRequest{RPCHeader: from(servers[1]), Term: old, Entries: entries}, answered)
		}
		var beaten, appended raft.AppendEntriesResponse
		if err := beat(&beaten); err != nil || !beaten.Success || r.CurrentTerm() != old {
			t.Fatalf("the first heartbeat: %+v, %v", beaten, err)
		}
		standing.released = make(chan struct{})
		released := standing.released
		go func() {
			if err := beat(&beaten); err != nil {
				t.Error(err)
			}
		}()
		for r.State() != raft.Candidate {
			time.Sleep(cfg.HeartbeatTimeout)
		}
		close(passed)
		synctest.Wait()
		if r.State() != raft.Follower || standing.released != nil {
			t.Fatalf("the heartbeat does not stand behind its write, and the node is %s", r.State())
		}
		var voted raft.RequestVoteResponse
		go func() {
			request := &raft.RequestVoteRequest{RPCHeader: from(servers[2]), Term: old + 1, LastLogIndex: 9, LastLogTerm: old}
			if err := candidate.RequestVote("n1", servers[0].Address, request, &voted); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		close(released)
		synctest.Wait()
		if !voted.Granted || voted.Term != old+1 || r.CurrentTerm() != old+1 {
			t.Errorf("asked for a vote it said %+v, and is in term %d", voted, r.CurrentTerm())
		}
		entry := &raft.Log{Index: 2, Term: old, Type: raft.LogNoop}
		if err := beat(&appended, entry); err != nil || appended.Success || appended.Term != old+1 {
			t.Errorf("the leader before was answered %+v, %v", appended, err)
		}
	})
}
