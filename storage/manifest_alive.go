package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

func (m *manifest) aliveDir() string { return filepath.Join(m.dir, aliveName) }

func (m *manifest) alivePath(id uint64) string {
	return filepath.Join(m.aliveDir(), fmt.Sprintf("%016x%s", id, aliveExt))
}

// storeAlive makes next's alive-set durable and says where it is, before a commit
// names it. What next brings in a file of its own, by a fold or from a stream, is
// there already. A merge changes nothing. A flush appends what has changed; what
// it appends lies beyond the end that the commit before names, so it does no harm
// when the commit does not follow. The caller holds mu.
func (m *manifest) storeAlive(next *contents) error {
	switch {
	case next.level() < LevelTwo:
		next.stored = aliveFile{}
		return nil
	case next.stored.id != m.current.stored.id:
		return nil
	}
	v, err := next.values()
	if err != nil {
		return err
	}
	if next.stored.id == 0 || m.suspect {
		next.stored, err = m.writeBase(next.alive, v.nextSeq, nil)
		return err
	}
	if next.alive == m.current.alive {
		return nil
	}
	piece := appendPiece(nil, encodeChange(m.current.alive, next.alive, next.stored.next, v.nextSeq))
	if err := m.appendAlive(next.stored, piece); err != nil {
		return err
	}
	for _, g := range next.segments { // a flush names one more
		if !slices.Contains(m.current.segments, g) {
			next.stored.flushed += g.size
		}
	}
	next.stored.size += int64(len(piece))
	next.stored.count, next.stored.next = next.alive.count, v.nextSeq
	return nil
}

// appendAlive writes pieces at the end of the file and makes them durable.
func (m *manifest) appendAlive(f aliveFile, pieces []byte) error {
	file, err := os.OpenFile(m.alivePath(f.id), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("change alive-set: %w", err)
	}
	if _, err = file.WriteAt(pieces, f.size); err == nil {
		err = file.Sync()
		m.suspect = m.suspect || err != nil
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("change alive-set: %w", diskFull(err))
	}
	return nil
}

// writeBase writes a set into a file of its own and makes it and its name durable.
// pace, if any, is asked before each piece.
func (m *manifest) writeBase(set *aliveSet, next uint64, pace func(n int) error) (aliveFile, error) {
	f := aliveFile{id: m.lastID.Add(1), count: set.count, next: next}
	if err := m.makeAliveDir(); err != nil {
		return f, fmt.Errorf("write alive-set: %w", diskFull(err))
	}
	file, err := os.OpenFile(m.alivePath(f.id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return f, fmt.Errorf("write alive-set: %w", diskFull(err))
	}
	for piece := range set.basePieces() {
		if pace != nil {
			err = pace(len(piece))
		}
		if err == nil {
			_, err = file.Write(piece)
		}
		if err != nil {
			break
		}
		f.base += int64(len(piece))
	}
	f.size = f.base
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = syncDir(m.aliveDir())
	}
	if err != nil {
		return f, fmt.Errorf("write alive-set: %w", diskFull(errors.Join(err, os.Remove(m.alivePath(f.id)))))
	}
	return f, nil
}

// makeAliveDir makes the directory, durably, that LevelOne does not have.
func (m *manifest) makeAliveDir() error {
	if err := os.Mkdir(m.aliveDir(), 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	return syncDir(m.dir)
}

// removeAlive removes a file that no commit names any more. Should its name outlive
// a crash, the next start finds it unnamed.
func (m *manifest) removeAlive(id uint64) {
	if id == 0 {
		return
	}
	if err := os.Remove(m.alivePath(id)); err != nil {
		m.log.Error("remove alive-set", "path", m.alivePath(id), "error", err)
	}
}

// loadAlive reads what a head names.
func (m *manifest) loadAlive(f aliveFile) (*aliveSet, error) {
	set, err := m.readAlive(f)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", m.alivePath(f.id), err)
	}
	return set, nil
}

func (m *manifest) readAlive(f aliveFile) (*aliveSet, error) {
	file, err := os.Open(m.alivePath(f.id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: it is missing; restore the node from the others", ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() // only read
	stat, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if stat.Size() < f.size {
		return nil, fmt.Errorf("%w: it has %d bytes, was written with %d", ErrCorrupt, stat.Size(), f.size)
	}
	changes := make([]byte, f.size-f.base)
	if _, err := file.ReadAt(changes, f.base); err != nil {
		return nil, err
	}
	set, last, err := decodeAliveFile(file, f.base, changes)
	if err == nil && (set.count != f.count || len(changes) > 0 && last != f.next) {
		err = fmt.Errorf("%w: it holds %d seqs below %d, was written with %d below %d", ErrCorrupt, set.count, last, f.count, f.next)
	}
	return set, err
}
