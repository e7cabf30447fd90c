package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"sync"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/name"
	"go.etcd.io/bbolt"
)

// readFilters reads the filters into memory: a byte and a seventh for each row. They must not
// come from the file at each look-up, for a bit that is flipped there would hide a message.
func (s *Segment) readFilters(tx *bbolt.Tx, file *os.File) error {
	if s.Info.Form == Plain {
		return nil
	}
	bucket := tx.Bucket(filterBucket)
	err := bucket.ForEach(func(_, value []byte) error {
		disk.ReadAhead(file, disk.Offset(s.db, value), int64(len(value)))
		return nil
	})
	if err != nil {
		return err
	}
	err = bucket.ForEach(func(_, value []byte) (err error) {
		if s.filters, err = s.filters.Add(value); err != nil {
			return &codec.Damage{File: s.Path, Offset: disk.Offset(s.db, value), Err: err}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(s.filters) != int(s.Info.Filters) || s.Info.Filters > 0 && !s.filters.Whole() {
		return codec.DamageAt(s.Path, -1, "the segment has %d of %d filters", len(s.filters), s.Info.Filters)
	}
	return nil
}

// MayName reports whether the segment may have rows of the name; false is certain. It reads
// nothing from the disk.
func (s *Segment) MayName(h name.Hash) bool { return s.filters.May(&h) }

// StrikeNamed makes fresh[i] false where MayName is true of names[i].
func (s *Segment) StrikeNamed(names []name.Hash, fresh []bool) {
	for i := range names {
		if s.filters.May(&names[i]) {
			fresh[i] = false
		}
	}
}

// FindName returns the first row of the name that accept accepts, the newest first. What is not accepted once never
// is, for the dead stay dead: so where there are many it is not asked again. It may wait for the disk.
func (s *Segment) FindName(h name.Hash, accept func(seq uint64) bool) (found name.Row, ok bool, err error) {
	upTo := s.passed.upTo(h)
	if upTo == 0 {
		return name.Row{}, false, nil
	}
	passed := 0
	err = s.view(func(tx *bbolt.Tx) error {
		c := RowCursor{segment: s, tx: tx, bolt: tx.Bucket(rowsBucket).Cursor()}
		r, more, err := c.seek(h.From(upTo))
		for ; more && err == nil && r.Hash == h; r, more, err = c.Next() {
			if accept(r.Seq) {
				found, ok = r, true
				return nil
			}
			passed++
		}
		return err
	})
	if err != nil {
		return name.Row{}, false, fmt.Errorf("look up id: %w", err)
	}
	if passed >= manyPassed {
		s.passed.note(h, found.Seq)
	}
	return found, ok, nil
}

const (
	// manyPassed is how many rows of a name are passed over before that is noted: as many as cost no more than what is noted.
	manyPassed = 16
	// mostPassed bounds for how many names it is.
	mostPassed = 4096
)

// passed notes up to which seq the rows of a name are worth a look. A name that is used again and again without
// regard to what waits, such as a constant for messages that are due at once, has a row of each that is there no more. It may be
// used by any goroutine.
type passed struct {
	mu    sync.Mutex
	names map[name.Hash]uint64
}

// upTo returns the highest seq to look at, 0 if none is.
func (p *passed) upTo(h name.Hash) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if upTo, noted := p.names[h]; noted {
		return upTo
	}
	return math.MaxUint64
}

// note says that no row of the name above the seq will be accepted.
func (p *passed) note(h name.Hash, upTo uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.names) >= mostPassed {
		clear(p.names)
	}
	if p.names == nil {
		p.names = make(map[name.Hash]uint64)
	}
	if before, noted := p.names[h]; !noted || upTo < before {
		p.names[h] = upTo
	}
}

// A RowCursor walks the rows of one segment in order of their keys. It belongs to one goroutine,
// which calls it within disk.Guard and closes it; the segment must not be released before.
type RowCursor struct {
	segment *Segment
	tx      *bbolt.Tx
	bolt    *bbolt.Cursor
	chunk   name.Chunk
	at      int // in chunk
}

// Rows returns a cursor at the first row. It must be closed.
func (s *Segment) Rows() (*RowCursor, error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("read segment: %w", err)
	}
	return &RowCursor{segment: s, tx: tx}, nil
}

// Close ends the cursor.
func (c *RowCursor) Close() { _ = c.tx.Rollback() } // only read

// Next returns the row after the one before, false at the end.
func (c *RowCursor) Next() (name.Row, bool, error) {
	if c.segment.Info.Rows == 0 {
		return name.Row{}, false, nil
	}
	for c.at == c.chunk.Len() {
		if c.chunk.Until == name.End {
			return name.Row{}, false, nil
		}
		if err := c.nextChunk(); err != nil {
			return name.Row{}, false, err
		}
	}
	r, err := c.chunk.Row(c.at)
	if err != nil {
		return name.Row{}, false, c.damaged(err)
	}
	c.at++
	return r, true, nil
}

func (c *RowCursor) nextChunk() error {
	begins, ordinal := c.chunk.Until, c.chunk.Ordinal+1
	var key, value []byte
	if c.bolt == nil {
		c.bolt = c.tx.Bucket(rowsBucket).Cursor()
		key, value = c.bolt.First()
		ordinal = 0
	} else {
		key, value = c.bolt.Next()
	}
	if err := c.load(key, value); err != nil {
		return err
	}
	if c.chunk.Ordinal != ordinal || ordinal > 0 && c.chunk.From != begins {
		return c.damaged(fmt.Errorf("%w: chunk %d of rows begins at %x, expected chunk %d from %x", codec.ErrCorrupt, c.chunk.Ordinal, c.chunk.From, ordinal, begins))
	}
	if (c.chunk.Until == name.End) != (ordinal+1 == c.segment.Info.RowChunks) {
		return c.damaged(fmt.Errorf("%w: the rows end at chunk %d of %d", codec.ErrCorrupt, ordinal, c.segment.Info.RowChunks))
	}
	return nil
}

func (c *RowCursor) load(key, value []byte) (err error) {
	if key == nil {
		return c.damaged(fmt.Errorf("%w: no chunk of rows comes after number %d", codec.ErrCorrupt, c.chunk.Ordinal))
	}
	if c.chunk, err = name.OpenChunk(key, value); err != nil {
		return &codec.Damage{File: c.segment.Path, Offset: disk.Offset(c.segment.db, value), Err: err}
	}
	c.at = 0
	return nil
}

// seek returns the first row that is not before want.
func (c *RowCursor) seek(want name.Key) (name.Row, bool, error) {
	if c.segment.Info.Rows == 0 {
		return name.Row{}, false, nil
	}
	key, value := c.bolt.Seek(want[:])
	if key == nil {
		key, value = c.bolt.Last()
	} else if string(key) != string(want[:]) {
		if key, value = c.bolt.Prev(); key == nil {
			key, value = c.bolt.First()
		}
	}
	if err := c.load(key, value); err != nil {
		return name.Row{}, false, err
	}
	// What the chunk answers for tells that no other one was hidden.
	if want.Compare(c.chunk.From) < 0 && c.chunk.Ordinal != 0 || want.Compare(c.chunk.Until) >= 0 {
		return name.Row{}, false, c.damaged(fmt.Errorf("%w: chunk of rows from %x to %x in the place of that for %x", codec.ErrCorrupt, c.chunk.From, c.chunk.Until, want))
	}
	c.at = c.chunk.Search(want)
	return c.Next()
}

func (c *RowCursor) damaged(err error) error {
	return &codec.Damage{File: c.segment.Path, Offset: -1, Err: err}
}

// An idSum adds up what rows say, or entries with an id, in whatever order they come.
type idSum struct {
	count, sum uint64
	buf        []byte
}

func (s *idSum) add(r *name.Row) {
	key := r.Key()
	s.buf = AppendRef(append(s.buf[:0], key[:]...), Ref{Due: r.Due})
	s.buf = binary.AppendVarint(s.buf, r.Expires)
	sum := sha256.Sum256(append(s.buf, r.Target...))
	s.count, s.sum = s.count+1, s.sum+binary.BigEndian.Uint64(sum[:])
}

// verifyRows reads all rows. Those that are not foreign are what the entries say, no more and no
// less; and no filter denies any.
func (s *Segment) verifyRows(ids idSum) error {
	var own idSum
	var rows, foreign uint64
	c, err := s.Rows()
	if err != nil {
		return err
	}
	defer c.Close()
	var last name.Key
	r, ok, err := c.Next()
	for ; ok && err == nil; r, ok, err = c.Next() {
		key := r.Key()
		if rows++; rows > 1 && last.Compare(key) >= 0 {
			return c.damaged(fmt.Errorf("%w: row %x after %x", codec.ErrCorrupt, key, last))
		}
		last = key
		if !s.filters.May(&r.Hash) {
			return c.damaged(fmt.Errorf("%w: the filters deny row %x", codec.ErrCorrupt, key))
		}
		if r.Foreign {
			foreign++
		} else {
			own.add(&r)
		}
	}
	if err != nil {
		return err
	}
	if rows != s.Info.Rows || foreign != s.Info.Foreign {
		return c.damaged(fmt.Errorf("%w: the segment has %d rows of ids, %d of them foreign, was written with %d and %d", codec.ErrCorrupt, rows, foreign, s.Info.Rows, s.Info.Foreign))
	}
	if own.count != ids.count || own.sum != ids.sum {
		return c.damaged(fmt.Errorf("%w: the segment has %d rows of ids that do not say what its %d entries with an id do", codec.ErrCorrupt, own.count, ids.count))
	}
	return nil
}
