package storage

import (
	"fmt"

	"go.etcd.io/bbolt"
)

// cursor walks one segment in (due, seq) order within one transaction. It
// notices a chunk that is missing between two, or at an end, by their ordinals.
type cursor struct {
	segment *segment
	bolt    *bbolt.Cursor
	chunk   chunk
	bodies  bool // check each entry's body
	loads   int  // chunks read so far

	index *chunkIndex // of the chunk in which find looked last, nil: nowhere
	value []byte      // that chunk
}

func (s *segment) cursor(tx *bbolt.Tx) *cursor {
	return &cursor{segment: s, bolt: tx.Bucket(chunksBucket).Cursor()}
}

// locate returns the chunk that r lies in, or would; the key is nil when there is none.
func (c *cursor) locate(r Ref) (key, value []byte) {
	var want [keySize]byte
	target := appendKey(want[:0], r)
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
func (c *cursor) seek(r Ref) error {
	key, value := c.locate(r)
	if key == nil {
		return fmt.Errorf("%w: segment %s has no chunk", ErrCorrupt, c.segment.path)
	}
	if err := c.load(key, value); err != nil {
		return err
	}
	if r.Less(c.chunk.prev) && c.chunk.ordinal != 0 {
		return fmt.Errorf("%w: segment %s: no chunk before number %d leads to %v", ErrCorrupt, c.segment.path, c.chunk.ordinal, r)
	}
	return nil
}

// start places the cursor on the first entry at or after from.
func (c *cursor) start(from Ref) (chunkEntry, bool, error) {
	if c.segment.info.max.Less(from) {
		return chunkEntry{}, false, nil
	}
	if err := c.seek(from); err != nil {
		return chunkEntry{}, false, err
	}
	for {
		e, ok, err := c.next()
		if err != nil || !ok || !e.Ref().Less(from) {
			return e, ok, err
		}
	}
}

// find returns the entry named r, its body a view that ends with the transaction. Refs had better come in
// order: it stays on a chunk for as long as they lie in it.
func (c *cursor) find(r Ref, cache *indexCache) (chunkEntry, bool, error) {
	if c.index == nil || !c.index.spans(r) {
		key, value := c.locate(r)
		if key == nil {
			return chunkEntry{}, false, fmt.Errorf("%w: segment %s has no chunk", ErrCorrupt, c.segment.path)
		}
		index, err := cache.index(c.segment, key, value)
		if err != nil {
			return chunkEntry{}, false, fmt.Errorf("segment %s: %w", c.segment.path, err)
		}
		c.index, c.value = index, value
	}
	if e, ok := c.index.entry(r, c.value); ok {
		return e, true, nil
	}
	// It may be that the chunk it lies in is hidden by damage: the walk notices that.
	e, _, err := c.start(r)
	if err != nil || e.Ref() != r {
		return chunkEntry{}, false, err
	}
	return e, true, nil
}

// next returns the next entry, its body a view that ends with the transaction.
func (c *cursor) next() (chunkEntry, bool, error) {
	for {
		e, ok, err := c.chunk.next()
		if ok && c.bodies {
			err = e.verify()
		}
		if err != nil {
			return chunkEntry{}, false, fmt.Errorf("segment %s: %w", c.segment.path, err)
		}
		if ok {
			return e, true, nil
		}
		if more, err := c.nextChunk(); err != nil || !more {
			return chunkEntry{}, false, err
		}
	}
}

func (c *cursor) nextChunk() (bool, error) {
	expected := c.chunk.ordinal + 1
	key, value := c.bolt.Next()
	if key == nil {
		if expected != c.segment.info.chunks {
			return false, fmt.Errorf("%w: segment %s ends after %d of %d chunks", ErrCorrupt, c.segment.path, expected, c.segment.info.chunks)
		}
		return false, nil
	}
	before := c.chunk.prev
	if err := c.load(key, value); err != nil {
		return false, err
	}
	if c.chunk.ordinal != expected || !before.Less(c.chunk.prev) {
		return false, fmt.Errorf("%w: segment %s: chunk %d at %v after %v, expected chunk %d", ErrCorrupt, c.segment.path, c.chunk.ordinal, c.chunk.prev, before, expected)
	}
	return true, nil
}

func (c *cursor) load(key, value []byte) error {
	loaded, err := openChunk(key, value)
	if err != nil {
		return fmt.Errorf("segment %s: %w", c.segment.path, err)
	}
	c.chunk = loaded
	c.loads++
	return nil
}
