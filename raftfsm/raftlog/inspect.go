package raftlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
	"go.etcd.io/bbolt"
)

// An Inspection is what Inspect has found.
type Inspection struct {
	Term      uint64 // of this node
	VoteTerm  uint64 // in which it voted last
	Vote      string // for whom, as raft writes it
	ClearedAt uint64 // how far the schedule went when the log was cleared last, 0: never, or not noted

	First, Last         uint64 // entries, 0 when there is none
	FirstTerm, LastTerm uint64
	Segments            []InspectedSegment

	Unfinished string   // the file that ends with an append which a crash has cut off; nobody was told of it
	LeftOver   []string // files that the log does not name; the next start removes those of ours
	Damages    []storage.Damage
}

// An InspectedSegment is a file of the log.
type InspectedSegment struct {
	File        string
	Bytes       int64
	First, Last uint64 // entries that count
}

// Lock holds the directory of a node that does not run, so that none is started in it
// while it is looked at. It writes nothing. The error is storage.ErrInUse when one
// runs.
func Lock(dir string) (release func() error, err error) {
	path := filepath.Join(dir, StableFile)
	if stat, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && stat.Size() == 0 {
		return func() error { return nil }, nil // nobody is there, for a node makes it first
	}
	db, err := disk.OpenBolt(path, readOnly())
	if errors.Is(err, codec.ErrCorrupt) { // locked by nobody, or it would be sound; Inspect says what is wrong
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	return db.Close, nil
}

func readOnly() *bbolt.Options {
	return &bbolt.Options{ReadOnly: true, Timeout: lockTimeout, NoStatistics: true}
}

// Inspect checks what Raft keeps in a directory that no node has open, and shows every
// entry to visit; what visit returns is noted as damage at the entry's place. It goes on
// where a start would end, and writes nothing. The error says why it could not be checked.
func Inspect(dir, kind string, visit func(*raft.Log) error) (*Inspection, error) {
	i := inspector{found: new(Inspection), visit: visit}
	err := i.note(i.stable(filepath.Join(dir, StableFile)))
	if err == nil {
		dir = filepath.Join(dir, kind)
		if kind == BoltDB {
			err = i.note(i.boltLog(filepath.Join(dir, File(kind))))
		} else {
			err = i.note(i.walLog(dir))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("inspect log: %w", err)
	}
	return i.found, nil
}

type inspector struct {
	found *Inspection
	visit func(*raft.Log) error
}

// note takes the place of a damage down, and gives back any other error.
func (i *inspector) note(err error) error {
	var damage *codec.Damage
	if !errors.As(err, &damage) || errors.Is(err, codec.ErrVersion) {
		return err
	}
	i.found.Damages = append(i.found.Damages, *damage)
	return nil
}

func (i *inspector) stable(path string) error {
	return inspectBolt(path, func() error {
		s, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: readOnly()})
		if err != nil {
			return err
		}
		defer s.Close() // only read
		p, err := readPromises(path, s)
		i.found.Term, i.found.VoteTerm, i.found.Vote, i.found.ClearedAt = p.term, p.voteTerm, string(p.vote), p.cleared
		return err
	})
}

// inspectBolt checks the frame of a bbolt file before it is read. One that is not there is
// not damaged: whether it must be is known elsewhere.
func inspectBolt(path string, read func() error) error {
	stat, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case stat.Size() == 0:
		return codec.DamageAt(path, -1, "the file is empty")
	}
	db, err := disk.OpenCheckedBolt(path, 2, readOnly())
	if err != nil {
		return err
	}
	err = disk.Guard(read)
	var damage *codec.Damage
	if errors.Is(err, codec.ErrCorrupt) && !errors.As(err, &damage) {
		err = &codec.Damage{File: path, Offset: -1, Err: err}
	}
	return errors.Join(err, db.Close())
}

func (i *inspector) boltLog(path string) error {
	return inspectBolt(path, func() error {
		s, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: readOnly()})
		if err != nil {
			return err
		}
		defer s.Close() // only read
		first, err := s.FirstIndex()
		if err != nil {
			return err
		}
		last, err := s.LastIndex()
		if err != nil {
			return err
		}
		stat, err := os.Stat(path)
		if err != nil {
			return err
		}
		i.found.Segments = []InspectedSegment{{File: path, Bytes: stat.Size(), First: first, Last: last}}
		for index := first; index <= last && last > 0; index++ {
			var e raft.Log
			if err = s.GetLog(index, &e); err == nil {
				err = i.entry(index, &e)
			}
			if err != nil {
				return &codec.Damage{File: path, Offset: -1, Err: fmt.Errorf("entry %d: %w", index, err)}
			}
		}
		return nil
	})
}

func (i *inspector) walLog(dir string) error {
	path := filepath.Join(dir, File(WAL))
	var state types.PersistentState
	err := inspectBolt(path, func() (err error) {
		state, err = readState(path)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	extents, err := checkSegments(dir, state, i.encoded, i.note)
	if err != nil {
		return err
	}
	named := []string{File(WAL), reserveFile}
	for n, x := range extents {
		info := state.Segments[n]
		last := info.BaseIndex + x.entries - 1
		if !info.SealTime.IsZero() {
			last = info.MaxIndex
		}
		i.found.Segments = append(i.found.Segments, InspectedSegment{File: x.path, Bytes: x.size, First: info.MinIndex, Last: last})
		if x.remains > 0 {
			i.found.Unfinished = x.path
		}
		named = append(named, filepath.Base(x.path))
	}
	return i.leftOver(dir, named)
}

func (i *inspector) leftOver(dir string, named []string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !slices.Contains(named, f.Name()) {
			i.found.LeftOver = append(i.found.LeftOver, filepath.Join(dir, f.Name()))
		}
	}
	return nil
}

// readState reads what wal-meta.db names, and refuses what raft-wal would not have
// written: a damaged name of a field would leave the field at zero.
func readState(path string) (state types.PersistentState, err error) {
	db, err := bbolt.Open(path, 0, readOnly())
	if err != nil {
		return state, err
	}
	defer db.Close() // only read
	err = db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(metadb.MetaBucket))
		if bucket == nil {
			return codec.DamageAt(path, -1, "no bucket %q", metadb.MetaBucket)
		}
		written := bucket.Get([]byte(metadb.MetaKey))
		if written == nil {
			return nil // nothing was ever stored
		}
		decoder := json.NewDecoder(bytes.NewReader(written))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&state); err != nil {
			return codec.DamageAt(path, disk.Offset(db, written), "the list of segments: %w", err)
		}
		return nil
	})
	return state, err
}

// encoded decodes an entry of raft-wal.
func (i *inspector) encoded(index uint64, b []byte) error {
	var e raft.Log
	err := disk.Guard(func() error { return new(wal.BinaryCodec).Decode(b, &e) })
	if err != nil {
		return err
	}
	return i.entry(index, &e)
}

// entry compares an entry with the one before.
func (i *inspector) entry(index uint64, e *raft.Log) error {
	f := i.found
	before, beforeTerm := f.Last, f.LastTerm
	if f.First == 0 {
		f.First, f.FirstTerm = index, e.Term
	}
	f.Last, f.LastTerm = index, e.Term
	if err := checkSum(e); err != nil {
		return err
	}
	if e.Index != index || before != 0 && index != before+1 || e.Term < beforeTerm {
		return fmt.Errorf("%w: it is entry %d of term %d, after entry %d of term %d", codec.ErrCorrupt, e.Index, e.Term, before, beforeTerm)
	}
	return i.visit(e)
}
