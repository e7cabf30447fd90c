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
//	head   | keep for uvarint | keep count uvarint | run of ends | run of refusals | run of answers |
//	run    | since varint | first uvarint | next uvarint |
//
//	key of a chunk   | class u8 | number of its page, 56 bits |   in the order of which they are written and sent
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
// row's own at and seq; of a refusal, seq is the row of the ends that came next. A chunk
// with a RefusedRecord is of version 3, else one with an Answered of version 2; of both there are none
// below storage.LevelFour. The others are of version 1.
//
// The head is of version 2, but of version 1, with the run of ends alone, while there was never a refusal or an
// answer. Programs that knew no other put these among the ends, which still may have some: there they are found,
// and are forgotten, as ends are.
//
// NewestHead and NewestChunk are the newest versions that this program reads.
const (
	NewestHead  = 2
	NewestChunk = 3
)

// numberBits is how many bits of a chunk's key are the number of its page.
const numberBits = 56

func keyOf(c class, number uint64) uint64 { return uint64(c)<<numberBits | number }

// leastRow is how many bytes a row takes at least, and leastTarget a target.
const (
	leastRow    = 1 + 16 + 6
	leastTarget = 1
)

// Head returns what is to be known beside the chunks.
func (f *Frozen) Head() codec.Record {
	head := codec.Record{Version: 1}
	head.Payload = binary.AppendUvarint(head.Payload, uint64(f.keep.For))
	head.Payload = binary.AppendUvarint(head.Payload, f.keep.Count)
	runs := f.runs[:1]
	if f.runs[refusals].next > 0 || f.runs[answers].next > 0 {
		head.Version, runs = 2, f.runs[:]
	}
	for c := range runs {
		head.Payload = runs[c].appendTo(head.Payload)
	}
	return head
}

func (r *run) appendTo(b []byte) []byte {
	b = binary.AppendVarint(b, r.since)
	b = binary.AppendUvarint(b, r.first)
	return binary.AppendUvarint(b, r.next)
}

// readRun reads what appendTo has written.
func readRun(d *codec.Decoder) run {
	r := run{since: d.Varint(), first: d.Uvarint(), next: d.Uvarint()}
	if r.first > r.next || r.next > math.MaxInt64 || r.next/pageRows >= 1<<numberBits || r.count() > 2*MaxCount {
		d.Fail("outcomes out of their bounds")
		return run{}
	}
	return r
}

// Chunks yields the chunks, with their keys, in order, that there are now and were not, or were
// otherwise, when the same outcomes were then; nil: all.
func (f *Frozen) Chunks(then *Frozen) iter.Seq2[uint64, codec.Record] {
	return func(yield func(uint64, codec.Record) bool) {
		for c := range f.runs {
			r := &f.runs[c]
			at := r.first
			if then != nil {
				at = max(at, then.runs[c].next)
			}
			for number := at / pageRows; number*pageRows < r.next && at < r.next; number++ {
				if !yield(keyOf(class(c), number), r.chunk(number)) {
					return
				}
			}
		}
	}
}

// Gone yields the keys of the chunks that there were then and are not now.
func (f *Frozen) Gone(then *Frozen) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for c := range f.runs {
			now, before := &f.runs[c], &then.runs[c]
			end := now.first / pageRows
			if now.first == now.next { // the last page has no rows
				end = (now.next + pageRows - 1) / pageRows
			}
			for number := before.first / pageRows; number < end && number*pageRows < before.next; number++ {
				if !yield(keyOf(class(c), number)) {
					return
				}
			}
		}
	}
}

// chunk returns the chunk of that key.
func (f *Frozen) chunk(key uint64) codec.Record {
	return f.runs[key>>numberBits].chunk(key & (1<<numberBits - 1))
}

// usualRow is how many bytes most rows take: what a chunk is begun with.
const usualRow = 32

func (r *run) chunk(number uint64) codec.Record {
	from, to := max(r.first, number*pageRows), min(r.next, (number+1)*pageRows)
	b := binary.AppendUvarint(make([]byte, 0, usualRow*(to-from)), from)
	p := r.page(from)
	b = binary.AppendUvarint(b, uint64(len(p.targets)))
	for _, target := range p.targets {
		b = codec.AppendString(b, target)
	}
	b = binary.AppendUvarint(b, to-from)
	var before row
	version := byte(1)
	for at := from; at < to; at++ {
		w := r.row(at)
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
	Frozen
	gathered []byte // of a stream: the piece that is not whole yet
}

// NewLoader begins with the head.
func NewLoader(head codec.Record) (*Loader, error) {
	d := codec.NewDecoder(head.Payload)
	l := &Loader{Frozen: Frozen{keep: Keep{For: int64(d.Uvarint()), Count: d.Uvarint()}}}
	if l.keep.For < 0 || l.keep.Count > MaxCount {
		d.Fail("outcomes out of their bounds")
	}
	runs := l.runs[:]
	if head.Version == 1 {
		runs = runs[:1]
	}
	for c := range runs {
		runs[c] = readRun(&d)
	}
	return l, d.Finish("head of the outcomes")
}

// Wants returns the key of the chunk to be taken next, false when all are there.
func (l *Loader) Wants() (key uint64, ok bool) {
	for c := range l.runs {
		if number, ok := l.runs[c].wants(); ok {
			return keyOf(class(c), number), true
		}
	}
	return 0, false
}

// wants returns the number of the page that is missing first.
func (r *run) wants() (number uint64, ok bool) {
	number = r.first/pageRows + uint64(len(r.pages))
	return number, r.first < r.next && number*pageRows < r.next
}

// Take takes the chunk that the loader wants.
func (l *Loader) Take(chunk codec.Record) error {
	key, ok := l.Wants()
	if !ok {
		return fmt.Errorf("%w: outcomes beyond the last", codec.ErrCorrupt)
	}
	c, number := class(key>>numberBits), key&(1<<numberBits-1)
	r := &l.runs[c]
	d := codec.NewDecoder(chunk.Payload)
	from := d.Uvarint()
	p := page{rows: new([pageRows]row), targets: make([]string, d.CountOf(leastTarget))}
	for i := range p.targets {
		p.targets[i] = d.Text()
	}
	to := from + uint64(d.CountOf(leastRow))
	if len(p.targets) > pageRows || from/pageRows != number || from > max(r.first, number*pageRows) || to != min(r.next, (number+1)*pageRows) {
		d.Fail("other outcomes than the head tells of")
		to = from
	}
	var before row
	for at := from; at < to; at++ {
		before = readRow(&d, &before, len(p.targets), chunk.Version)
		if c != ends && before.kind.class() != c {
			d.Fail("outcome of another class")
		}
		p.rows[at%pageRows] = before
	}
	r.pages = append(r.pages, p)
	return d.Finish("chunk of the outcomes")
}

// Finish returns all that was taken. The error tells what is missing.
func (l *Loader) Finish() (*Frozen, error) {
	if key, ok := l.Wants(); ok || len(l.gathered) > 0 {
		return nil, fmt.Errorf("%w: chunk %x of the outcomes is missing", codec.ErrCorrupt, key)
	}
	return &l.Frozen, nil
}
