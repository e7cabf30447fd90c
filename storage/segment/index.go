package segment

import (
	"slices"
	"sync"
)

const (
	// mostIndexed bounds what an IndexCache keeps, in bytes of memory: some 150,000 entries.
	mostIndexed = 8 << 20
	// An index takes indexSize bytes besides its entries, of indexedSize each, and the names of their targets.
	indexSize   = 256
	indexedSize = 48
)

// A chunkIndex is a chunk's index decoded: an entry is found in it without a walk over those
// before. It is never changed, and holds nothing of the file.
type chunkIndex struct {
	entries []indexedEntry
	bytes   int // of memory
}

// An indexedEntry is an entry without its body, and where that lies.
type indexedEntry struct {
	Ref
	target string
	start  uint32 // in the chunk's value
	length uint32 // plus one; 0 is nil
	crc    uint32
}

// indexChunk checks what openChunk does, and decodes all of the index.
func indexChunk(key, value []byte) (*chunkIndex, error) {
	c, err := openChunk(key, value)
	if err != nil {
		return nil, err
	}
	x := &chunkIndex{entries: make([]indexedEntry, 0, min(int(c.left), len(value)))}
	x.bytes = indexSize + cap(x.entries)*indexedSize
	for _, target := range c.targets {
		x.bytes += len(target)
	}
	for {
		start := len(value) - len(c.bodies)
		e, ok, err := c.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return x, nil
		}
		indexed := indexedEntry{Ref: e.Ref(), target: e.Target, start: uint32(start), crc: e.crc}
		if e.Body != nil {
			indexed.length = uint32(len(e.Body)) + 1
		}
		x.entries = append(x.entries, indexed)
	}
}

// spans reports whether r lies in the chunk if it is in the segment.
func (x *chunkIndex) spans(r Ref) bool {
	return !r.Less(x.entries[0].Ref) && !x.entries[len(x.entries)-1].Less(r)
}

// entry returns the entry named r out of the chunk's value, its body a view, and false when it is not there.
func (x *chunkIndex) entry(r Ref, value []byte) (chunkEntry, bool) {
	at, ok := slices.BinarySearchFunc(x.entries, r, func(e indexedEntry, r Ref) int { return e.Compare(r) })
	if !ok {
		return chunkEntry{}, false
	}
	indexed := &x.entries[at]
	e := chunkEntry{Entry: Entry{Due: r.Due, Seq: r.Seq, Target: indexed.target}, crc: indexed.crc}
	if indexed.length > 0 {
		end := indexed.start + indexed.length - 1
		e.Body = value[indexed.start:end:end]
	}
	return e, true
}

// An IndexCache keeps the chunk indexes that were decoded last. What is due at a time lies
// together, whatever its target, and each target's is read on its own: without it a chunk would be
// decoded for every target that has something in it. The zero value is empty.
//
// It keeps no segment from being closed and unlinked: what it has of one that is gone is never asked
// for again, and makes room for others in its turn.
type IndexCache struct {
	mu      sync.Mutex
	indexes map[chunkPlace]*chunkIndex
	oldest  []chunkPlace // in the order in which they came
	bytes   int          // of all of them
}

// A chunkPlace names a chunk. Its segment's id was no other's since the store was opened.
type chunkPlace struct {
	segment uint64
	first   Ref
}

// index returns the index of the chunk that lies in the segment under key.
func (c *IndexCache) index(s *Segment, key, value []byte) (*chunkIndex, error) {
	place := chunkPlace{s.ID, parseKey(key)}
	c.mu.Lock()
	x := c.indexes[place]
	c.mu.Unlock()
	if x != nil {
		return x, nil
	}
	x, err := indexChunk(key, value)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(place, x)
	return x, nil
}

// Len returns how many chunks the cache has the index of.
func (c *IndexCache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.indexes)
}

// keep adds an index, which another may have added meanwhile. The caller holds mu.
func (c *IndexCache) keep(place chunkPlace, x *chunkIndex) {
	if c.indexes[place] != nil {
		return
	}
	if c.indexes == nil {
		c.indexes = make(map[chunkPlace]*chunkIndex)
	}
	c.indexes[place] = x
	c.oldest = append(c.oldest, place)
	c.bytes += x.bytes
	for c.bytes > mostIndexed && len(c.oldest) > 1 {
		c.bytes -= c.indexes[c.oldest[0]].bytes
		delete(c.indexes, c.oldest[0])
		c.oldest = c.oldest[1:]
	}
}
