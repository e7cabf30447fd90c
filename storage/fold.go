package storage

import (
	"context"
	"fmt"
	"os"
)

const (
	// foldShare is how many bytes of segments are flushed for each byte of a base:
	// bases cost a fourteenth of what is flushed.
	foldShare = 14
	// foldLeast is how many bytes of changes are worth a fold.
	foldLeast = 1 << 20
	// foldMost is how many are folded whatever was flushed: a start reads them all.
	foldMost = 32 << 20
)

// shouldFold reports whether a new base is due.
func (c *contents) shouldFold() bool {
	f := &c.stored
	switch changes := f.size - f.base; {
	case f.id == 0 || changes < foldLeast:
		return false
	case changes >= foldMost:
		return true
	default:
		return f.flushed >= foldShare*c.alive.baseSize()
	}
}

// fold writes the alive-set of from anew, into a file of its own, and lets it take
// the place of the one with many changes. Flushes go on meanwhile; what they have
// appended to the old file is copied behind the new base. The caller holds merging.
func (s *Store) fold(ctx context.Context, from *contents) error {
	if err := s.checkRoom(from.alive.baseSize() + spareRoom); err != nil {
		return err
	}
	gathered := 0
	base, err := s.manifest.writeBase(from.alive, from.stored.next, func(n int) error {
		if gathered += n; gathered < paceBytes {
			return ctx.Err()
		}
		n, gathered = gathered, 0
		return s.pace(ctx, n)
	})
	if err != nil {
		return err
	}
	return s.manifest.nameBase(from, base)
}

// nameBase commits a base that was written from what the manifest named then.
func (m *manifest) nameBase(from *contents, base aliveFile) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.current
	if m.err != nil {
		return m.err
	}
	err := ErrGeneration
	if next.generation == from.generation && next.stored.id == from.stored.id {
		next.stored, err = m.follow(from.stored, next.stored, base)
	}
	if err != nil {
		m.removeAlive(base.id)
		return err
	}
	return m.commit(next)
}

// follow copies what the old file has gained since then behind the base.
func (m *manifest) follow(then, now, base aliveFile) (aliveFile, error) {
	old, err := os.Open(m.alivePath(now.id))
	if err != nil {
		return base, fmt.Errorf("fold alive-set: %w", err)
	}
	defer old.Close() // only read
	changes := make([]byte, now.size-then.size)
	if _, err := old.ReadAt(changes, then.size); err != nil {
		return base, fmt.Errorf("fold alive-set: %w", err)
	}
	if err := m.appendAlive(base, changes); err != nil {
		return base, err
	}
	base.size += int64(len(changes))
	base.flushed = now.flushed - then.flushed
	base.count, base.next = now.count, now.next
	return base, nil
}
