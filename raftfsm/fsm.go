package raftfsm

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
)

// FSM applies the log to the store. Raft calls Apply, StoreConfiguration,
// Snapshot and Restore from one goroutine. It reads no clock, and goes by no
// configuration: the same log makes the same state on every node.
type FSM struct {
	cfg   FSMConfig
	store *storage.Store
	log   *slog.Logger

	applied uint64 // entries up to here are in the manifest already, or were applied since
	broken  error
	feed    atomic.Pointer[Feed]
	backlog *Backlog
}

var _ raft.ConfigurationStore = (*FSM)(nil)

// FSMConfig is what an FSM is made with.
type FSMConfig struct {
	LastLog func() (uint64, error) // index of the log's end
	Fail    func(error)            // told once, why this node cannot go on
	// Whole returns an entry that raft hands out with its data; nil when all have theirs.
	// It is asked for each entry that is applied, once and in order.
	Whole       func(*raft.Log) (*raft.Log, error)
	Understands storage.Level // the newest feature level that this node can go on with
	FlushBytes  int64         // of log, after which a flush is due
	// Applied is told of each command that was applied, before its proposer and the feed
	// are, on the goroutine that applies: it must not block for long. nil: nobody is told.
	Applied func(Command, Result)
	Logger  *slog.Logger
}

// NewFSM returns the FSM that goes on where the store's manifest ends.
func NewFSM(store *storage.Store, cfg FSMConfig) *FSM {
	return &FSM{
		cfg: cfg, store: store, log: cfg.Logger.With("component", "fsm"),
		applied: store.ManifestMeta().Index, backlog: newBacklog(cfg.FlushBytes),
	}
}

// Backlog returns what was applied and is not on disk.
func (f *FSM) Backlog() *Backlog { return f.backlog }

// Subscribe attaches a new Feed for at most capacity accepted items, in place of the
// last one.
func (f *FSM) Subscribe(capacity int) *Feed {
	var feed *Feed
	feed = newFeed(capacity, func() { f.feed.CompareAndSwap(feed, nil) })
	f.feed.Store(feed)
	return feed
}

// Apply returns a Result, or an error when this node had to stop.
func (f *FSM) Apply(l *raft.Log) any {
	if f.broken != nil {
		return f.broken
	}
	if l.Index <= f.applied {
		return Result{Index: l.Index}
	}
	if f.cfg.Whole != nil {
		whole, err := f.cfg.Whole(l)
		if err != nil {
			return f.stop(fmt.Errorf("apply: %w", err))
		}
		l = whole
	}
	if err := f.backlog.admit(); err != nil {
		unsaved, _ := f.backlog.Unsaved()
		return f.stop(fmt.Errorf("apply log entry %d: %d MiB wait for the disk: %w", l.Index, unsaved>>20, err))
	}
	cmd, err := decodeCommand(l.Data)
	if err == nil {
		err = f.checkLevel(cmd)
	}
	if err != nil {
		// Going on without it would make this node differ from the others.
		return f.stop(fmt.Errorf("apply log entry %d: %w: this node must not go on; run the version of the other nodes", l.Index, err))
	}

	// The feed may come or go while the command is carried out. Who subscribes then waits for a
	// barrier, and reads what came before that from storage.
	feed, version := f.feed.Load(), f.store.ClaimVersion()
	res, event := f.execute(cmd)
	res.Index, event.Index = l.Index, l.Index
	f.applied = l.Index
	f.store.Applied(l.Index)
	if f.cfg.Applied != nil {
		f.cfg.Applied(cmd, res)
	}
	if feed != nil {
		if f.store.ClaimVersion() != version {
			claim := f.store.Claim()
			event.Claim = &claim
		}
		feed.put(event)
	}
	f.backlog.add(len(l.Data))
	return res
}

// stop lets nothing more be applied, and no snapshot be taken of what lacks an entry.
func (f *FSM) stop(err error) error {
	f.broken = err
	f.cfg.Fail(err)
	return err
}

func (f *FSM) execute(cmd Command) (Result, Event) {
	switch c := cmd.(type) {
	case Found:
		return f.found(c)
	case Ingest:
		return f.ingest(c)
	case SetPositions:
		return f.setPositions(c)
	case ClaimCommand:
		return f.claim(c)
	case ChangeClaim:
		return f.changeClaim(c)
	case Ack:
		return f.ack(c)
	case Replace:
		return f.replace(c)
	case RaiseLevel:
		return f.raiseLevel(c)
	case Pause:
		return f.pause(c)
	case Resume:
		return f.resume(c)
	default:
		panic(fmt.Sprintf("raftfsm: decoded a %T that nothing applies", cmd))
	}
}

func (f *FSM) found(c Found) (Result, Event) {
	f.store.SetTime(c.Time)
	if f.store.State().ClusterID == [16]byte{} {
		f.store.Found(c.ClusterID, c.Mode)
	}
	return Result{}, Event{}
}

func (f *FSM) ingest(c Ingest) (Result, Event) {
	f.store.SetTime(c.Time)
	f.store.RaiseClaim(c.ClaimThrough)
	res := Result{PartsApplied: make([]bool, len(c.Parts))}
	var entries []storage.Entry
	for i := range c.Parts {
		p := &c.Parts[i]
		at, known := f.store.Position(p.TopicID, p.Partition)
		if !known || at.Next != p.From {
			continue
		}
		res.PartsApplied[i] = true
		if f.store.Level() >= storage.LevelThree {
			for j := range p.Entries {
				p.Entries[j].Topic = p.Topic
			}
		}
		f.store.SetPosition(storage.Position{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition, Next: p.Next, Epoch: p.Epoch})
		if entries == nil {
			entries = p.Entries
		} else {
			entries = append(entries, p.Entries...)
		}
	}
	return f.accept(res, Event{}, entries)
}

func (f *FSM) setPositions(c SetPositions) (Result, Event) {
	f.store.SetTime(c.Time)
	res := Result{PartsApplied: make([]bool, len(c.Sets))}
	for i, set := range c.Sets {
		at, known := f.store.Position(set.TopicID, set.Partition)
		if known && at.Next == set.From || !known && set.From == FromAbsent {
			f.store.SetPosition(set.Position)
			res.PartsApplied[i] = true
		}
	}
	if c.Surveyed {
		f.store.SetSurveyed()
	}
	return res, Event{}
}

func (f *FSM) claim(c ClaimCommand) (Result, Event) {
	if f.store.Level() >= storage.LevelThree { // it was on its way when the level was raised
		change := storage.ClaimChange{Through: c.Claim.Through, Mark: c.Claim.Mark, Set: c.Claim.Holds}
		for _, hold := range f.store.Holds() {
			change.Lift = append(change.Lift, hold.Target) // and set again, if it is named
		}
		return f.changeClaim(ChangeClaim{Time: c.Time, ClaimChange: change})
	}
	f.store.SetTime(c.Time)
	f.store.SetClaim(nextClaim(f.store.Claim(), c.Claim))
	return Result{}, Event{}
}

func (f *FSM) changeClaim(c ChangeClaim) (Result, Event) {
	f.store.SetTime(c.Time)
	f.store.ChangeClaim(f.keepPaused(nextChange(f.store.Claim(), c.ClaimChange)))
	return Result{}, Event{Held: f.topicsOf(c.ClaimChange)}
}

func (f *FSM) ack(c Ack) (Result, Event) {
	f.store.SetTime(c.Time)
	return Result{Killed: f.store.Kill(c.Runs)}, Event{Killed: c.Runs}
}

func (f *FSM) replace(c Replace) (Result, Event) {
	f.store.SetTime(c.Time)
	res := Result{PartsApplied: make([]bool, len(c.Kills))}
	var event Event
	var entries []storage.Entry
	for i, seq := range c.Kills {
		if !f.store.Alive(seq) {
			continue
		}
		run := storage.SeqRun{First: seq, Last: seq}
		res.Killed += f.store.Kill([]storage.SeqRun{run})
		res.PartsApplied[i] = true
		event.Killed = append(event.Killed, run)
		entries = append(entries, c.Entries[i])
	}
	return f.accept(res, event, entries)
}

// checkLevel refuses a raise to a feature level that this node does not understand.
func (f *FSM) checkLevel(cmd Command) error {
	if c, ok := cmd.(RaiseLevel); ok && c.Level > f.cfg.Understands {
		return fmt.Errorf("%w: it raises the feature level to %d, this binary understands %d", ErrUnknownCommand, c.Level, f.cfg.Understands)
	}
	return nil
}

func (f *FSM) raiseLevel(c RaiseLevel) (Result, Event) {
	f.store.SetTime(c.Time)
	if before := f.store.Level(); c.Level > before {
		f.store.RaiseLevel(c.Level)
		f.log.Info("feature level raised: binaries that do not understand it cannot run this node any more", "from", before, "to", c.Level)
	}
	return Result{}, Event{}
}

func (f *FSM) accept(res Result, event Event, es []storage.Entry) (Result, Event) {
	if len(es) == 0 {
		return res, event
	}
	res.FirstSeq, res.Accepted = f.store.Accept(es), len(es)
	if f.feed.Load() == nil {
		return res, event
	}
	event.Accepted = make([]storage.Item, len(es))
	for i := range es {
		ref := storage.Ref{Due: es[i].Due, Seq: res.FirstSeq + uint64(i)}
		event.Accepted[i] = storage.Item{Ref: ref, Target: es[i].Target, Topic: es[i].Topic, Size: len(es[i].Body)}
	}
	return res, event
}

// StoreConfiguration keeps nothing: the snapshot's configuration comes from
// Raft. Having the method makes Raft count configuration entries as applied,
// without which it refuses a snapshot until a command follows one.
func (f *FSM) StoreConfiguration(uint64, raft.Configuration) {}

// Snapshot freezes the memtable, while Apply waits.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	f.backlog.freeze()
	return &marker{schedule: f.store.Freeze(), fsm: f}, nil
}

// Restore takes what a received snapshot has put into the manifest; the stream
// is not read again.
func (f *FSM) Restore(stream io.ReadCloser) error {
	err := errors.Join(stream.Close(), f.checkLog())
	if err == nil {
		err = f.store.Reload()
	}
	if err != nil {
		return f.stop(fmt.Errorf("restore received snapshot: %w", err))
	}
	f.applied = f.store.ManifestMeta().Index
	f.backlog.clear()
	return nil
}

// checkLog refuses a snapshot that ends before the log does. Raft deletes the log
// of such a follower but remembers its end, and can neither follow nor vote
// from then on. The manifest holds the snapshot already: the next start clears
// or keeps the log as the snapshot's term demands.
func (f *FSM) checkLog() error {
	last, err := f.cfg.LastLog()
	if at := f.store.ManifestMeta().Index; err == nil && last > at {
		return fmt.Errorf("it ends at entry %d and the log at %d: start the node again", at, last)
	}
	return err
}
