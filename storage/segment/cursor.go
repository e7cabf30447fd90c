package segment

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"go.etcd.io/bbolt"
)

// A Cursor walks one segment in (due, seq) order. It notices a chunk that is missing
// between two, or at an end, by their ordinals. It belongs to one goroutine, which
// calls it within disk.Guard and closes it; the segment must not be released before.
type Cursor struct {
	segment *Segment
	tx      *bbolt.Tx
	bolt    *bbolt.Cursor
	chunk   chunk
	bodies  bool // check each entry's body
	loads   int  // chunks read so far

	value []byte     // the chunk
	entry chunkEntry // to which Start, Next or find has come

	index   *chunkIndex // of the chunk in which find looked last, nil: nowhere
	indexed []byte      // that chunk
}

// Cursor returns one that checks each entry's body if bodies is set. It must be closed.
func (s *Segment) Cursor(bodies bool) (*Cursor, error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("read segment: %w", err)
	}
	return &Cursor{segment: s, tx: tx, bolt: tx.Bucket(chunksBucket).Cursor(), bodies: bodies}, nil
}

// Close ends what the cursor has returned: ids and bodies are views into the file.
func (c *Cursor) Close() { _ = c.tx.Rollback() } // only read

// Start goes to the first entry at or after from and returns it, nil when there is none. It is
// good until Next is called, its id and body are views that end with the cursor.
func (c *Cursor) Start(from Ref) (*Entry, error) { return c.shown(c.start(from)) }

// Next returns the entry after the one before, nil at the end. It is good until the next call,
// its id and body are views that end with the cursor.
func (c *Cursor) Next() (*Entry, error) { return c.shown(c.next()) }

func (c *Cursor) shown(ok bool, err error) (*Entry, error) {
	if err != nil || !ok {
		return nil, err
	}
	return &c.entry.Entry, nil
}

// Body checks the body of the entry that Start or Next has returned last, and returns a copy.
func (c *Cursor) Body() ([]byte, error) {
	if err := c.entry.verify(); err != nil {
		return nil, c.damaged(c.entry.Body, err)
	}
	return bytes.Clone(c.entry.Body), nil
}

// ChunksRead returns how many chunks were read so far.
func (c *Cursor) ChunksRead() int { return c.loads }

// locate returns the chunk that r lies in, or would; the key is nil when there is none.
func (c *Cursor) locate(r Ref) (key, value []byte) {
	var want [keySize]byte
	target := AppendKey(want[:0], r)
	key, value = c.bolt.Seek(target)
	switch {
	case key == nil:
		key, value = c.bolt.Last()
	case string(key) != string(target):
		if key, value = c.bolt.Prev(); key == nil {
			key, value = c.bolt.First()
		}
	}
	return key, value
}

// seek places the cursor on the chunk that r lies in, or would.
func (c *Cursor) seek(r Ref) error {
	key, value := c.locate(r)
	if key == nil {
		return codec.DamageAt(c.segment.Path, -1, "the segment has no chunk")
	}
	if err := c.load(key, value); err != nil {
		return err
	}
	if r.Less(c.chunk.prev) && c.chunk.ordinal != 0 {
		return c.damaged(c.value, fmt.Errorf("%w: no chunk before number %d leads to %v", codec.ErrCorrupt, c.chunk.ordinal, r))
	}
	return nil
}

// start places the cursor on the first entry at or after from, and returns false when there is none.
func (c *Cursor) start(from Ref) (bool, error) {
	if c.segment.Info.Count == 0 || c.segment.Info.Max.Less(from) {
		return false, nil
	}
	if err := c.seek(from); err != nil {
		return false, err
	}
	for {
		ok, err := c.next()
		if err != nil || !ok || !c.entry.Ref().Less(from) {
			return ok, err
		}
	}
}

// find places the cursor on the entry named r, and returns false when it is not there. Refs had better
// come in order: it stays on a chunk for as long as they lie in it.
func (c *Cursor) find(r Ref, cache *IndexCache) (bool, error) {
	if c.index == nil || !c.index.spans(r) {
		key, value := c.locate(r)
		if key == nil {
			return false, codec.DamageAt(c.segment.Path, -1, "the segment has no chunk")
		}
		index, err := cache.index(c.segment, key, value)
		if err != nil {
			return false, c.damaged(value, err)
		}
		c.index, c.indexed = index, value
	}
	ok, err := c.index.find(r, c.indexed, &c.entry)
	if err != nil {
		return false, c.damaged(c.indexed, err)
	}
	if ok {
		return true, nil
	}
	// It may be that the chunk it lies in is hidden by damage: the walk notices that.
	ok, err = c.start(r)
	return ok && c.entry.Ref() == r, err
}

// next places the cursor on the entry after the one before, and returns false at the end.
func (c *Cursor) next() (bool, error) {
	for {
		ok, err := c.chunk.next(&c.entry)
		place := c.value
		if ok && c.bodies {
			err = c.entry.verify()
			place = c.entry.Body
		}
		if err != nil {
			return false, c.damaged(place, err)
		}
		if ok {
			return true, nil
		}
		if more, err := c.nextChunk(); err != nil || !more {
			return false, err
		}
	}
}

func (c *Cursor) nextChunk() (bool, error) {
	expected := c.chunk.ordinal + 1
	key, value := c.bolt.Next()
	if key == nil {
		if expected != c.segment.Info.Chunks {
			return false, codec.DamageAt(c.segment.Path, -1, "the segment ends after %d of %d chunks", expected, c.segment.Info.Chunks)
		}
		return false, nil
	}
	before := c.chunk.prev
	if err := c.load(key, value); err != nil {
		return false, err
	}
	if c.chunk.ordinal != expected || !before.Less(c.chunk.prev) {
		return false, c.damaged(c.value, fmt.Errorf("%w: chunk %d at %v after %v, expected chunk %d", codec.ErrCorrupt, c.chunk.ordinal, c.chunk.prev, before, expected))
	}
	return true, nil
}

func (c *Cursor) load(key, value []byte) error {
	loaded, err := openChunk(c.segment.Info.Form, key, value)
	if err != nil {
		return c.damaged(value, err)
	}
	loaded.before = c.chunk.labels
	c.chunk, c.value = loaded, value
	c.loads++
	return nil
}

// damaged says where in the file the view lies that err is about.
func (c *Cursor) damaged(view []byte, err error) error {
	return &codec.Damage{File: c.segment.Path, Offset: disk.Offset(c.segment.db, view), Err: err}
}

// Read fills in what refs at these places name, with bodies of their own, into found
// at the same places. They must be in order. Those not there are left as they were. It
// stops before bodies are more than so many bytes together, though not before the first,
// and returns how many places it has been to.
func (s *Segment) Read(refs []Ref, places []int, found []Entry, bytes int, indexes *IndexCache) (been int, err error) {
	err = disk.Guard(func() error {
		c, err := s.Cursor(false)
		if err != nil {
			return err
		}
		defer c.Close()
		read := 0
		for _, i := range places {
			ok, err := c.find(refs[i], indexes)
			if err != nil {
				return err
			}
			if !ok {
				been++
				continue
			}
			e := &c.entry
			if read += len(e.Body); read > bytes && read > len(e.Body) {
				return nil
			}
			been++
			if err := e.verify(); err != nil {
				return c.damaged(e.Body, err)
			}
			found[i] = e.Entry
			found[i].ID = strings.Clone(e.ID)
			if e.Body != nil {
				found[i].Body = append([]byte{}, e.Body...)
			}
		}
		return nil
	})
	return been, err
}
