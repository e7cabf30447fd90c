package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/semaphore"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/raftlog"
	"github.com/carillonmq/carillon/raftfsm/repeats"
	"github.com/carillonmq/carillon/storage"
)

// What a data directory holds beside node.json.
const (
	raftDir     = "raft"     // log and stable store
	scheduleDir = "schedule" // of storage
)

// maxAppendEntries bounds a request and a group commit in entries, of which raft
// holds no data (raftlog.Lean); their bytes are bounded by requestBytes and bytesInFlight.
const maxAppendEntries = 64

// A Node is one member of the cluster: its log, its schedule and its part in
// Raft. All methods may be called from any goroutine.
type Node struct {
	cfg       Config
	self      member.Config // of cfg
	log       *slog.Logger
	store     *storage.Store
	fsm       *raftfsm.FSM
	streams   *streams
	stable    *raftlog.Stable
	logs      *raftlog.Store
	lean      *raftlog.Lean     // logs as raft sees it
	transport *transport        // set before raft is
	silent    *repeats.Subjects // of members that are asked and do not answer

	successors chan raft.ServerID // that have our place, as replacedLoop is told

	raft      atomic.Pointer[raft.Raft] // nil while unborn
	flushed   chan struct{}             // signalled after a flush
	merges    pacer                     // of mergeLoop
	retention retention                 // of retain
	inFlight  *semaphore.Weighted       // bytes
	proposals *gate
	terms     chan *Leadership
	failed    chan error
	failOnce  sync.Once
	closeOnce sync.Once

	shutdownOnce sync.Once
	shutdownEnd  raft.Future

	closed chan struct{}
	cancel context.CancelFunc
	ctx    context.Context // of the node's own goroutines, ends with Close
	loops  sync.WaitGroup

	reloading sync.Mutex // held over a change of Raft's configuration

	mu        sync.Mutex
	identity  member.Identity
	waiting   string // why the node is unborn, or out of the group
	receiving error  // why the last snapshot from a leader was not received
	failure   error
}

// Open opens the data directory and starts the node. A node that was born before
// is in its group when Open returns; one with an empty disk goes on asking the
// other members in the background (see Standing), and is no leader until then.
// Bad input gives member.ErrConfig, member.ErrForeignData, member.ErrMembers or
// raftfsm.ErrDamaged, wrapped with field, value and remedy. ctx bounds Open alone.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, self: cfg.member(), log: cfg.Logger.With("component", "raftfsm", "node", cfg.NodeID),
		inFlight: semaphore.NewWeighted(bytesInFlight), proposals: newGate(),
		terms: make(chan *Leadership, 1), failed: make(chan error, 1), closed: make(chan struct{}), flushed: make(chan struct{}, 1), silent: repeats.New(),
		successors: make(chan raft.ServerID, 1), merges: pacer{rate: mergeRate},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(cfg.Advise(err), n.Close())
	}
	return n, nil
}

func (n *Node) open(ctx context.Context) error {
	dir := filepath.Join(n.cfg.DataDir, raftDir)
	if err := os.MkdirAll(n.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("%w: node.data_dir: %w", member.ErrConfig, err)
	}
	// To take the lock makes stable.db: whether it is missing shows only before.
	_, err := member.Load(n.self)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: node.data_dir: %w", member.ErrConfig, err)
	}
	if n.stable, err = raftlog.OpenStable(dir); err != nil { // also the lock of the directory
		return err
	}
	if n.identity, err = member.Claim(n.self, n.log); err != nil {
		return err
	}
	n.logs, err = raftlog.Open(raftlog.Config{
		Dir: dir, Kind: n.cfg.Log, SegmentSize: n.cfg.SegmentSize, Files: n.cfg.LogFiles,
		Logger: newHCLogger(n.cfg.Logger, "raft-wal"), Fail: n.failWith,
	})
	if err != nil {
		return err
	}
	if n.store, err = storage.Open(storage.Config{
		Dir: filepath.Join(n.cfg.DataDir, scheduleDir), Logger: n.cfg.Logger, MergeWidth: n.cfg.MergeWidth, Pace: n.paceMerge, Free: n.cfg.FreeSpace,
	}); err != nil {
		return fmt.Errorf("open schedule: %w", err)
	}
	n.lean = raftlog.NewLean(n.logs)
	n.fsm = raftfsm.NewFSM(n.store, raftfsm.FSMConfig{
		LastLog: n.logs.End, Fail: n.failWith, Whole: n.next,
		Understands: n.cfg.Understands, FlushBytes: n.cfg.FlushBytes, Applied: n.cfg.Applied, Logger: n.cfg.Logger,
	})
	me, _ := n.self.Member(n.cfg.NodeID)
	listener, err := n.cfg.Listen("tcp", n.cfg.ListenAddr)
	if err != nil {
		field, remedy := "raft.listen", "free the port or choose another"
		if n.cfg.ListenAddr == me.Raft {
			field, remedy = "cluster.members["+me.ID+"].raft", "free the port, or, before the cluster is founded, choose another on all nodes"
		}
		return fmt.Errorf("%w: %s: %q: %w: %s", member.ErrConfig, field, n.cfg.ListenAddr, err, remedy)
	}
	n.streams = newStreams(listener, streamConfig{
		cluster: n.cfg.ClusterName, advertised: me.Raft, dial: n.cfg.Dial, raftID: n.raftID,
		succeededBy: n.succeededBy, patience: n.patience(), log: n.log,
	})

	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch {
	case n.identity.Born():
		n.loops.Go(func() { n.warnOfDifferences(n.askAll(n.ctx)) })
		return n.start()
	case len(n.cfg.Members) == 1 && !n.cfg.Bootstrap:
		return fmt.Errorf("%w: cluster.bootstrap: false, and node.data_dir %s is empty: set it to true to found a new cluster", member.ErrConfig, n.cfg.DataDir)
	case len(n.cfg.Members) == 1:
		return n.beBorn(member.Decision{Found: true}, nil)
	}
	n.loops.Go(func() { n.birthLoop(n.ctx) })
	return nil
}

// next gives the FSM the data of an entry. It is called once raft runs, which has the transport.
func (n *Node) next(l *raft.Log) (*raft.Log, error) { return n.lean.Next(l, n.transport.sent()) }

// within calls answer if raft runs and is a follower in that very term, and reports whether. Raft's term does
// not rise before answer returns.
func (n *Node) within(term uint64, answer func()) bool {
	r := n.raft.Load()
	return r != nil && r.State() == raft.Follower && r.CurrentTerm() == term && n.stable.Within(term, answer)
}

// start runs Raft. The node has been born.
func (n *Node) start() error {
	id := n.identityNow()
	if err := n.reconcile(); err != nil {
		return err
	}
	n.transport = newTransport(n.streams, transportConfig{
		whole: n.lean.Whole, saved: n.store.ManifestMeta, timeout: n.patience(), quietFor: n.cfg.Heartbeat * 2 / 3, wordEvery: n.cfg.Heartbeat / 2,
		within: n.within, term: n.stable.Term, fail: n.failWith, closed: n.closed,
	}, newHCLogger(n.cfg.Logger, "raft-net").until(n.closed))
	shots := &raftfsm.Snapshots{Store: n.store, Retain: n.retain, Fail: n.failWith, Received: n.noteReceived, Refuse: n.streams.refuse}
	cfg := n.raftConfig(id)
	if err := n.bootstrap(cfg, id, shots); err != nil {
		return err
	}
	r, err := raft.NewRaft(cfg, n.fsm, announced{n.lean, n.transport.rounds, n.transport.hang}, n.stable, shots, n.transport)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	n.raft.Store(r)
	// Raft applies since NewRaft: what failed by now found nothing to shut down.
	if err := n.failureNow(); err != nil {
		n.shutdown()
		return err
	}
	if err := n.checkServers(r); err != nil {
		return err
	}
	if err := n.started(id); err != nil {
		return err
	}
	if err := n.campaignAlone(r); err != nil {
		return err
	}
	n.loops.Go(func() { n.leadershipLoop(n.ctx, r) })
	n.loops.Go(func() { n.flushLoop(n.ctx, r) })
	n.loops.Go(func() { n.mergeLoop(n.ctx) })
	n.loops.Go(func() { n.promoteLoop(n.ctx, r) })
	n.loops.Go(func() { n.replacedLoop(n.ctx, r) })
	return nil
}

// reconcile makes the log fit the schedule, or says what is lost and what to do.
func (n *Node) reconcile() error {
	err := n.logs.Reconcile(n.store, n.stable)
	if errors.Is(err, raftfsm.ErrDamaged) {
		return fmt.Errorf("%w: node.data_dir %s has lost its %s, or has an older one", err, n.cfg.DataDir, scheduleDir)
	}
	return err
}

// started writes down that from now on the log and the vote must be there, and seals the
// identity where the level allows it.
func (n *Node) started(id member.Identity) error {
	err := error(nil)
	if !id.Started {
		id, err = id.Start(n.self)
	}
	if err == nil && n.store.Level() >= storage.LevelTwo {
		id, err = id.Seal(n.cfg.DataDir)
	}
	if err != nil {
		return err
	}
	n.setIdentity(id)
	return nil
}

func (n *Node) raftConfig(id member.Identity) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id.RaftID)
	c.Logger = newHCLogger(n.cfg.Logger, "raft").until(n.closed)
	c.HeartbeatTimeout, c.ElectionTimeout = n.cfg.Heartbeat, n.cfg.Heartbeat
	// No follower calls an election before it has missed the leader for as long, so to
	// step down sooner would only make pauses of the machine into terms. Nothing rests on
	// the lease: what a leader may do, a committed entry of its own term says.
	c.LeaderLeaseTimeout = n.cfg.Heartbeat * 9 / 10 // campaignAlone needs it below the time-out
	// An idle leader tells its followers that often, every 75 to 150 ms, what is committed.
	// Where that is answered it needs no heartbeats (transportConfig.quietFor), which come
	// by a connection of their own: packets that are lost, and sent again after 200 ms, are
	// no election.
	c.CommitTimeout = n.cfg.Heartbeat / 4
	c.MaxAppendEntries = maxAppendEntries
	c.NoSnapshotRestoreOnStart = true // the store has opened its manifest itself
	c.ShutdownOnRemove = false        // a node that was replaced goes on answering what it is
	c.NoLegacyTelemetry = true
	// flushLoop decides when, by bytes.
	c.SnapshotInterval, c.SnapshotThreshold = 24*time.Hour, math.MaxUint64
	return c
}

// bootstrap writes a founder's first log entry, the same on all founders.
func (n *Node) bootstrap(cfg *raft.Config, id member.Identity, shots *raftfsm.Snapshots) error {
	lives, err := raft.HasExistingState(n.logs, n.stable, shots)
	if err != nil {
		return fmt.Errorf("look for raft state: %w", err)
	}
	if lives || id.Founders == nil {
		return nil
	}
	if id.Started {
		return fmt.Errorf("%w: node.data_dir %s has lost its log", raftfsm.ErrDamaged, n.cfg.DataDir)
	}
	var group raft.Configuration
	for _, m := range id.Members {
		group.Servers = append(group.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Raft)})
	}
	if err := raft.BootstrapCluster(cfg, n.logs, n.stable, shots, n.transport, group); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// checkServers compares the log's members with the configured ones. One may be
// missing from the log: it is being replaced.
func (n *Node) checkServers(r *raft.Raft) error {
	for _, s := range servers(r) {
		m, ok := n.self.Member(member.Of(string(s.ID)))
		if !ok || m.Raft != string(s.Address) {
			return fmt.Errorf("%w: cluster.members is %s, but the log has %s at %s: restore the old list, it cannot be changed by configuration",
				member.ErrMembers, member.Describe(n.cfg.Members), s.ID, s.Address)
		}
	}
	return nil
}

// Subscribe attaches a new Feed for at most capacity accepted items. Attach it
// before Barrier, so that nothing falls between the state that is read after
// the barrier and the first event. A node feeds one Feed, the last subscribed.
func (n *Node) Subscribe(capacity int) *raftfsm.Feed {
	return n.fsm.Subscribe(capacity)
}

// Store returns the schedule, for reading.
func (n *Node) Store() *storage.Store { return n.store }

// Failed gives at most one error: why this node had to stop. It takes no more
// part in Raft then, and the process should end.
func (n *Node) Failed() <-chan error { return n.failed }

// failWith may be called from within Raft, so it waits for nothing.
func (n *Node) failWith(err error) {
	n.failOnce.Do(func() {
		advised := n.cfg.Advise(err)
		n.log.Error("node stops", "error", advised)
		n.mu.Lock()
		n.failure = err
		n.mu.Unlock()
		n.failed <- advised
		if n.running() != nil {
			n.shutdown()
		}
	})
}

// shutdown begins to stop Raft, once: only the first future that raft gives waits.
func (n *Node) shutdown() raft.Future {
	n.shutdownOnce.Do(func() { n.shutdownEnd = n.running().Shutdown() })
	return n.shutdownEnd
}

// Close stops the node and closes its files. It hands nothing over: see
// TransferLeadership. What is in flight has up to a second to be decided.
func (n *Node) Close() error {
	var err error
	n.closeOnce.Do(func() { err = n.close() })
	return err
}

func (n *Node) close() error {
	n.cancel()
	n.proposals.close(n.patience())
	close(n.closed)
	var errs []error
	// Raft waits for what it is sending, a snapshot of gigabytes perhaps: stop it,
	// and take the connections away.
	if n.running() != nil {
		n.shutdown()
	}
	if n.streams != nil {
		errs = append(errs, n.streams.Close())
	}
	n.loops.Wait()
	if n.running() != nil { // it may have been born only now
		errs = append(errs, n.shutdown().Error())
	}
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
		n.transport.CloseStreams()
	}
	if n.logs != nil {
		errs = append(errs, n.logs.Close())
	}
	if n.stable != nil {
		errs = append(errs, n.stable.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}

// running returns Raft, nil while the node is unborn.
func (n *Node) running() *raft.Raft { return n.raft.Load() }

func (n *Node) raftID() raft.ServerID { return raft.ServerID(n.identityNow().RaftID) }

func (n *Node) identityNow() member.Identity {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.identity
}

func (n *Node) setIdentity(id member.Identity) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.identity = id
}

// failureNow returns why the node had to stop, nil while it goes on.
func (n *Node) failureNow() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

func (n *Node) setWaiting(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = why
}
