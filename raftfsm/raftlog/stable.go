package raftlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// StableFile holds term and vote, and is the lock of the directory.
const StableFile = "stable.db"

// clearedKey is beside term and vote in stable.db: how far the schedule went when the
// whole log was cleared, 8 bytes, big endian. From then on an empty log says nothing
// of what this node has acknowledged, and neither does a schedule that is lost with it.
// It may be written from storage.LevelTwo on; older programs do not look at it.
var clearedKey = []byte("LogClearedAt")

// sealKey is beside them from storage.LevelTwo on: what they were when they were written
// last, under a checksum, for bbolt has none. Older programs do not look at it.
var sealKey = []byte("Sealed")

// What raft names the others.
var (
	termKey     = []byte("CurrentTerm")
	voteTermKey = []byte("LastVoteTerm")
	voteKey     = []byte("LastVoteCand")
)

// A Stable is where Raft keeps its term and vote: promises to the other members.
type Stable struct {
	*raftboltdb.BoltStore
	level func() storage.Level

	term atomic.Uint64 // as it is written
	turn chan struct{} // full while the term rises, and while it must not (Within)

	// Raft writes term and vote, and whoever takes snapshots notes that the log was cleared.
	mu   sync.Mutex
	half bool // the vote's term is written, and not yet whom it is for
}

// OpenStable opens the file, and checks it.
func OpenStable(dir string) (*Stable, error) {
	path := filepath.Join(dir, StableFile)
	s := &Stable{level: func() storage.Level { return storage.LevelOne }, turn: make(chan struct{}, 1)}
	err := makeBolt(path)
	if err == nil {
		err = checkBolt(path)
	}
	if err == nil {
		s.BoltStore, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{Timeout: lockTimeout}})
	}
	if errors.Is(err, berrors.ErrTimeout) || errors.Is(err, storage.ErrInUse) {
		return nil, fmt.Errorf("node.data_dir: %s is in use by another process: stop it, or give each node a directory of its own", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	p, err := readPromises(path, s.BoltStore)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, errors.Join(damaged(err), s.Close()))
	}
	s.term.Store(p.term)
	return s, nil
}

// Term returns the term that is written. It does not block.
func (s *Stable) Term() uint64 { return s.term.Load() }

// Set seals what is there then.
func (s *Stable) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.BoltStore.Set(key, value); err != nil {
		return err
	}
	if bytes.Equal(key, voteKey) {
		s.half = false
	}
	return s.seal()
}

// SetUint64 seals what is there then, but for the first half of a vote. A later term waits until nothing is
// done Within the one that is there; an earlier one is refused, and nothing is written.
func (s *Stable) SetUint64(key []byte, value uint64) error {
	if !bytes.Equal(key, termKey) {
		return s.setUint64(key, value)
	}
	switch term := s.term.Load(); {
	case value < term:
		return fmt.Errorf("term %d was asked for after term %d, nothing was written: start the node again", value, term)
	case value == term:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.seal()
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if err := s.setUint64(key, value); err != nil {
		return err
	}
	s.term.Store(value)
	return nil
}

func (s *Stable) setUint64(key []byte, value uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.BoltStore.SetUint64(key, value); err != nil {
		return err
	}
	if bytes.Equal(key, voteTermKey) {
		s.half = true
	}
	return s.seal()
}

// Within calls do if term is the one that is written, and reports whether it is. No later term is written
// before do returns, so do must not wait for whoever writes one: raft's main loop.
func (s *Stable) Within(term uint64, do func()) bool {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.term.Load() != term {
		return false
	}
	do()
	return true
}

// seal writes down what may from now on not be less. Half a vote would be one for whoever had the one
// before: the seal of the whole has all that was written meanwhile.
func (s *Stable) seal() error {
	if s.half || s.level() < storage.LevelTwo {
		return nil
	}
	p, err := readPromises(StableFile, s.BoltStore)
	if err != nil || p.sealed {
		return err
	}
	return s.BoltStore.Set(sealKey, codec.Seal(p.encode()))
}

// promises are what a node must not forget. Each only grows, but for the vote of a term.
// So a crash between a value and its seal, or a program that knows no seals, leaves
// values above the seal, and damage that passes for such costs votes and no promise.
type promises struct {
	term, voteTerm uint64
	vote           []byte
	cleared        uint64
	sealed         bool // just so
}

// encode writes | term uvarint | vote's term uvarint | vote bytes | cleared uvarint |.
func (p *promises) encode() codec.Record {
	b := binary.AppendUvarint(nil, p.term)
	b = binary.AppendUvarint(b, p.voteTerm)
	b = codec.AppendBytes(b, p.vote)
	return codec.Record{Version: 1, Payload: binary.AppendUvarint(b, p.cleared)}
}

// readPromises reads them, and compares them with their seal, if there is one.
func readPromises(path string, s *raftboltdb.BoltStore) (p promises, err error) {
	var sealed []byte
	err = disk.Guard(func() error {
		var errs [5]error
		p.term, errs[0] = s.GetUint64(termKey)
		p.voteTerm, errs[1] = s.GetUint64(voteTermKey)
		p.vote, errs[2] = s.Get(voteKey)
		p.cleared, errs[3] = s.GetUint64(clearedKey)
		sealed, errs[4] = s.Get(sealKey)
		for _, err := range errs {
			if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	if p.voteTerm > p.term {
		return p, codec.DamageAt(path, -1, "it has voted in term %d, and is in term %d", p.voteTerm, p.term)
	}
	if sealed == nil {
		return p, nil
	}
	record, err := codec.Open("seal of term and vote", 1, sealed)
	if err != nil {
		return p, &codec.Damage{File: path, Offset: -1, Err: err}
	}
	d := codec.NewDecoder(record.Payload)
	was := promises{term: d.Uvarint(), voteTerm: d.Uvarint(), vote: d.Bytes(), cleared: d.Uvarint()}
	if err := d.Finish("seal of term and vote"); err != nil {
		return p, &codec.Damage{File: path, Offset: -1, Err: err}
	}
	sameVote := p.voteTerm == was.voteTerm && bytes.Equal(p.vote, was.vote)
	if p.term < was.term || p.cleared < was.cleared || p.voteTerm < was.voteTerm || p.voteTerm == was.voteTerm && !sameVote {
		return p, codec.DamageAt(path, -1, "it is in term %d with a vote in %d for %q, and was in %d with a vote in %d for %q", p.term, p.voteTerm, p.vote, was.term, was.voteTerm, was.vote)
	}
	p.sealed = p.term == was.term && sameVote && p.cleared == was.cleared
	return p, nil
}

// checkBolt checks the frame of a bbolt file, which is closed, and makes durable what is in it: a vote whose process was
// killed before it was synced may be in memory alone, and Raft repeats it. bbolt would go back to the
// commit before where the last meta page is damaged: to another vote, or another list of
// segments. What is not there, or empty, was about to be made (makeBolt); where it must be there is
// known to package member.
func checkBolt(path string) error {
	if is, err := isMade(path); !is || err != nil {
		return err
	}
	db, err := disk.OpenCheckedBolt(path, 2, readOnly())
	if err != nil {
		return damaged(err)
	}
	return errors.Join(db.Close(), disk.SyncFile(path))
}

// makeBolt makes a bbolt file that is not there, or empty: beside its place, so that it is there whole or not at all. On a full
// disk, or when the process ends, bbolt leaves less than its first pages, which would pass for damage. What is made is locked
// until it is in its place: no other process may put its own there, where the first has it open by then.
func makeBolt(path string) (err error) {
	if is, err := isMade(path); is || err != nil {
		return err
	}
	fresh, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer fresh.Close() // bbolt closes it, too, and has synced it
	if err := unix.Flock(int(fresh.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s", storage.ErrInUse, path)
	} else if err != nil {
		return fmt.Errorf("lock %s: %w", fresh.Name(), err)
	}
	// Whoever had the lock may have put it in its place meanwhile.
	locked, err := fresh.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(fresh.Name()); err != nil || !os.SameFile(locked, named) {
		return fmt.Errorf("%w: %s", storage.ErrInUse, path)
	}
	if is, err := isMade(path); is || err != nil {
		return err
	}
	if err := fresh.Truncate(0); err != nil {
		return err
	}
	db, err := bbolt.Open(fresh.Name(), 0o600, &bbolt.Options{OpenFile: func(string, int, os.FileMode) (*os.File, error) { return fresh, nil }})
	if err != nil {
		return err
	}
	err = cmp.Or(os.Rename(fresh.Name(), path), disk.SyncDir(filepath.Dir(path)))
	return errors.Join(err, db.Close())
}

// isMade reports whether there is something in a file.
func isMade(path string) (bool, error) {
	stat, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && stat.Size() > 0, err
}

// A Schedule is the schedule beside a log, which stands for all that the log has
// lost at its beginning.
type Schedule interface {
	ManifestMeta() storage.SnapshotMeta
	Level() storage.Level
}

// Reconcile says which schedule stands for the log from now on, and makes the log fit
// it, or says in raftfsm.ErrDamaged what is lost. When the log is cleared, that is
// noted in stable. A received snapshot is loaded by then, so the level is that of what
// it brought.
func (s *Store) Reconcile(schedule Schedule, stable *Stable) error {
	s.saved = func() (index, term uint64) {
		m := schedule.ManifestMeta()
		return m.Index, m.Term
	}
	s.level, stable.level = schedule.Level, schedule.Level
	stable.mu.Lock()
	err := stable.seal()
	stable.mu.Unlock()
	if err != nil {
		return fmt.Errorf("seal %s: %w", StableFile, err)
	}
	s.clearing = func(saved uint64) error {
		if schedule.Level() < storage.LevelTwo {
			return nil
		}
		if err := stable.SetUint64(clearedKey, saved); err != nil {
			return fmt.Errorf("note in %s that the log is cleared: %w", StableFile, err)
		}
		return nil
	}
	cleared, err := stable.GetUint64(clearedKey)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return fmt.Errorf("read %s: %w", StableFile, err)
	}
	return s.reconcile(schedule.ManifestMeta(), cleared)
}

// Fits returns raftfsm.ErrDamaged when a schedule does not stand for what a log lacks at its
// beginning. cleared is how far the schedule went when the log was cleared last.
func Fits(m storage.SnapshotMeta, first, last, cleared uint64) error {
	if max(m.Index, last) < cleared {
		return fmt.Errorf("%w: the schedule ends at entry %d and the log at %d, and the schedule that it had stood for all up to %d", raftfsm.ErrDamaged, m.Index, last, cleared)
	}
	if last > 0 && first > m.Index+1 {
		return fmt.Errorf("%w: the log begins at entry %d and the schedule ends at %d", raftfsm.ErrDamaged, first, m.Index)
	}
	return nil
}

// reconcile makes the log fit the manifest. A crash after a received snapshot
// was named in the manifest, and before raft deleted the log that it replaces,
// leaves a log that ends below it, or has another history at its index: neither
// may be followed by the next entry.
//
// What the log does not hold must be in the schedule: an entry that is in neither was
// acknowledged, and a node without it could help to elect a leader that lacks it. A
// log that begins later says so itself; of one that was cleared, cleared is what the
// schedule held then.
func (s *Store) reconcile(m storage.SnapshotMeta, cleared uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	last, err := s.LastIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if err := Fits(m, first, last, cleared); err != nil || last == 0 {
		return err
	}
	if last >= m.Index {
		if m.Index < first {
			return nil
		}
		var at raft.Log
		if err := s.GetLog(m.Index, &at); err != nil {
			return fmt.Errorf("read log entry %d: %w", m.Index, err)
		}
		if at.Term == m.Term {
			return nil
		}
	}
	if err := s.DeleteRange(first, last); err != nil {
		return fmt.Errorf("clear the log before the snapshot at %d: %w", m.Index, err)
	}
	return nil
}
