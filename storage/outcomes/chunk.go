package outcomes

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/name"
)

// On disk and in streams there are a head and a chunk for each page, records of their own:
//
//	head   | keep for uvarint | keep count uvarint | since varint | first uvarint | next uvarint |
//
//	chunk  | first uvarint | t uvarint | t x target | n uvarint | n x row |
//	row    | kind u8 | name 16 | seq varint | at varint | due varint | older uvarint | higher uvarint | target uvarint | more |
//	more   | partition varint | offset varint |  of what has a place
//	       | by varint |                         of Replaced
//	       | partition varint | by uvarint |     of Answered
//	       nothing                               of all others
//
// A chunk has n rows of its page from row first on: those before were forgotten when it was
// written. seq and at are counted from those of the row before, due and by from the
// row's own at and seq. The number of a chunk is that of its page. A chunk
// with a RefusedRecord is of version 3, else one with an Answered of version 2; of both there are none
// below storage.LevelFour. The others are of version 1.
//
// NewestHead and NewestChunk are the newest versions that this program reads.
const (
	NewestHead  = 1
	NewestChunk = 3
)

// leastRow is how many bytes a row takes at least, and leastTarget a target.
const (
	leastRow    = 1 + 16 + 6
	leastTarget = 1
)

// Head returns what is to be known beside the chunks.
func (f *Frozen) Head() codec.Record { return codec.Record{Version: 1, Payload: f.appendHead(nil)} }

func (r *run) appendHead(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(r.keep.For))
	b = binary.AppendUvarint(b, r.keep.Count)
	b = binary.AppendVarint(b, r.since)
	b = binary.AppendUvarint(b, r.first)
	return binary.AppendUvarint(b, r.next)
}

// Chunks yields the chunks, with their numbers, in order, that there are now and were not, or were
// otherwise, when the same outcomes were then; nil: all.
func (f *Frozen) Chunks(then *Frozen) iter.Seq2[uint64, codec.Record] {
	return func(yield func(uint64, codec.Record) bool) {
		at := f.first
		if then != nil {
			at = max(at, then.next)
		}
		for number := at / pageRows; number*pageRows < f.next && at < f.next; number++ {
			if !yield(number, f.chunk(number)) {
				return
			}
		}
	}
}

// Gone yields the numbers of the chunks that there were then and are not now.
func (f *Frozen) Gone(then *Frozen) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		end := f.first / pageRows
		if f.first == f.next { // the last page has no rows
			end = (f.next + pageRows - 1) / pageRows
		}
		for number := then.first / pageRows; number < end && number*pageRows < then.next; number++ {
			if !yield(number) {
				return
			}
		}
	}
}

// usualRow is how many bytes most rows take: what a chunk is begun with.
const usualRow = 32

func (f *Frozen) chunk(number uint64) codec.Record {
	from, to := max(f.first, number*pageRows), min(f.next, (number+1)*pageRows)
	b := binary.AppendUvarint(make([]byte, 0, usualRow*(to-from)), from)
	p := f.page(from)
	b = binary.AppendUvarint(b, uint64(len(p.targets)))
	for _, target := range p.targets {
		b = codec.AppendString(b, target)
	}
	b = binary.AppendUvarint(b, to-from)
	var before row
	version := byte(1)
	for at := from; at < to; at++ {
		w := f.row(at)
		b = w.append(b, before.seq, before.at)
		before = *w
		version = max(version, w.kind.since())
	}
	return codec.Record{Version: version, Payload: b}
}

func (w *row) append(b []byte, seq uint64, at int64) []byte {
	b = append(append(b, byte(w.kind)), w.name[:]...)
	b = binary.AppendVarint(b, int64(w.seq-seq))
	b = binary.AppendVarint(b, w.at-at)
	b = binary.AppendVarint(b, w.due-w.at)
	b = binary.AppendUvarint(b, uint64(w.older))
	b = binary.AppendUvarint(b, uint64(w.higher))
	b = binary.AppendUvarint(b, uint64(w.target))
	switch {
	case w.kind.hasPlace():
		b = binary.AppendVarint(b, int64(w.partition))
		b = binary.AppendVarint(b, int64(w.more))
	case w.kind == Replaced:
		b = binary.AppendVarint(b, int64(w.more-w.seq))
	case w.kind == Answered:
		b = binary.AppendVarint(b, int64(w.partition))
		b = binary.AppendUvarint(b, w.more)
	}
	return b
}

// since is the version of chunks that brought the kind.
func (k Kind) since() byte {
	switch k {
	case Answered:
		return 2
	case RefusedRecord:
		return 3
	}
	return 1
}

// readRow reads the row behind another, of a chunk of that version with so many targets.
func readRow(d *codec.Decoder, before *row, targets int, version byte) (w row) {
	w.kind, w.name = Kind(d.Byte()), name.Hash(d.ID())
	w.seq = before.seq + uint64(d.Varint())
	w.at = before.at + d.Varint()
	w.due = w.at + d.Varint()
	older, higher, target := d.Uvarint(), d.Uvarint(), d.Uvarint()
	if w.kind < Delivered || w.kind > RefusedRecord || w.kind.since() > version || older > math.MaxUint32 || higher > math.MaxUint32 || target >= uint64(targets) {
		d.Fail("outcome out of its bounds")
		return row{}
	}
	w.older, w.higher, w.target = uint32(older), uint32(higher), uint16(target)
	switch {
	case w.kind.hasPlace():
		w.partition, w.more = d.Int32(), uint64(d.Varint())
	case w.kind == Replaced:
		w.more = w.seq + uint64(d.Varint())
	case w.kind == Answered:
		w.partition, w.more = d.Int32(), d.Uvarint()
	}
	return w
}

// A Loader makes a Frozen of what was written of one. It belongs to one goroutine.
type Loader struct {
	run
	gathered []byte // of a stream: the piece that is not whole yet
}

// NewLoader begins with the head.
func NewLoader(head codec.Record) (*Loader, error) {
	d := codec.NewDecoder(head.Payload)
	l := &Loader{run: run{keep: Keep{For: int64(d.Uvarint()), Count: d.Uvarint()}, since: d.Varint(), first: d.Uvarint(), next: d.Uvarint()}}
	if l.first > l.next || l.next > math.MaxInt64 || l.Count() > 2*MaxCount || l.keep.For < 0 || l.keep.Count > MaxCount {
		d.Fail("outcomes out of their bounds")
	}
	return l, d.Finish("head of the outcomes")
}

// Wants returns the number of the chunk to be taken next, false when all are there.
func (l *Loader) Wants() (number uint64, ok bool) {
	number = l.first/pageRows + uint64(len(l.pages))
	return number, l.first < l.next && number*pageRows < l.next
}

// Take takes the chunk that the loader wants.
func (l *Loader) Take(chunk codec.Record) error {
	number, ok := l.Wants()
	if !ok {
		return fmt.Errorf("%w: outcomes beyond the last, %d", codec.ErrCorrupt, l.next)
	}
	d := codec.NewDecoder(chunk.Payload)
	from := d.Uvarint()
	p := page{rows: new([pageRows]row), targets: make([]string, d.CountOf(leastTarget))}
	for i := range p.targets {
		p.targets[i] = d.Text()
	}
	to := from + uint64(d.CountOf(leastRow))
	if len(p.targets) > pageRows || from/pageRows != number || from > max(l.first, number*pageRows) || to != min(l.next, (number+1)*pageRows) {
		d.Fail("other outcomes than the head tells of")
		to = from
	}
	var before row
	for at := from; at < to; at++ {
		before = readRow(&d, &before, len(p.targets), chunk.Version)
		p.rows[at%pageRows] = before
	}
	l.pages = append(l.pages, p)
	return d.Finish("chunk of the outcomes")
}

// Finish returns all that was taken. The error tells what is missing.
func (l *Loader) Finish() (*Frozen, error) {
	if number, ok := l.Wants(); ok || len(l.gathered) > 0 {
		return nil, fmt.Errorf("%w: chunk %d of the outcomes %d to %d is missing", codec.ErrCorrupt, number, l.first, l.next)
	}
	return &Frozen{l.run}, nil
}
