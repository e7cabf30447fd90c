package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/raftlog"
	"github.com/carillonmq/carillon/storage"
)

// An Inspection is what Inspect has found in a data directory.
type Inspection struct {
	Identity *member.Identity    // nil when node.json is damaged
	Log      *raftlog.Inspection // nil when the node was never born
	Schedule *storage.Inspection // nil likewise
	Replayed uint64              // entries of the log that the schedule on disk has not applied
	LeftOver []string            // files that no part names
	Damages  []storage.Damage    // of all parts, and where they contradict each other
}

// Inspect checks the data directory of a node that does not run, all that a start would
// and all that it leaves until it is read. It changes nothing. The error says why
// nothing could be checked: storage.ErrInUse, storage.ErrVersion, fs.ErrNotExist where
// there is no data directory, or the system's.
func Inspect(dir string) (*Inspection, error) {
	release, err := raftlog.Lock(filepath.Join(dir, raftDir))
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", dir, err)
	}
	found := new(Inspection)
	err = found.read(dir)
	if err = errors.Join(err, release()); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", dir, err)
	}
	return found, nil
}

func (i *Inspection) read(dir string) error {
	id, err := member.Read(dir, []string{raftDir, scheduleDir})
	var damage *storage.Damage
	switch {
	case errors.As(err, &damage):
		i.Damages = append(i.Damages, *damage)
	case err != nil:
		return err
	default:
		i.Identity = &id
	}
	if i.Schedule, err = storage.Inspect(filepath.Join(dir, scheduleDir)); err != nil {
		return err
	}
	if i.Log, err = raftlog.Inspect(filepath.Join(dir, raftDir), kindOf(dir, id), i.entry); err != nil {
		return err
	}
	i.Damages = append(append(i.Damages, i.Schedule.Damages...), i.Log.Damages...)
	i.LeftOver = append(i.Schedule.LeftOver, i.Log.LeftOver...)
	if _, err := os.Lstat(filepath.Join(dir, "node.json.tmp")); err == nil {
		i.LeftOver = append(i.LeftOver, filepath.Join(dir, "node.json.tmp"))
	}
	i.compare(dir, id)
	return nil
}

// kindOf returns what kind of log the directory holds.
func kindOf(dir string, id member.Identity) string {
	if id.Log != "" {
		return id.Log
	}
	if _, err := os.Stat(filepath.Join(dir, raftDir, raftlog.BoltDB)); err == nil {
		return raftlog.BoltDB
	}
	return raftlog.WAL
}

// entry looks at what a start would apply.
func (i *Inspection) entry(e *raft.Log) error {
	m := &i.Schedule.Meta
	if e.Index == m.Index && e.Term != m.Term {
		// A crash came between a received snapshot and the clearing of the log, which a
		// start repeats.
		return nil
	}
	if e.Index <= m.Index || e.Type != raft.LogCommand {
		return nil
	}
	i.Replayed++
	err := raftfsm.CheckCommand(e.Data)
	if errors.Is(err, raftfsm.ErrUnknownCommand) {
		return fmt.Errorf("%w: %w", storage.ErrVersion, err)
	}
	return err
}

// compare looks for what the parts say of each other.
func (i *Inspection) compare(dir string, id member.Identity) {
	damaged := func(part string, format string, args ...any) {
		i.Damages = append(i.Damages, storage.Damage{File: filepath.Join(dir, part), Offset: -1, Err: fmt.Errorf(format, args...)})
	}
	l, s := i.Log, i.Schedule
	if id.Started {
		for _, name := range []string{filepath.Join(raftDir, raftlog.StableFile), filepath.Join(raftDir, id.Log, raftlog.File(id.Log))} {
			if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
				damaged(name, "the file is missing")
			}
		}
	}
	if len(i.Damages) > 0 { // all else may follow from that
		return
	}
	if term := max(l.LastTerm, s.Meta.Term); l.Term < term {
		damaged(filepath.Join(raftDir, raftlog.StableFile), "the node is in term %d, and holds entries of term %d", l.Term, term)
	}
	if err := raftlog.Fits(s.Meta, l.First, l.Last, l.ClearedAt); err != nil {
		damaged(scheduleDir, "%w", err)
	}
}
