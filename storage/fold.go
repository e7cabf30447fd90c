package storage

import (
	"context"
	"errors"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
)

// storeAlive makes next's alive-set durable and says where it is, before a commit
// names it. What next brings in a file of its own, by a fold or from a stream, is
// there already. A merge changes nothing. A flush appends what has changed; what
// it appends lies beyond the end that the commit before names, so it does no harm
// when the commit does not follow. The caller holds mu.
func (m *manifest) storeAlive(next *contents) error {
	switch {
	case next.level() < LevelTwo:
		next.stored = alive.File{}
		return nil
	case next.stored.ID != m.current.stored.ID:
		return nil
	}
	v, err := next.values()
	if err != nil {
		return err
	}
	if next.stored.ID == 0 || m.suspect {
		next.stored, err = m.sets.Write(m.lastID.Add(1), next.alive, v.nextSeq, nil)
		return err
	}
	if next.alive == m.current.alive {
		return nil
	}
	piece := alive.EncodeChange(m.current.alive, next.alive, next.stored.Next, v.nextSeq)
	if err := m.appendAlive(next.stored, piece); err != nil {
		return err
	}
	for _, g := range next.segments { // a flush names one more
		if !slices.Contains(m.current.segments, g) {
			next.stored.Flushed += g.Size
		}
	}
	next.stored.Size += int64(len(piece))
	next.stored.Count, next.stored.Next = next.alive.Count(), v.nextSeq
	return nil
}

// appendAlive appends pieces, and notes when nobody knows whether they are on disk.
func (m *manifest) appendAlive(f alive.File, pieces []byte) error {
	err := m.sets.Append(f, pieces)
	m.suspect = m.suspect || errors.Is(err, alive.ErrSync)
	return err
}

// removeAlive removes a file that no commit names any more. Should its name outlive
// a crash, the next start finds it unnamed.
func (m *manifest) removeAlive(id uint64) {
	if id == 0 {
		return
	}
	if err := m.sets.Remove(id); err != nil {
		m.log.Error("remove alive-set", "path", m.sets.PathOf(id), "error", err)
	}
}

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
	switch changes := f.Size - f.Base; {
	case f.ID == 0 || changes < foldLeast:
		return false
	case changes >= foldMost:
		return true
	default:
		return f.Flushed >= foldShare*c.alive.BaseSize()
	}
}

// fold writes the alive-set of from anew, into a file of its own, and lets it take
// the place of the one with many changes. Flushes go on meanwhile; what they have
// appended to the old file is copied behind the new base. The caller holds merging.
func (s *Store) fold(ctx context.Context, from *contents) error {
	if err := s.checkRoom(from.alive.BaseSize() + spareRoom); err != nil {
		return err
	}
	gathered := 0
	base, err := s.manifest.sets.Write(s.manifest.lastID.Add(1), from.alive, from.stored.Next, func(n int) error {
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
func (m *manifest) nameBase(from *contents, base alive.File) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.current
	if m.err != nil {
		return m.err
	}
	err := ErrGeneration
	if next.generation == from.generation && next.stored.ID == from.stored.ID {
		next.stored, err = m.follow(from.stored, next.stored, base)
	}
	if err != nil {
		m.removeAlive(base.ID)
		return err
	}
	return m.commit(next)
}

// follow copies what the old file has gained since then behind the base.
func (m *manifest) follow(then, now, base alive.File) (alive.File, error) {
	changes, err := m.sets.ChangesSince(then, now)
	if err != nil {
		return base, err
	}
	if err := m.appendAlive(base, changes); err != nil {
		return base, err
	}
	base.Size += int64(len(changes))
	base.Flushed = now.Flushed - then.Flushed
	base.Count, base.Next = now.Count, now.Next
	return base, nil
}
