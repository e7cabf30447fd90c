package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"unsafe"

	"github.com/carillonmq/carillon/storage/codec"
	"go.etcd.io/bbolt"
)

// The frame of a bbolt file (format 2, native order): two meta pages, of which the one of
// the later commit counts, and a tree of pages below it. Only meta pages carry a
// checksum, and where the later one is damaged bbolt goes back to the commit before
// without a word.
//
//	page     | id u64 | flags u16 | count u16 | overflow u32 | elements ... |
//	meta     | magic u32 | version u32 | page size u32 | flags u32 | root u64 | sequence u64 |
//	         | freelist u64 | pages u64 | commit u64 | FNV-1a of all before u64 |
//	branch   count x | pos u32 | key length u32 | page u64 |
//	leaf     count x | flags u32 | pos u32 | key length u32 | value length u32 |
//	bucket   | root u64, 0: the page follows | sequence u64 |   a leaf's value, flag 1
//	freelist | id u64 ... |   count 0xffff: the first one is the count
const (
	pageHeader   = 16
	elementSize  = 16
	bucketHeader = 16
	metaSize     = 64

	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10
	bucketFlag   = 0x01

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFreelist  = ^uint64(0)
	maxDepth    = 16 // a tree of this height holds more than any disk
)

// CheckBolt reads the frame of a bbolt file that nobody writes to: both meta pages,
// every branch, the head of every leaf, and that each page is in use once or free. Keys
// and values are not looked at: they carry checksums of ours, or none. metas is how many
// of the meta pages must be sound: one where both lead to the same. The error is the
// system's or a codec.Damage. A frame that is sound leads bbolt neither in a circle nor
// out of the file, and a commit over nothing that is in use.
func CheckBolt(path string, metas int) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // only read
	f := frame{file: file, path: path, size: uint64(os.Getpagesize())}
	if err := f.readMetas(metas); err != nil {
		return err
	}
	f.owner = make([]byte, f.pages)
	f.owner[0], f.owner[1] = metaPage, metaPage
	if err := f.walk(f.root, 0); err != nil {
		return err
	}
	if f.freelist == noFreelist {
		return nil
	}
	return f.checkFreelist()
}

type frame struct {
	file *os.File
	path string
	size uint64 // of a page

	root, freelist, pages uint64
	owner                 []byte // what each page is used as, 0: not seen yet
}

func (f *frame) damage(offset uint64, format string, args ...any) error {
	return codec.DamageAt(f.path, int64(offset), format, args...)
}

// readMetas takes the root of the later commit. Of a file that was written by commits
// both meta pages are sound, since 80 bytes in one sector are written whole or not at all.
func (f *frame) readMetas(atLeast int) error {
	var problems []error
	var latest uint64
	for id := range uint64(2) {
		meta, err := f.readMeta(id)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if commit := binary.NativeEndian.Uint64(meta[48:]); f.pages == 0 || commit > latest {
			latest = commit
			f.root, f.freelist, f.pages = binary.NativeEndian.Uint64(meta[16:]), binary.NativeEndian.Uint64(meta[32:]), binary.NativeEndian.Uint64(meta[40:])
		}
	}
	if 2-len(problems) < atLeast {
		return problems[0]
	}
	stat, err := f.file.Stat()
	if err != nil {
		return err
	}
	if f.pages < 2 || f.pages > uint64(stat.Size())/f.size {
		return f.damage(uint64(stat.Size()), "the file ends before its %d pages", f.pages)
	}
	return nil
}

func (f *frame) readMeta(id uint64) ([]byte, error) {
	page, err := f.read(id*f.size, pageHeader+metaSize)
	if err != nil {
		return nil, err
	}
	meta := page[pageHeader:]
	sum := fnv.New64a()
	sum.Write(meta[:metaSize-8])
	switch {
	case binary.NativeEndian.Uint64(page) != id || binary.NativeEndian.Uint16(page[8:]) != metaPage:
		return nil, f.damage(id*f.size, "no meta page")
	case binary.NativeEndian.Uint32(meta) != metaMagic || binary.NativeEndian.Uint32(meta[4:]) != metaVersion:
		return nil, f.damage(id*f.size, "meta page without bbolt's mark")
	case binary.NativeEndian.Uint64(meta[metaSize-8:]) != sum.Sum64():
		return nil, f.damage(id*f.size, "meta page has not the checksum that it was written with")
	case uint64(binary.NativeEndian.Uint32(meta[8:])) != f.size:
		return nil, fmt.Errorf("%w: %s has pages of %d bytes, this machine has %d: read it where it was written", codec.ErrVersion, f.path, binary.NativeEndian.Uint32(meta[8:]), f.size)
	}
	return meta, nil
}

func (f *frame) read(offset, n uint64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := f.file.ReadAt(b, int64(offset)); errors.Is(err, io.EOF) {
		return nil, f.damage(offset, "the file is cut off")
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.path, err)
	}
	return b, nil
}

// page returns the header and all elements of a page of one of these kinds, and notes that
// it is in use.
func (f *frame) page(id uint64, kinds uint16) (kind uint16, elements []byte, room uint64, err error) {
	if id < 2 || id >= f.pages {
		return 0, nil, 0, f.damage(0, "page %d of %d is named", id, f.pages)
	}
	at := id * f.size
	head, err := f.read(at, pageHeader)
	if err != nil {
		return 0, nil, 0, err
	}
	kind = binary.NativeEndian.Uint16(head[8:])
	count, overflow := uint64(binary.NativeEndian.Uint16(head[10:])), uint64(binary.NativeEndian.Uint32(head[12:]))
	if binary.NativeEndian.Uint64(head) != id || kind&kinds != kind || kind&(kind-1) != 0 || kind == 0 || id+overflow >= f.pages {
		return 0, nil, 0, f.damage(at, "page %d says that it is page %d of kind %d with %d more", id, binary.NativeEndian.Uint64(head), kind, overflow)
	}
	for used := id; used <= id+overflow; used++ {
		if f.owner[used] != 0 {
			return 0, nil, 0, f.damage(used*f.size, "page %d is in use twice", used)
		}
		f.owner[used] = byte(kind)
	}
	room = (overflow+1)*f.size - pageHeader
	need := count * elementSize
	if kind == freelistPage {
		need = count * 8
		if count == 0xffff {
			first, err := f.read(at+pageHeader, 8)
			if err != nil {
				return 0, nil, 0, err
			}
			need = 8 + 8*min(binary.NativeEndian.Uint64(first), f.pages)
		}
	}
	if need > room {
		return 0, nil, 0, f.damage(at, "page %d has %d elements in %d bytes", id, count, room)
	}
	elements, err = f.read(at+pageHeader, need)
	return kind, elements, room, err
}

func (f *frame) walk(id uint64, depth int) error {
	if depth == maxDepth {
		return f.damage(id*f.size, "pages %d deep", depth)
	}
	kind, elements, room, err := f.page(id, branchPage|leafPage)
	if err != nil {
		return err
	}
	at := id*f.size + pageHeader
	if kind == leafPage {
		return f.leaf(at, elements, room, depth)
	}
	if len(elements) == 0 {
		return f.damage(at, "branch page %d without elements", id)
	}
	next := uint64(len(elements)) // where the next key lies: they follow each other
	for e := 0; e < len(elements); e += elementSize {
		pos, key := uint64(binary.NativeEndian.Uint32(elements[e:])), uint64(binary.NativeEndian.Uint32(elements[e+4:]))
		if uint64(e)+pos != next || next+key > room {
			return f.damage(at+uint64(e), "element that names byte %d of its page, not %d", uint64(e)+pos, next)
		}
		next += key
		if err := f.walk(binary.NativeEndian.Uint64(elements[e+8:]), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks the elements of a leaf page whose first lies at offset at.
func (f *frame) leaf(at uint64, elements []byte, room uint64, depth int) error {
	next := uint64(len(elements)) // where the next key lies: they and their values follow each other
	for e := 0; e < len(elements); e += elementSize {
		flags := binary.NativeEndian.Uint32(elements[e:])
		pos := uint64(binary.NativeEndian.Uint32(elements[e+4:]))
		key, value := uint64(binary.NativeEndian.Uint32(elements[e+8:])), uint64(binary.NativeEndian.Uint32(elements[e+12:]))
		if flags&^bucketFlag != 0 || uint64(e)+pos != next || next+key+value > room {
			return f.damage(at+uint64(e), "element with flags %d that names byte %d of its page, not %d", flags, uint64(e)+pos, next)
		}
		if flags == bucketFlag {
			if err := f.bucket(at+next+key, value, depth); err != nil {
				return err
			}
		}
		next += key + value
	}
	return nil
}

// bucket walks through the bucket that lies at an offset: in pages of its own, or in the
// value itself, behind its header.
func (f *frame) bucket(at, length uint64, depth int) error {
	if length < bucketHeader {
		return f.damage(at, "bucket of %d bytes", length)
	}
	head, err := f.read(at, bucketHeader)
	if err != nil {
		return err
	}
	if root := binary.NativeEndian.Uint64(head); root != 0 {
		return f.walk(root, depth+1)
	}
	if length < bucketHeader+pageHeader || depth+1 == maxDepth {
		return f.damage(at, "bucket of %d bytes, %d deep", length, depth)
	}
	at += bucketHeader
	page, err := f.read(at, length-bucketHeader)
	if err != nil {
		return err
	}
	end := pageHeader + elementSize*int(binary.NativeEndian.Uint16(page[10:]))
	if !bytes.Equal(page[:8], make([]byte, 8)) || binary.NativeEndian.Uint16(page[8:]) != leafPage || end > len(page) {
		return f.damage(at, "the page within a bucket is none")
	}
	return f.leaf(at+pageHeader, page[pageHeader:end], uint64(len(page)-pageHeader), depth+1)
}

// checkFreelist finds each page that no tree has in the list, once.
func (f *frame) checkFreelist() error {
	_, ids, _, err := f.page(f.freelist, freelistPage)
	if err != nil {
		return err
	}
	at := f.freelist*f.size + pageHeader
	if len(ids) >= 8*0xffff { // the first one is the count
		ids, at = ids[8:], at+8
	}
	for i := 0; i < len(ids); i += 8 {
		id := binary.NativeEndian.Uint64(ids[i:])
		if id >= f.pages || f.owner[id] != 0 {
			return f.damage(at+uint64(i), "page %d is free and in use, or twice free", id)
		}
		f.owner[id] = freelistPage
	}
	for id, owner := range f.owner {
		if owner == 0 {
			return f.damage(at, "page %d is neither free nor in use", id)
		}
	}
	return nil
}

// Offset returns where in the file of db what a transaction has returned lies.
func Offset(db *bbolt.DB, view []byte) int64 {
	if len(view) == 0 {
		return -1
	}
	return int64(uintptr(unsafe.Pointer(unsafe.SliceData(view))) - db.Info().Data)
}
