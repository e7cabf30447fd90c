package node

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// requestBytes bounds the entries that a request carries, but for a single one that
// is larger. It is what two proposals of full size take.
const requestBytes = 2 * raftfsm.ProposalBytes

// tellAgain is after how long a follower is told anew what it has agreed to, in times of transportConfig.quietFor: one
// that has started again meanwhile has its log, and does not know how far it is committed.
const tellAgain = 10

// transport is raft's own, listening in on the answers that followers give to
// their leader. Heartbeats are such answers, so that the leader knows soon how far
// each log reaches: raft itself does not tell.
type transport struct {
	*raft.NetworkTransport
	transportConfig
	streams  *streams
	requests chan raft.RPC // to raft
	rounds   *rounds
	hang     *hang
	// committed is how far a leader has said that its log is: raft keeps of that what this node's log has.
	committed atomic.Uint64

	mu     sync.Mutex
	peers  map[raft.ServerID]peer
	quiets map[raft.ServerID]*quiet
}

type transportConfig struct {
	whole   func(*raft.Log) (*raft.Log, error) // an entry with its data
	saved   func() storage.SnapshotMeta        // where the schedule on disk ends
	timeout time.Duration
	// quietFor is how long after a follower has taken anything else heartbeats are held
	// back. Raft sends five to ten in a time-out, and each wakes two processes: most of what
	// an idle group costs. Where the log is slow or cannot be written, or a packet is lost,
	// they come as usual.
	quietFor time.Duration
	// wordEvery is what a follower of an idle leader hears at least this often.
	wordEvery time.Duration
	// within calls answer if raft is a follower in that very term, which then does not rise
	// before answer returns, and reports whether it is.
	within func(term uint64, answer func()) bool
	term   func() uint64   // of this node, as it is written
	fail   func(error)     // ends the node; it does not block
	closed <-chan struct{} // by the node
}

// A peer is what the last answer said.
type peer struct {
	lastIndex uint64
	contact   time.Time
	snapshot  uint64    // index of the one it receives, or has received and not caught up from; 0: none
	receives  bool      // a snapshot, at this moment
	moved     time.Time // when it had received one, or its log had grown
	told      standing  // that it has agreed to, and nothing has failed since
	toldAt    time.Time // when it has
	followed  uint64    // the last term in which it has taken the leader's log for its own
	upToDate  time.Time // when the last request was sent that it has agreed to and that had no entries: there were none that it lacked
	taking    bool      // leadership, which is being handed to it
	triedIn   uint64    // the last term of which leadership was handed to it, and it did not take it
	tried     time.Time // when that was over
}

// A standing is what a request says of the leader's log that has no entries: where the log ends, and how far it
// is committed.
type standing struct{ term, end, endTerm, committed uint64 }

var _ raft.WithPreVote = (*transport)(nil)

func newTransport(s *streams, cfg transportConfig, logger hclogger) *transport {
	t := &transport{
		transportConfig: cfg, streams: s, requests: make(chan raft.RPC), rounds: newRounds(cfg.wordEvery), hang: new(hang),
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: s, Logger: logger, Timeout: cfg.timeout, MaxPool: 3,
			// One request at a time carries all that has gathered meanwhile. It is
			// the fastest on one machine (215k against 159k messages/s), and every
			// answer passes through AppendEntries.
			MaxRPCsInFlight:         1,
			MsgpackUseNewTimeFormat: true,
		}),
		peers:  map[raft.ServerID]peer{},
		quiets: map[raft.ServerID]*quiet{},
	}
	go t.forward()
	return t
}

// Consumer gives raft what others ask of it.
func (t *transport) Consumer() <-chan raft.RPC { return t.requests }

// SetHeartbeatHandler takes from raft how it answers heartbeats beside its main loop, which may be waiting for
// the disk. Raft lets each of the two set its term, first on disk, then in memory, with nothing between them
// that keeps one from the other:
//
//	heartbeat of term 3                  main loop
//	3 > 2: write 3
//	                                     asked for a vote in 4: write 4, vote, in term 4
//	in term 3
//
// The node would follow the leader of term 3, though its vote has helped to elect one that knows nothing of
// what is acknowledged from here on; what it has acknowledged to that one it would cut off, and at its next
// election vote in term 4 once more. So those that raise the term go to the main loop, where one comes after
// the other. That is not all, for a follower in term 3 can become a candidate while a heartbeat stands still,
// and the heartbeat of a candidate's own term writes it anew:
//
//	heartbeat of term 3                  main loop, in term 3
//	a follower in term 3: beside
//	                                     nothing heard of the leader: candidate
//	a candidate: follow, write 3
//	                                     asked for a vote in 4: write 4, vote, in term 4
//	in term 3
//
// Hence the term does not rise while a heartbeat is answered beside (raftlog.Stable.Within): to write 4 waits
// until the heartbeat is in term 3, and from then on none of term 3 goes beside. A heartbeat has nothing to
// wait for but the seal of stable.db, so that the vote waits for no longer than for a write of its own.
func (t *transport) SetHeartbeatHandler(beside func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		req, ok := rpc.Command.(*raft.AppendEntriesRequest)
		if ok && t.within(req.Term, func() { beside(rpc) }) {
			return
		}
		select {
		case t.requests <- rpc:
		case <-t.closed:
		}
	})
}

// forward tells the streams while raft receives a snapshot, and takes out of requests what the schedule holds.
func (t *transport) forward() {
	for {
		var rpc raft.RPC
		select {
		case rpc = <-t.NetworkTransport.Consumer():
		case <-t.closed:
			return
		}
		switch req := rpc.Command.(type) {
		case *raft.InstallSnapshotRequest:
			rpc = t.received(rpc)
		case *raft.AppendEntriesRequest:
			t.committed.Store(max(t.committed.Load(), req.LeaderCommitIndex)) // nobody else writes it
			saved := t.saved()
			if err := contradiction(req, saved); err != nil && req.Term >= t.term() {
				t.fail(err)
				rpc.Respond(nil, err)
				continue
			}
			skipSaved(req, saved)
		}
		select {
		case t.requests <- rpc:
		case <-t.closed:
			return
		}
	}
}

// contradiction returns an error if the leader's log has something else where the schedule on disk ends than what is in that,
// and nil if it has not, or the request does not tell. All of the schedule is committed, so each leader from that term on has
// it in its log: this disk, or so many others that they could elect a leader without it, were set back to what they held
// before. Raft compares logs alone, skipSaved would have it compare ours with ours, and the node would have one history up to
// here and another one from here on.
//
// Terms never fall along a log, so one with a later term before the end of the schedule has another entry there. A leader
// that was deposed may have such: of what this node knows the term of is the answer to that, and the schedule must
// be looked at before.
func contradiction(req *raft.AppendEntriesRequest, saved storage.SnapshotMeta) error {
	differs := func(index, term uint64) bool {
		return index > 0 && (index <= saved.Index && term > saved.Term || index == saved.Index && term != saved.Term)
	}
	index, term := req.PrevLogEntry, req.PrevLogTerm
	found := differs(index, term)
	for _, l := range req.Entries {
		if found || l.Index > saved.Index {
			break
		}
		index, term = l.Index, l.Term
		found = differs(index, term)
	}
	if !found {
		return nil
	}
	return fmt.Errorf("%w: the schedule ends with entry %d of term %d, and the leader has entry %d of term %d: this disk, or those of the others, hold an older copy of what they held before",
		raftfsm.ErrDamaged, saved.Index, saved.Term, index, term)
}

// skipSaved takes out of a request what the schedule on disk stands for, which the log may not have any more. All of it is
// committed, so that each leader has the same: whether the rest agrees with the log shows from where the schedule ends.
//
// A leader that has not heard how far a follower is asks for an agreement where it last was. A disk that is slow lets the
// requests of some time-outs wait, and takes them one after the other, while each answer comes too late:
//
//	leader                               follower
//	101 to 164 after 100                 slow
//	no answer
//	101 to 164 after 100                 writes 101 to 164, is told to commit, applies them
//	no answer                            flushes, cuts its log up to 150
//	101 to 164 after 100                 knows no 100
//
// Raft takes that for a log that differs, steps back entry by entry, which is further away each time, and ends with the first
// entry that its own log has, or with a snapshot that the follower is beyond: until the next term, or the next snapshot, the
// group would have one member less.
func skipSaved(req *raft.AppendEntriesRequest, saved storage.SnapshotMeta) {
	if isHeartbeat(req) || req.PrevLogEntry >= saved.Index {
		return
	}
	beyond := slices.IndexFunc(req.Entries, func(l *raft.Log) bool { return l.Index > saved.Index })
	if beyond < 0 { // nothing is left but that the leader is there
		*req = *heartbeatOf(req)
		return
	}
	req.PrevLogEntry, req.PrevLogTerm, req.Entries = saved.Index, saved.Term, req.Entries[beyond:]
}

// received returns rpc with an answer that ends the receiving.
func (t *transport) received(rpc raft.RPC) raft.RPC {
	answered, answer := rpc.RespChan, make(chan raft.RPCResponse, 1)
	rpc.RespChan = answer
	t.streams.unwanted.Store(false)
	t.streams.receiving.Add(1)
	go func() {
		defer t.streams.receiving.Add(-1)
		select {
		case r := <-answer:
			answered <- r // has room for it
		case <-t.closed:
		}
	}()
	return rpc
}

func (t *transport) AppendEntries(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	began, heartbeat, quiet := time.Now(), isHeartbeat(req), t.quiet(id)
	if !heartbeat {
		quiet.begin()
	} else if !quiet.wait(t.closed) {
		return raft.ErrTransportShutdown
	}
	if t.hang.lasts() {
		return errHangs
	}
	if err := t.load(req); err != nil {
		return err
	}
	says := standing{term: req.Term, end: req.PrevLogEntry, endTerm: req.PrevLogTerm, committed: req.LeaderCommitIndex}
	sent := req
	if p := t.peer(id); says == p.told && len(req.Entries) == 0 {
		if !t.rounds.wait(id, says.end, t.closed) {
			return raft.ErrTransportShutdown
		}
		if time.Since(p.toldAt) < tellAgain*t.quietFor {
			sent = heartbeatOf(req)
		}
	}
	if err := t.NetworkTransport.AppendEntries(id, peerAt(id, addr), sent, resp); err != nil {
		t.update(id, func(p *peer) { p.told = standing{} }) // it may start anew, and not know then what is committed
		return err
	}
	if !heartbeat && resp.Success { // a follower takes nothing else for contact
		quiet.took(len(req.Entries) == 0)
	}
	t.rounds.answered(id)
	t.update(id, func(p *peer) {
		p.contact = time.Now()
		if resp.LastLog > p.lastIndex {
			p.moved = p.contact
		}
		p.lastIndex = resp.LastLog
		if !heartbeat && resp.Success {
			p.followed = req.Term
			if len(req.Entries) == 0 {
				p.upToDate = began
			}
		}
		switch agreed := resp.Success && len(req.Entries) == 0 && resp.LastLog >= says.end; {
		case heartbeat:
		case !agreed:
			p.told = standing{}
		case sent == req:
			p.told, p.toldAt = says, p.contact
		}
	})
	// Raft takes it for a log that differs and steps back by an entry at each
	// attempt, until it ends before the log and sends a snapshot, which a follower
	// with a longer log cannot take. An error is tried again from where it was.
	if len(req.Entries) > 0 && !resp.Success && !resp.NoRetryBackoff && resp.Term <= req.Term {
		return errNotWritten
	}
	return nil
}

// isHeartbeat tells what raft sends beside the log from what belongs to it, as raft's own
// transport does.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return len(req.Entries) == 0 && req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && req.LeaderCommitIndex == 0
}

// heartbeatOf returns what says that the leader is there, and no more. The follower answers it beside its main
// loop: for a request that tells it nothing new, that wakes half as many goroutines.
func heartbeatOf(req *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	beat := *req
	beat.PrevLogEntry, beat.PrevLogTerm, beat.LeaderCommitIndex, beat.Entries = 0, 0, 0, nil
	return &beat
}

// load reads the data of the entries that req begins with, of requestBytes or of
// one entry, and takes the others out. Raft goes on after the last that was sent.
func (t *transport) load(req *raft.AppendEntriesRequest) error {
	bytes := 0
	for i, lean := range req.Entries {
		whole, err := t.whole(lean)
		if err != nil {
			return err
		}
		req.Entries[i] = whole
		bytes += len(req.Entries[i].Data)
		if bytes > requestBytes && i > 0 {
			clear(req.Entries[i:])
			req.Entries = req.Entries[:i]
			return nil
		}
	}
	return nil
}

// What is asked of the others goes to an id at an address, not to an address.

func (t *transport) RequestVote(id raft.ServerID, addr raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.NetworkTransport.RequestVote(id, peerAt(id, addr), req, resp)
}

func (t *transport) RequestPreVote(id raft.ServerID, addr raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return t.NetworkTransport.RequestPreVote(id, peerAt(id, addr), req, resp)
}

func (t *transport) InstallSnapshot(id raft.ServerID, addr raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	t.update(id, func(p *peer) { p.snapshot, p.receives = req.LastLogIndex, true })
	err := t.NetworkTransport.InstallSnapshot(id, peerAt(id, addr), req, resp, data)
	t.update(id, func(p *peer) {
		p.receives, p.moved = false, time.Now()
		if err != nil || !resp.Success {
			p.snapshot = 0
		}
	})
	return err
}

func (t *transport) TimeoutNow(id raft.ServerID, addr raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.NetworkTransport.TimeoutNow(id, peerAt(id, addr), req, resp)
}

func (t *transport) update(id raft.ServerID, change func(*peer)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	change(&p)
	t.peers[id] = p
}

// reached ends id's catching up after a snapshot if its log has come to index, and has all of the snapshot.
func (t *transport) reached(id raft.ServerID, index uint64) {
	t.update(id, func(p *peer) {
		if p.lastIndex >= max(index, p.snapshot) {
			p.snapshot = 0
		}
	})
}

// sent returns the index up to which all have the log who have answered lately: all there is while nobody has, as
// on a follower.
func (t *transport) sent() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sent := uint64(math.MaxUint64)
	for _, p := range t.peers {
		if p.recent(t.timeout) {
			sent = min(sent, p.lastIndex)
		}
	}
	return sent
}

// peer returns what is known of id; the zero value if it never answered.
func (t *transport) peer(id raft.ServerID) peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[id]
}

// quiet returns the one of id.
func (t *transport) quiet(id raft.ServerID) *quiet {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.quiets[id]
	if q == nil {
		q = newQuiet(t.quietFor)
		t.quiets[id] = q
	}
	return q
}

// moves reports whether p receives a snapshot or its log has grown within d.
func (p peer) moves(d time.Duration) bool { return p.receives || time.Since(p.moved) <= d }

// recent reports whether p answered within d.
func (p peer) recent(d time.Duration) bool { return time.Since(p.contact) <= d }
