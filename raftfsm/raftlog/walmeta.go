package raftlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// damaged makes damage of a file that of the data directory.
func damaged(err error) error {
	if errors.Is(err, codec.ErrCorrupt) {
		return fmt.Errorf("%w: %w", raftfsm.ErrDamaged, err)
	}
	return err
}

// walMeta has raft-wal v0.4.2 open what is really there.
//
// The append that fills a segment seals the file; a goroutine records that in wal-meta.db later. After
// a crash or a Close in between, the segment is opened as the tail although it is sealed, and every
// append fails for ever. Load finds that and records it late.
//
// It settles the end of the tail before (settle).
type walMeta struct {
	metadb.BoltMetaDB
	files  *walFiles
	logger hclog.Logger
}

func (m *walMeta) Load(dir string) (types.PersistentState, error) {
	state, err := m.BoltMetaDB.Load(dir)
	if errors.Is(err, types.ErrCorrupt) {
		err = damaged(codec.DamageAt(filepath.Join(dir, File(WAL)), -1, "%w", err))
	}
	if err != nil {
		return state, err
	}
	extents, err := checkSegments(dir, state, nil, nil)
	if err != nil {
		return state, damaged(err)
	}
	if len(state.Segments) == 0 {
		return state, nil
	}
	tail := &state.Segments[len(state.Segments)-1]
	if !tail.SealTime.IsZero() {
		return state, nil
	}
	if x := extents[len(extents)-1]; x.isHalfMade(*tail) {
		// Raft-wal would append to it as it is, and the check at the next start would miss what was
		// never there. What does not exist raft-wal makes whole.
		if err := m.files.Delete(dir, segment.FileName(*tail)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return state, fmt.Errorf("remove a segment that was not made to its end: %w", err)
		}
		return state, nil
	}
	settle := func() error { return m.settle(dir, segment.FileName(*tail), extents[len(extents)-1]) }
	if err = settle(); m.files.giveUpReserve(err) { // some file systems write nothing in place
		err = settle()
	}
	if err != nil {
		return state, fmt.Errorf("settle the end of segment %s: %w", segment.FileName(*tail), err)
	}
	sealed, err := sealedTail(segment.NewFiler(dir, m.files), *tail)
	if err != nil || sealed == nil {
		return state, err
	}
	*tail = *sealed
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: sealed.MaxIndex + 1, MinIndex: sealed.MaxIndex + 1,
		SizeLimit: sealed.SizeLimit, Codec: sealed.Codec, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	m.logger.Info("recorded the rotation of a sealed segment", "max-index", sealed.MaxIndex)
	return state, m.CommitState(state)
}

// sealedTail returns what wal-meta.db should say of the tail, nil if it is not sealed.
func sealedTail(filer *segment.Filer, tail types.SegmentInfo) (sealed *types.SegmentInfo, err error) {
	w, err := filer.RecoverTail(tail)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	is, indexStart, err := w.Sealed()
	if err != nil || !is {
		return nil, err
	}
	tail.SealTime, tail.IndexStart, tail.MaxIndex = time.Now(), indexStart, w.LastIndex()
	return &tail, nil
}

// settle makes what was found at the end of the tail what is on the disk.
//
// The last append is written once more, and synced. It was read from memory: where the process was killed before its
// sync was through, or the sync failed, it may not be on the disk. Raft does not store again what is there, and would
// acknowledge what the next power loss takes.
//
// What is left of an append that was cut off is cleared. The next one may be shorter, and what lies behind that would
// pass for an append that was damaged (checkEnd); or raft-wal, which compares the sum of the very last append and
// takes the one before it on trust, would take one for whole that is cut off and ends where the remains begin.
func (m *walMeta) settle(dir, name string, x walExtent) (err error) {
	f, err := m.files.VFS.OpenWriter(dir, name) // not ours, which would take back what fails
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	last := make([]byte, x.end-x.last)
	if _, err := f.ReadAt(last, x.last); err != nil {
		return err
	}
	if _, err := f.WriteAt(last, x.last); err != nil {
		return err
	}
	if x.remains > 0 {
		m.logger.Info("cleared what is left of an append that was cut off", "segment", name, "offset", x.end, "bytes", x.remains)
	}
	if err := clearBytes(f, x.end, x.remains); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return disk.SyncDir(dir)
}

// clearBytes writes n zeros from an offset on.
func clearBytes(f io.WriterAt, at, n int64) error {
	zeros := make([]byte, min(n, 1<<20))
	for end := at + n; at < end; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), end-at)], at); err != nil {
			return err
		}
	}
	return nil
}
