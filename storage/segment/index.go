package segment

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/carillonmq/carillon/storage/codec"
)

const (
	// mostIndexed bounds what an IndexCache keeps, in bytes of memory: some two million entries of 100 B.
	mostIndexed = 8 << 20
	// An index takes indexSize bytes besides its marks, of markSize each, and what it knows of the labels, of labelSize.
	indexSize = 256
	markSize  = 40
	labelSize = 4
	// markEvery is how many entries are decoded at most to find one.
	markEvery = 16
)

// A chunkIndex says where in a chunk one may begin to decode, so that an entry is found without a walk
// over all before. It is never changed, and holds nothing of the file.
type chunkIndex struct {
	count  int // of entries
	last   Ref
	places []uint32 // of the labels, see chunk
	form   Form
	marks  []mark // of every markEvery-th entry, the first one included
	crc    uint32 // of the value's index, which ends at end
	end    int
}

// A mark is an entry at which one may begin to decode.
type mark struct {
	ref           Ref
	before        Ref // of the entry before, for the first one its own
	entry, bodies uint32
}

// indexChunk checks what openChunk does and that all entries decode.
func indexChunk(form Form, key, value []byte) (*chunkIndex, error) {
	c, err := openChunk(form, key, value)
	if err != nil {
		return nil, err
	}
	x := &chunkIndex{
		count: int(c.left), crc: binary.BigEndian.Uint32(value), end: len(value) - len(c.bodies),
		places: c.places, form: form,
	}
	x.marks = make([]mark, 0, min(x.count, len(value))/markEvery+1)
	for at := 0; ; at++ {
		m := mark{before: c.prev, entry: uint32(x.end - c.index.Left()), bodies: uint32(len(value) - len(c.bodies))}
		e, _, ok, err := c.step()
		if err != nil {
			return nil, err
		}
		if !ok {
			return x, nil
		}
		x.last = e.Ref()
		if at%markEvery == 0 {
			m.ref = e.Ref()
			x.marks = append(x.marks, m)
		}
	}
}

// bytes returns what the index takes of memory.
func (x *chunkIndex) bytes() int {
	return indexSize + markSize*cap(x.marks) + labelSize*cap(x.places)
}

// describes reports whether this is the value that was indexed, undamaged: what is decoded from it
// lies in the file.
func (x *chunkIndex) describes(value []byte) bool {
	return len(value) >= x.end && binary.BigEndian.Uint32(value) == x.crc && codec.Checksum(value[4:x.end]) == x.crc
}

// spans reports whether r lies in the chunk if it is in the segment.
func (x *chunkIndex) spans(r Ref) bool { return !r.Less(x.marks[0].ref) && !x.last.Less(r) }

// entry returns the entry named r out of the chunk's value, its id and body views, and false when it is not there.
func (x *chunkIndex) entry(r Ref, value []byte) (chunkEntry, bool, error) {
	at, exact := slices.BinarySearchFunc(x.marks, r, func(m mark, r Ref) int { return m.ref.Compare(r) })
	if !exact {
		at--
	}
	if at < 0 {
		return chunkEntry{}, false, nil
	}
	m := &x.marks[at]
	c := chunk{
		left:    uint32(x.count - at*markEvery),
		prev:    m.before,
		started: at > 0,
		places:  x.places,
		index:   codec.NewDecoder(value[m.entry:x.end]),
		bodies:  value[m.bodies:],
	}
	for {
		e, place, ok, err := c.step()
		if err != nil || !ok || r.Less(e.Ref()) {
			return chunkEntry{}, false, err
		}
		if e.Ref() == r {
			text := codec.NewDecoder(value[x.places[place]>>placeShift : x.end])
			target, topic, _ := readLabel(&text, x.form)
			e.Target, e.Topic = string(target), string(topic)
			return e, true, nil
		}
	}
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
	if x != nil && x.describes(value) {
		return x, nil
	}
	x, err := indexChunk(s.Info.Form, key, value)
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
	c.bytes += x.bytes()
	for c.bytes > mostIndexed && len(c.oldest) > 1 {
		c.bytes -= c.indexes[c.oldest[0]].bytes()
		delete(c.indexes, c.oldest[0])
		c.oldest = c.oldest[1:]
	}
}
