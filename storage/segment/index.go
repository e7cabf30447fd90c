package segment

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/carillonmq/carillon/storage/codec"
)

const (
	// mostIndexed bounds what an IndexCache keeps, in bytes of memory: some two million entries of 100 B.
	mostIndexed = 8 << 20
	// An index takes indexSize bytes besides its marks, of markSize each, and what it knows of the labels, of labelSize.
	indexSize = 256
	markSize  = 48
	labelSize = 4
	// markEvery is how many entries are decoded at most to find one, and checked.
	markEvery = 8
	// labelsEvery is how many labels are checked to read one.
	labelsEvery = 8
)

// A chunkIndex says where in a chunk one may begin to decode, so that an entry is found without a walk
// over all before, and what the bytes from there on were when the whole was checked: who wants one
// entry reads and checks a few hundred bytes. It is never changed, and holds nothing of the file.
type chunkIndex struct {
	count  int // of entries
	last   Ref
	places []uint32 // of the labels, see chunk
	labels []uint32 // checksums: of the first labelsEvery labels, of the next, ..
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
	crc           uint32 // of what lies between this mark's entry and the next one's
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
	var e chunkEntry
	for at := 0; ; at++ {
		m := mark{before: c.prev, entry: uint32(x.end - c.index.Left()), bodies: uint32(len(value) - len(c.bodies))}
		_, ok, err := c.step(&e)
		if err != nil {
			return nil, err
		}
		if !ok {
			x.checkParts(value)
			return x, nil
		}
		x.last = e.Ref()
		if at%markEvery == 0 {
			m.ref = e.Ref()
			x.marks = append(x.marks, m)
		}
	}
}

// checkParts notes the checksums of the parts that entry reads, out of a value that was checked as a whole.
func (x *chunkIndex) checkParts(value []byte) {
	x.labels = make([]uint32, 0, (len(x.places)+labelsEvery-1)/labelsEvery)
	for at := 0; at < len(x.places); at += labelsEvery {
		x.labels = append(x.labels, codec.Checksum(x.labelsAt(at/labelsEvery, value)))
	}
	for i := range x.marks {
		x.marks[i].crc = codec.Checksum(x.entriesAt(i, value))
	}
}

// labelsAt returns the bytes of the labels that have the checksum at this place of labels.
func (x *chunkIndex) labelsAt(part int, value []byte) []byte {
	end := x.marks[0].entry // where entries begin
	if next := (part + 1) * labelsEvery; next < len(x.places) {
		end = x.places[next] >> placeShift
	}
	return value[x.places[part*labelsEvery]>>placeShift : end]
}

// entriesAt returns the bytes of the entries from a mark on to the next one.
func (x *chunkIndex) entriesAt(mark int, value []byte) []byte {
	end := x.end
	if mark+1 < len(x.marks) {
		end = int(x.marks[mark+1].entry)
	}
	return value[x.marks[mark].entry:end]
}

// bytes returns what the index takes of memory.
func (x *chunkIndex) bytes() int {
	return indexSize + markSize*cap(x.marks) + labelSize*(cap(x.places)+cap(x.labels))
}

// describes reports whether this is the value that was indexed, to judge by its length and its own
// checksum. Whether it is undamaged since, entry finds out of what it reads: what is decoded lies in the file.
func (x *chunkIndex) describes(value []byte) bool {
	return len(value) >= x.end && binary.BigEndian.Uint32(value) == x.crc
}

// spans reports whether r lies in the chunk if it is in the segment.
func (x *chunkIndex) spans(r Ref) bool { return !r.Less(x.marks[0].ref) && !x.last.Less(r) }

// find reads the entry named r out of the chunk's value into e, its id and body views, and returns false when it is
// not there. What it has in common with an entry that e was before, it shares.
func (x *chunkIndex) find(r Ref, value []byte, e *chunkEntry) (bool, error) {
	at, exact := slices.BinarySearchFunc(x.marks, r, func(m mark, r Ref) int { return m.ref.Compare(r) })
	if !exact {
		at--
	}
	if at < 0 {
		return false, nil
	}
	m, entries := &x.marks[at], x.entriesAt(at, value)
	if got := codec.Checksum(entries); got != m.crc {
		return false, fmt.Errorf("%w: entries from %v on have checksum %08x, and had %08x", codec.ErrCorrupt, m.ref, got, m.crc)
	}
	c := chunk{
		left:    uint32(min(x.count-at*markEvery, markEvery)),
		prev:    m.before,
		started: at > 0,
		places:  x.places,
		index:   codec.NewDecoder(entries),
		bodies:  value[m.bodies:],
	}
	for c.left > 0 {
		place, _, err := c.step(e)
		if err != nil || r.Less(e.Ref()) {
			return false, err
		}
		if e.Ref() == r {
			err = x.tell(&e.Entry, int(place), value)
			return err == nil, err
		}
	}
	return false, nil
}

// tell tells the entry its target and topic, which the label at that place has. Those that it has from an entry before
// it keeps if they are the same: who reads many has most of one target.
func (x *chunkIndex) tell(e *Entry, place int, value []byte) error {
	part := place / labelsEvery
	if got, want := codec.Checksum(x.labelsAt(part, value)), x.labels[part]; got != want {
		return fmt.Errorf("%w: labels from the %dth on have checksum %08x, and had %08x", codec.ErrCorrupt, part*labelsEvery, got, want)
	}
	text := codec.NewDecoder(value[x.places[place]>>placeShift : x.end])
	l := readLabel(&text, x.form)
	if e.Target != l.target {
		e.Target = strings.Clone(l.target)
	}
	if e.Topic != l.topic {
		e.Topic = strings.Clone(l.topic)
	}
	return nil
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
