package raftfsm

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/hashicorp/raft"
)

// mostRoom is how many operations the FSM keeps room for from one command to the next: as many as a full
// one of messages of 100 bytes has, and some 2 MB.
const mostRoom = 8192

// FSM applies the log to the store. Raft calls Apply, StoreConfiguration,
// Snapshot and Restore from one goroutine. It reads no clock, and goes by no
// configuration: the same log makes the same state on every node.
type FSM struct {
	cfg   FSMConfig
	store *storage.Store
	log   *slog.Logger

	applied  uint64 // entries up to here are in the manifest already, or were applied since
	broken   error
	feed     atomic.Pointer[Feed]
	backlog  *Backlog
	read     []Operation     // of a command, reused; all zero between two
	gathered []storage.Entry // of a work, reused
	names    []name.Hash     // of a command's operations, reused
	fresh    []bool          // of which of these nothing was known before it, reused
	seen     name.Heads      // of those that were carried out, reused
}

var _ raft.ConfigurationStore = (*FSM)(nil)

// FSMConfig is what an FSM is made with.
type FSMConfig struct {
	LastLog func() (index, term uint64, err error) // of the log's end; 0: it is empty
	Fail    func(error)                            // told once, why this node cannot go on
	// Whole returns an entry that raft hands out with its data; nil when all have theirs.
	// It is asked for each entry that is applied, once and in order.
	Whole       func(*raft.Log) (*raft.Log, error)
	Understands storage.Level // the newest feature level that this node can go on with
	FlushBytes  int64         // of log, after which a flush is due
	// Applied is told of each command that was applied, before its proposer and the feed
	// are, on the goroutine that applies: it must not block for long, nor keep the operations of
	// an Ingest. nil: nobody is told.
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
	d := decoder{room: f.read[:0]}
	cmd, err := d.command(l.Data)
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
	w := &work{store: f.store, isFed: feed != nil, gathered: f.gathered[:0], next: f.store.NextSeq()}
	if err := f.execute(w, cmd); err != nil {
		// Half of the command may be in memory, where nothing follows it and nothing writes it.
		return f.stop(fmt.Errorf("apply log entry %d: %w: this node must not go on; start it again", l.Index, err))
	}
	w.accept()
	f.gathered = w.gathered
	res, event := w.result, w.event
	res.Index, event.Index = l.Index, l.Index
	f.applied = l.Index
	f.store.Applied(l.Index)
	if f.cfg.Applied != nil {
		f.cfg.Applied(cmd, res)
	}
	if feed != nil && !w.isUntold {
		if f.store.ClaimVersion() != version {
			claim := f.store.Claim()
			event.Claim = &claim
		}
		feed.put(event)
	}
	f.backlog.add(LogBytes(l))
	f.keepRoom(d.room)
	return res
}

// keepRoom keeps what operations were read into for the next command.
func (f *FSM) keepRoom(read []Operation) {
	clear(read) // of bodies
	if cap(read) > mostRoom {
		read = nil
	}
	f.read = read
}

// stop lets nothing more be applied, and no snapshot be taken of what lacks an entry.
func (f *FSM) stop(err error) error {
	f.broken = err
	f.cfg.Fail(err)
	return err
}

// execute carries out the command. An error is one of reading the disk: the node must stop.
func (f *FSM) execute(w *work, cmd Command) error {
	switch c := cmd.(type) {
	case Found:
		f.found(c)
	case Ingest:
		return f.ingest(w, c)
	case SetPositions:
		f.setPositions(w, c)
	case ClaimCommand:
		f.claim(w, c)
	case ChangeClaim:
		f.changeClaim(w, c)
	case Ack:
		f.ack(w, c)
	case Replace:
		f.replace(w, c)
	case RaiseLevel:
		f.raiseLevel(c)
	case Operate:
		return f.operate(w, c)
	case OpenIDs:
		f.store.SetTime(c.Time)
		_, err := f.store.OpenIDs(c.Named, c.UpTo)
		return err
	case KeepOutcomes:
		f.store.SetTime(c.Time)
		f.store.KeepOutcomes(c.Keep)
	case Pause:
		f.pause(w, c)
	case Resume:
		f.resume(w, c)
	case StartBulk:
		f.startBulk(w, c)
	case StepBulk:
		return f.stepBulk(w, c)
	case StopBulk:
		f.stopBulk(w, c)
	default:
		panic(fmt.Sprintf("raftfsm: decoded a %T that nothing applies", cmd))
	}
	return nil
}

func (f *FSM) found(c Found) {
	f.store.SetTime(c.Time)
	if f.store.State().ClusterID == [16]byte{} {
		f.store.Found(c.ClusterID, c.Mode)
	}
}

func (f *FSM) ingest(w *work, c Ingest) error {
	f.store.SetTime(c.Time)
	f.store.RaiseClaim(c.ClaimThrough)
	w.result.PartsApplied = make([]bool, len(c.Parts))
	for i := range c.Parts {
		p := &c.Parts[i]
		at, known := f.store.Position(p.TopicID, p.Partition)
		if !known || at.Next != p.From {
			continue
		}
		w.result.PartsApplied[i] = true
		f.store.SetPosition(storage.Position{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition, Next: p.Next, Epoch: p.Epoch})
		if f.store.IDsOpen() {
			// Before, an entry tells no topic: OpenIDs names its message, and for a look-up that one
			// came by no topic. The scheduler goes by the entry, and the two must agree on what is claimed.
			for j := range p.Entries {
				p.Entries[j].Topic = p.Topic
			}
		}
		if len(p.Entries) > 0 {
			w.accept()
			w.acceptAll(p.Entries)
		}
		w.part = p
		answers, err := f.carryOut(w, p.Operations)
		if err != nil {
			return fmt.Errorf("partition %d of %s: %w", p.Partition, p.Topic, err)
		}
		if answers == nil {
			continue
		}
		if w.result.Answers == nil {
			w.result.Answers = make([][]Answer, len(c.Parts))
		}
		w.result.Answers[i] = answers
	}
	return nil
}

func (f *FSM) operate(w *work, c Operate) error {
	f.store.SetTime(c.Time)
	w.isUntold = len(c.Operations) == 0 // a read's: it moves the time, and wakes nobody
	answers, err := f.carryOut(w, c.Operations)
	w.result.Answers = [][]Answer{answers}
	return err
}

func (f *FSM) setPositions(w *work, c SetPositions) {
	f.store.SetTime(c.Time)
	w.result.PartsApplied = make([]bool, len(c.Sets))
	for i, set := range c.Sets {
		at, known := f.store.Position(set.TopicID, set.Partition)
		if known && at.Next == set.From || !known && set.From == FromAbsent {
			f.store.SetPosition(set.Position)
			w.result.PartsApplied[i] = true
		}
	}
	if c.Surveyed {
		f.store.SetSurveyed()
	}
}

func (f *FSM) claim(w *work, c ClaimCommand) {
	if f.store.Level() >= storage.LevelThree { // it was on its way when the level was raised
		change := storage.ClaimChange{Through: c.Claim.Through, Mark: c.Claim.Mark, Set: c.Claim.Holds}
		named := make(map[string]bool)
		for _, hold := range change.Set {
			named[hold.Target] = true
		}
		for _, hold := range f.store.Holds() {
			if !named[hold.Target] {
				change.Lift = append(change.Lift, hold.Target)
			}
		}
		f.changeClaim(w, ChangeClaim{Time: c.Time, ClaimChange: change})
		return
	}
	f.store.SetTime(c.Time)
	f.store.SetClaim(nextClaim(f.store.Claim(), c.Claim))
}

func (f *FSM) changeClaim(w *work, c ChangeClaim) {
	f.store.SetTime(c.Time)
	before := f.store.PauseBounds()
	f.store.ChangeClaim(f.keepPaused(nextChange(f.store.Claim(), c.ClaimChange)))
	w.event.Held = f.topicsOf(c.ClaimChange)
	if before.Len() > 0 || f.store.Held(pause.Topic) > 0 {
		f.tellBounds(w)
	}
}

func (f *FSM) ack(w *work, c Ack) {
	f.store.SetTime(c.Time)
	f.end(c.Ended)
	w.kill(c.Runs...)
}

func (f *FSM) replace(w *work, c Replace) {
	f.store.SetTime(c.Time)
	f.end(c.Ended)
	w.result.PartsApplied = make([]bool, len(c.Kills))
	for i, seq := range c.Kills {
		if !f.store.Alive(seq) {
			continue
		}
		w.kill(storage.SeqRun{First: seq, Last: seq})
		w.result.PartsApplied[i] = true
		w.add(&c.Entries[i])
	}
}

// end keeps the outcomes of messages that the command is about to kill. One that was dead
// before ended otherwise: an Ack may come twice.
func (f *FSM) end(ended []Ended) {
	for _, e := range ended {
		if f.store.Alive(e.Seq) {
			f.store.End(e)
		}
	}
}

// checkLevel refuses a raise to a feature level that this node does not understand.
func (f *FSM) checkLevel(cmd Command) error {
	if c, ok := cmd.(RaiseLevel); ok && c.Level > f.cfg.Understands {
		return fmt.Errorf("%w: it raises the feature level to %d, this binary understands %d", ErrUnknownCommand, c.Level, f.cfg.Understands)
	}
	return nil
}

// raiseLevel raises the level, and has it on disk soon: a program that does not understand it refuses the
// directory then. Before, it runs, and may be elected, until it comes to the raise in the log.
func (f *FSM) raiseLevel(c RaiseLevel) {
	f.store.SetTime(c.Time)
	if before := f.store.Level(); c.Level > before {
		f.store.RaiseLevel(c.Level)
		f.backlog.hasten()
		f.log.Info("feature level raised: binaries that do not understand it cannot run this node any more", "from", before, "to", c.Level)
	}
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

// checkLog refuses a snapshot that ends before the log does, or with it, but in another term: that
// of a leader that was deposed. Raft deletes the log of such a follower but remembers its end, and can
// neither follow nor vote from then on: the leader sends it the snapshot again, and again without a
// pause. The manifest holds the snapshot already: the next start clears or keeps the log as the
// snapshot's term demands.
func (f *FSM) checkLog() error {
	last, term, err := f.cfg.LastLog()
	if at := f.store.ManifestMeta(); err == nil && (last > at.Index || last == at.Index && term != at.Term) {
		return fmt.Errorf("it ends at entry %d of term %d and the log at %d of term %d: start the node again", at.Index, at.Term, last, term)
	}
	return err
}

// A work is what one command accepts and kills, on its way to the store, the result and the feed.
type work struct {
	store    *storage.Store
	isFed    bool
	isUntold bool            // the scheduler need not hear of it
	gathered []storage.Entry // their seqs are certain, but the store has them only after accept
	next     uint64          // seq of the next entry
	part     *Part           // whose operations are carried out; nil: they came by no record

	result Result
	event  Event
}

// add gathers an entry and returns its seq.
func (w *work) add(e *storage.Entry) (seq uint64) {
	w.gathered = append(w.gathered, *e)
	w.next++
	return w.next - 1
}

// accept hands the store what was gathered.
func (w *work) accept() {
	w.next -= uint64(len(w.gathered))
	w.acceptAll(w.gathered)
	clear(w.gathered) // of bodies
	w.gathered = w.gathered[:0]
}

// acceptAll hands the store entries, when nothing is gathered.
func (w *work) acceptAll(es []storage.Entry) {
	if len(es) == 0 {
		return
	}
	first := w.store.Accept(es)
	if w.result.Accepted == 0 {
		w.result.FirstSeq = first
	}
	w.result.Accepted += len(es)
	w.next += uint64(len(es))
	if !w.isFed {
		return
	}
	w.event.Accepted = slices.Grow(w.event.Accepted, len(es))
	for i := range es {
		ref := storage.Ref{Due: es[i].Due, Seq: first + uint64(i)}
		w.event.Accepted = append(w.event.Accepted, storage.Item{Ref: ref, Target: es[i].Target, Topic: es[i].Topic, Size: len(es[i].Body)})
	}
}

// kill ends the life of runs that the store has.
func (w *work) kill(runs ...storage.SeqRun) {
	w.result.Killed += w.store.Kill(runs)
	w.event.Killed = append(w.event.Killed, runs...)
}
