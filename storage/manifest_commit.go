package storage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/segment"
	"go.etcd.io/bbolt"
)

var (
	manifestBucket = []byte("manifest")
	segmentsBucket = []byte("segments")
	stateBucket    = []byte("state")
	headKey        = []byte("head")
	stateKey       = []byte("state")
	aliveKey       = []byte("alive")
)

// commit makes next what the manifest names, or changes nothing. Its segments
// must be durable, their names too, and so must a file of the alive-set that next
// brings in, which is removed if the commit fails. The caller holds mu.
//
// Segments that next names no longer lose the manifest's reference. They are
// unlinked after this commit, never before: a crash in between leaves a file
// that the next start removes, the other order would leave a name without a file.
func (m *manifest) commit(next contents) error {
	if m.err != nil {
		return m.err
	}
	next.number = m.current.number + 1
	if err := m.storeAlive(&next); err != nil {
		return err
	}
	err := write(m.db, &next, &m.current)
	if err == nil {
		m.replace(next)
		return nil
	}
	err = m.recover(&next, err)
	if err != nil && m.err == nil && next.stored.ID != m.current.stored.ID {
		m.removeAlive(next.stored.ID)
	}
	return err
}

// replace lets go of the segments that next leaves out, and of the file of the
// alive-set if it has another one.
func (m *manifest) replace(next contents) {
	before, stored := m.current.segments, m.current.stored.ID
	m.setCurrent(next)
	if stored != next.stored.ID {
		m.removeAlive(stored)
		m.suspect = false
	}
	for _, s := range before {
		if !slices.Contains(next.segments, s) {
			s.Doom()
			s.Release()
		}
	}
}

func (m *manifest) setCurrent(c contents) {
	m.current = c
	m.meta.Store(&c.meta)
}

// recover decides about a commit that returned an error. The file is opened anew
// to see whether bbolt wrote the meta page that leads to the commit.
//
// If it did not, nothing has changed: the commit before is whole and was synced.
// If it did, the sync after it failed, and the kernel may count pages as written
// that never reached the disk: another sync of them proves nothing, and a further
// commit would write over pages that the commit before still needs after a power
// cut. So all is written into a new file. If that fails nothing is known and
// nothing more is written: neither may the commit's segments be removed nor the
// old ones be relied on.
func (m *manifest) recover(next *contents, cause error) error {
	m.log.Error("manifest commit failed", "commit", next.number, "error", cause)
	_ = m.db.Close() // where that leaves it locked, it cannot be opened again
	number, err := m.reopen()
	if err == nil && number == m.current.number {
		return cause
	}
	if err == nil {
		err = m.startAnew(next)
	}
	if err != nil {
		m.err = fmt.Errorf("%w: %w, then: %w", ErrFailed, cause, err)
		return m.err
	}
	m.replace(*next)
	return nil
}

// reopen returns the number of the commit that the file leads to.
func (m *manifest) reopen() (uint64, error) {
	if err := m.openFile(); err != nil {
		return 0, err
	}
	named, _, err := m.read()
	return named.number, err
}

// startAnew goes on with a new file that names c. The old one stays locked until
// the new one has its name.
func (m *manifest) startAnew(c *contents) error {
	old := m.db
	err := m.replaceFile(c)
	_ = old.Close() // nothing of it counts any more
	if err != nil {
		return fmt.Errorf("write the manifest anew: %w", err)
	}
	return m.openFile()
}

// write puts what differs from before (nil: everything) into one transaction,
// and the head into another. bbolt keeps two meta pages and falls back to the
// older one when the newer is damaged, without a word: a flipped bit would bring
// back the commit before, whose log is truncated already. With a second
// transaction that changes nothing both lead to the same contents. A power cut
// between the two is harmless: the first is whole by then.
func write(db *bbolt.DB, next, before *contents) error {
	err := db.Update(func(tx *bbolt.Tx) error { return next.put(tx, before) })
	if err == nil {
		err = db.Update(next.putHead)
	}
	if err != nil {
		return fmt.Errorf("write manifest: %w", disk.MarkFull(err))
	}
	return nil
}

func (c *contents) putHead(tx *bbolt.Tx) error {
	head, err := tx.CreateBucketIfNotExists(manifestBucket)
	if err != nil {
		return err
	}
	return head.Put(headKey, codec.Seal(c.encodeHead()))
}

func (c *contents) put(tx *bbolt.Tx, before *contents) error {
	if err := c.putHead(tx); err != nil {
		return err
	}
	if before == nil || before.alive != c.alive {
		if err := c.putState(tx); err != nil {
			return err
		}
	}
	return writeSegments(tx, c, before)
}

// putState writes the state, and the alive-set where that is a part of the
// manifest. Where it is not, the state has a bucket, and by that a page, of its
// own: what lies beside the head is written by every transaction.
func (c *contents) putState(tx *bbolt.Tx) error {
	bucket := tx.Bucket(manifestBucket)
	if c.stored.ID == 0 {
		set, err := alive.EncodePortable(c.alive)
		if err != nil {
			return err
		}
		return errors.Join(bucket.Put(aliveKey, codec.Seal(set)), bucket.Put(stateKey, codec.Seal(c.state)))
	}
	own, err := tx.CreateBucketIfNotExists(stateBucket)
	if err != nil {
		return err
	}
	return errors.Join(bucket.Delete(aliveKey), bucket.Delete(stateKey), own.Put(stateKey, codec.Seal(c.state)))
}

func writeSegments(tx *bbolt.Tx, next, before *contents) error {
	bucket, err := tx.CreateBucketIfNotExists(segmentsBucket)
	if err != nil {
		return err
	}
	if before != nil {
		for _, s := range before.segments {
			if !slices.Contains(next.segments, s) {
				if err := bucket.Delete(segmentKey(s.ID)); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range next.segments {
		if before == nil || !slices.Contains(before.segments, s) {
			if err := bucket.Put(segmentKey(s.ID), codec.Seal(s.Record.Encode())); err != nil {
				return err
			}
		}
	}
	return nil
}

// segmentRecords is what the manifest says of segments not opened yet.
type segmentRecords struct {
	ids     []uint64
	records []segment.Record
}

// read returns the file's contents without segments, and their records.
func (m *manifest) read() (c contents, s segmentRecords, err error) {
	err = disk.Guard(func() error {
		return m.db.View(func(tx *bbolt.Tx) error {
			if err := c.readFrom(tx); err != nil {
				return err
			}
			return s.readFrom(tx)
		})
	})
	return c, s, err
}

func (c *contents) readFrom(tx *bbolt.Tx) error {
	bucket := tx.Bucket(manifestBucket)
	if bucket == nil {
		return fmt.Errorf("%w: no bucket %q", ErrCorrupt, manifestBucket)
	}
	head, err := codec.Open("manifest head", newestHead, bucket.Get(headKey))
	if err != nil {
		return err
	}
	if err := c.decodeHead(head); err != nil {
		return err
	}
	if c.stored.ID != 0 { // the set is read from its file
		return c.readState(tx.Bucket(stateBucket))
	}
	if err := c.readState(bucket); err != nil {
		return err
	}
	sealed, err := codec.Open("alive-set", 1, bucket.Get(aliveKey))
	if err != nil {
		return err
	}
	c.alive, err = alive.DecodePortable(sealed)
	return err
}

func (c *contents) readState(bucket *bbolt.Bucket) error {
	if bucket == nil {
		return fmt.Errorf("%w: no bucket %q", ErrCorrupt, stateBucket)
	}
	state, err := codec.Open("state", newestState, bucket.Get(stateKey))
	if err != nil {
		return err
	}
	c.state = codec.Record{Version: state.Version, Payload: slices.Clone(state.Payload)}
	return nil
}

func (s *segmentRecords) readFrom(tx *bbolt.Tx) error {
	bucket := tx.Bucket(segmentsBucket)
	if bucket == nil {
		return fmt.Errorf("%w: no bucket %q", ErrCorrupt, segmentsBucket)
	}
	return bucket.ForEach(func(key, value []byte) error {
		if len(key) != 8 {
			return fmt.Errorf("%w: segment id of %d bytes", ErrCorrupt, len(key))
		}
		sealed, err := codec.Open("segment record", segment.NewestRecord, value)
		if err != nil {
			return err
		}
		named, err := segment.DecodeRecord(sealed)
		if err != nil {
			return err
		}
		s.ids = append(s.ids, binary.BigEndian.Uint64(key))
		s.records = append(s.records, named)
		return nil
	})
}

func segmentKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func sortBySeq(segments []*segment.Segment) {
	slices.SortFunc(segments, func(a, b *segment.Segment) int { return cmp.Compare(a.Info.First, b.Info.First) })
}
