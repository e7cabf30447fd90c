package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// A segmentLog is a log in raft-wal's segments that mends itself. The append that
// fills a segment seals it; a goroutine then names the next one in wal-meta.db and
// makes its file. If that fails, for lack of room, raft-wal v0.4.2 goes on with the
// sealed one, and every append fails for ever. A cut that fails half way leaves it
// as wrong. What is on disk is right in both cases, and walMeta makes a log of it at
// any start: so it is opened anew within the process, before the next change,
// beside the one that is read meanwhile.
type segmentLog struct {
	dir    string
	size   int // of a segment, bytes
	logger hclog.Logger
	files  *walFiles
	meta   *walMeta // one for all that are opened: its file is locked

	// changes holds the token of who appends, cuts, or opens anew. It is a channel since that takes as long
	// as the disk does: a mutex that is waited for stops the virtual time of tests.
	changes chan struct{}
	stale   bool // wal differs from what is on disk

	mu  sync.RWMutex // held by who uses wal, for writing to exchange it
	wal *wal.WAL
}

func openSegmentLog(dir string, size int, logger hclog.Logger, vfs types.VFS) (*segmentLog, error) {
	if err := checkBolt(filepath.Join(dir, File(WAL))); err != nil {
		return nil, err
	}
	files := &walFiles{VFS: vfs, dir: dir, reserve: reserveOf(size), logger: logger}
	l := &segmentLog{dir: dir, size: size, logger: logger, changes: make(chan struct{}, 1), files: files, meta: &walMeta{files: files, logger: logger}}
	w, err := l.open()
	if err != nil {
		return nil, errors.Join(err, l.meta.Close())
	}
	l.wal = w
	files.keepReserve()
	return l, nil
}

func (l *segmentLog) open() (w *wal.WAL, err error) {
	err = l.files.open(func() error {
		w, err = wal.Open(l.dir, wal.WithLogger(l.logger), wal.WithSegmentSize(l.size),
			wal.WithSegmentFiler(segment.NewFiler(l.dir, l.files)), wal.WithMetaStore(sharedMeta{l.meta}))
		return err
	})
	return w, err
}

// sharedMeta stays open when a WAL is closed.
type sharedMeta struct{ *walMeta }

func (sharedMeta) Close() error { return nil }

// reopen exchanges the WAL for what is on disk. The caller holds changes. An append that failed, and is not taken back
// yet, would be found there: raft was told that it is not, and what it appends next would not follow.
func (l *segmentLog) reopen() error {
	if err := l.files.takeBack(); err != nil {
		return err
	}
	fresh, err := l.open()
	if err != nil {
		return fmt.Errorf("open the log again: %w", err)
	}
	l.mu.Lock()
	old := l.wal
	l.wal = fresh
	l.mu.Unlock()
	l.stale = false
	l.logger.Info("opened the log again after a change of it had failed")
	return old.Close()
}

func (l *segmentLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *segmentLog) StoreLogs(logs []*raft.Log) error {
	l.changes <- struct{}{}
	defer func() { <-l.changes }()
	if !l.stale {
		// No other error: after a failed write raft-wal remembers where to write
		// again, and the file may hold what was answered with an error.
		err := l.use(func(w *wal.WAL) error { return w.StoreLogs(logs) })
		if !errors.Is(err, wal.ErrSealed) {
			return err
		}
		l.stale = true
	}
	if err := l.reopen(); err != nil {
		return err
	}
	return l.use(func(w *wal.WAL) error { return w.StoreLogs(logs) })
}

// DeleteRange cuts the log's beginning without opening it anew: that needs room,
// which the cut may give, and the files that it leaves are not touched.
func (l *segmentLog) DeleteRange(from, to uint64) error {
	l.changes <- struct{}{}
	defer func() { <-l.changes }()
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	if l.stale && to >= last {
		if err := l.reopen(); err != nil {
			return err
		}
	}
	err = l.use(func(w *wal.WAL) error { return w.DeleteRange(from, to) })
	if err != nil {
		l.stale = true
	}
	return err
}

// GetLog finds nothing that is cut. Raft-wal goes on finding what it has cut off in the last of its files, and a leader that
// does so steps back with a follower entry by entry, to the first there ever was.
func (l *segmentLog) GetLog(index uint64, e *raft.Log) error {
	return l.use(func(w *wal.WAL) error {
		if first, err := w.FirstIndex(); err != nil || index < first {
			return cmp.Or(err, raft.ErrLogNotFound)
		}
		return w.GetLog(index, e)
	})
}

func (l *segmentLog) FirstIndex() (index uint64, err error) {
	err = l.use(func(w *wal.WAL) error { index, err = w.FirstIndex(); return err })
	return index, err
}

func (l *segmentLog) LastIndex() (index uint64, err error) {
	err = l.use(func(w *wal.WAL) error { index, err = w.LastIndex(); return err })
	return index, err
}

func (l *segmentLog) use(f func(*wal.WAL) error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return f(l.wal)
}

func (l *segmentLog) Close() error {
	return errors.Join(l.use((*wal.WAL).Close), l.meta.Close())
}
