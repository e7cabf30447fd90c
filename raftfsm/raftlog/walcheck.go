package raftlog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// Raft-wal reads back what it has written without a look at the sums, but for the last
// append of the tail. What damage does to it instead:
//
//	an entry, an index            handed out as it is, to Apply and to followers
//	the head of a frame           the tail ends before it: acknowledged entries are gone
//	wal-meta.db, which segments   those that it does not name are removed
//
// So whatever opens a log reads all of it before (checkSegments), and compares sums, heads and
// names. That is the reading that raft does next anyway, for what is to be applied.

// A segment of raft-wal is a header and frames. What one append writes ends with a
// commit frame, which has the sum of all that follows the commit frame before (or
// the file's beginning). The append that fills the segment writes an index frame
// before it: the seal.
//
//	header, 32 bytes | entry | entry | commit | entry | index | commit
//
//	frame: type, 1 byte | 3 bytes | length or sum, 4 bytes little endian | payload, padded to 8 bytes
const (
	walHeaderLen   = 32
	walFrameLen    = 8
	walEntryFrame  = 1
	walIndexFrame  = 2
	walCommitFrame = 3
)

// checkSegments reads all that wal-meta.db names. It shows each entry to visit, if any, once the
// append that it came with is known to be whole. Errors are the system's, visit's, or a
// codec.Damage. report, if any, is told of damages instead, and the check goes on.
func checkSegments(dir string, state types.PersistentState, visit func(index uint64, entry []byte) error, report func(error) error) ([]walExtent, error) {
	if report == nil {
		report = func(err error) error { return err }
	}
	if err := report(checkNames(dir, state)); err != nil {
		return nil, err
	}
	var extents []walExtent
	for i, info := range state.Segments {
		extent, err := checkSegment(filepath.Join(dir, segment.FileName(info)), info, visit)
		if errors.Is(err, os.ErrNotExist) && i == len(state.Segments)-1 {
			err = nil // a crash came before the file was there, or durable: raft-wal makes it
		} else if errors.Is(err, os.ErrNotExist) {
			err = codec.DamageAt(extent.path, -1, "the segment is missing")
		}
		if err := report(err); err != nil {
			return nil, err
		}
		extents = append(extents, extent)
	}
	return extents, nil
}

// checkNames compares what wal-meta.db names with itself and with the directory: where it
// is damaged, or has gone back to the commit before, it names less than there is, and
// raft-wal removes the rest.
func checkNames(dir string, state types.PersistentState) error {
	path := filepath.Join(dir, File(WAL))
	files, err := segmentFiles(dir)
	if err != nil {
		return err
	}
	if len(state.Segments) == 0 {
		if state.NextSegmentID == 0 && len(files) == 0 {
			return nil
		}
		return codec.DamageAt(path, -1, "it names no segment, and the next one has number %d; there are %d files", state.NextSegmentID, len(files))
	}
	for i, info := range state.Segments {
		isLast := i == len(state.Segments)-1
		name := segment.FileName(info)
		if info.BaseIndex == 0 || info.MinIndex < info.BaseIndex || info.SealTime.IsZero() != isLast {
			return codec.DamageAt(path, -1, "segment %s from entry %d, sealed %v", name, info.MinIndex, info.SealTime)
		}
		if !isLast {
			next := state.Segments[i+1]
			if info.MaxIndex < info.BaseIndex || next.BaseIndex != info.MaxIndex+1 || next.MinIndex != next.BaseIndex || next.ID <= info.ID {
				return codec.DamageAt(path, -1, "segment %s ends at entry %d, and %s begins at %d", name, info.MaxIndex, segment.FileName(next), next.MinIndex)
			}
		} else if info.ID+1 != state.NextSegmentID {
			return codec.DamageAt(path, -1, "segment %s is the last, and the next one has number %d", name, state.NextSegmentID)
		}
		for _, file := range files {
			if file != name && strings.HasSuffix(file, name[strings.IndexByte(name, '-'):]) {
				return codec.DamageAt(path, -1, "segment %s is named, the file is %s", name, file)
			}
		}
	}
	newest := fmt.Sprintf("-%016x.wal", state.NextSegmentID-1)
	for _, file := range files {
		if number := file[strings.IndexByte(file, '-')+1:]; "-"+number > newest {
			return codec.DamageAt(path, -1, "the next segment has number %d, and there is %s", state.NextSegmentID, file)
		}
	}
	return nil
}

// segmentFiles lists the names of raft-wal's segments.
func segmentFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".wal") && strings.Contains(e.Name(), "-") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// walExtent is what a segment was found to hold.
type walExtent struct {
	path       string
	entries    uint64 // of appends that are whole
	offsets    []uint32
	last, end  int64 // of the last of those, where it begins and ends
	indexStart int64 // of a seal's list of offsets, 0 when there is none
	index      []byte
	remains    int64 // bytes behind the end, to the last that is not zero: of an append that was cut off
	size       int64 // of the file
}

// checkSegment reads a segment from its beginning to its last whole append.
func checkSegment(path string, info types.SegmentInfo, visit func(index uint64, entry []byte) error) (walExtent, error) {
	x := walExtent{path: path}
	file, err := os.Open(path)
	if err != nil {
		return x, err
	}
	defer file.Close() // only read
	stat, err := file.Stat()
	if err != nil {
		return x, err
	}
	x.size = stat.Size()
	cause, err := x.read(file, info, visit)
	if err != nil {
		return x, err
	}
	// A file is made as large as it may get. A crash may leave it as it was a moment
	// before, of whole blocks, when nothing was synced to it yet.
	if isNew := x.isHalfMade(info) && x.size%4096 == 0; x.size < int64(info.SizeLimit) && !isNew {
		return x, codec.DamageAt(x.path, x.size, "the file ends here, and was made with %d bytes", info.SizeLimit)
	}
	if isTail := info.SealTime.IsZero(); isTail && x.indexStart == 0 {
		return x, x.checkEnd(file, info, cause)
	}
	return x, x.checkSeal(info, cause)
}

// isHalfMade reports whether the segment is smaller than it was to be made, and holds no append: a crash
// came while it was made.
func (x *walExtent) isHalfMade(info types.SegmentInfo) bool {
	return x.entries == 0 && x.size < int64(info.SizeLimit)
}

// read goes through the appends that are whole. cause says what ended that.
func (x *walExtent) read(file io.ReaderAt, info types.SegmentInfo, visit func(index uint64, entry []byte) error) (cause, err error) {
	r := walReader{Reader: bufio.NewReaderSize(io.NewSectionReader(file, 0, x.size), 1<<20), left: x.size, sum: crc32.New(crc32.MakeTable(crc32.Castagnoli)), keep: visit != nil}
	if cause, err := r.header(info); cause != nil || err != nil {
		return cause, err
	}
	for x.indexStart == 0 { // the seal is the last append
		cause, err := r.append()
		if cause != nil || err != nil {
			return cause, err
		}
		for i, entry := range r.entries {
			if index := info.BaseIndex + x.entries + uint64(i); visit != nil && index >= info.MinIndex && (info.MaxIndex == 0 || index <= info.MaxIndex) {
				if err := visit(index, entry); err != nil {
					return nil, &codec.Damage{File: x.path, Offset: int64(r.offsets[i]), Err: fmt.Errorf("entry %d: %w", index, err)}
				}
			}
		}
		x.entries += uint64(len(r.offsets))
		x.offsets = append(x.offsets, r.offsets...)
		x.last, x.end, x.indexStart, x.index = x.end, r.at, r.indexStart, r.index
	}
	return nil, nil
}

// checkSeal compares a sealed segment with what is known of it. Of the tail nothing is.
func (x *walExtent) checkSeal(info types.SegmentInfo, cause error) error {
	if cause != nil {
		return codec.DamageAt(x.path, x.end, "the append that begins here is not as it was written: %w", cause)
	}
	if !info.SealTime.IsZero() && (uint64(x.indexStart) != info.IndexStart || info.MaxIndex-info.BaseIndex >= x.entries) {
		return codec.DamageAt(x.path, x.indexStart, "%d entries with their index here, %s says %d to %d and byte %d", x.entries, File(WAL), info.BaseIndex, info.MaxIndex, info.IndexStart)
	}
	var index []byte
	for _, offset := range x.offsets {
		index = binary.LittleEndian.AppendUint32(index, offset)
	}
	if !bytes.Equal(index, x.index) {
		return codec.DamageAt(x.path, x.indexStart, "the index does not list the entries")
	}
	return nil
}

// checkEnd tells an append that a crash has cut off, which nobody was told of, from one
// that was damaged later. Each append is synced before the next begins, into a file of
// zeros: what one leaves that fails, or is cut off, is cleared before (walFile, walMeta.settle). So behind the end there is one at most, it is longer than what there is of it or a
// sector of it is still zeros, and nothing whole follows.
func (x *walExtent) checkEnd(file io.ReaderAt, info types.SegmentInfo, cause error) error {
	if cause == nil {
		return nil
	}
	rest, err := written(io.NewSectionReader(file, x.end, x.size-x.end))
	if err != nil {
		return fmt.Errorf("read %s: %w", x.path, err)
	}
	if len(rest) == 0 {
		return nil
	}
	x.remains = int64(len(rest))
	frames := x.framesIn(rest)
	if frames >= len(rest) {
		return nil
	}
	if at := wholeAppend(rest, frames, info.BaseIndex+x.entries); at >= 0 {
		return codec.DamageAt(x.path, x.end, "the append that begins here is not as it was written, and one at byte %d, which came later, is: %w", x.end+int64(at), cause)
	}
	if endsAsAppend(rest, x.end) && !hasZeroSector(rest, x.end) {
		return codec.DamageAt(x.path, x.end, "the append that begins here was written to its end, and is not as it was written: %w", cause)
	}
	return nil
}

// framesIn follows the frames at the beginning of b, which lies behind the end, as far as what is in them says
// that they are as long as their heads say, and returns where they end. A head of which a bit is wrong ends it: so only a
// frame that is cut off leads beyond b. Bodies are anybody's, and nothing in them is taken for a frame.
func (x *walExtent) framesIn(b []byte) int {
	at, entries := 0, x.entries
	if x.end == 0 {
		at = walHeaderLen
	}
	for at+walFrameLen <= len(b) {
		payload, length := b[at+walFrameLen:], uint64(binary.LittleEndian.Uint32(b[at+4:]))
		isEntry := b[at] == walEntryFrame && isEntryOf(payload, length)
		isIndex := b[at] == walIndexFrame && length == 4*entries
		if !isEntry && !isIndex {
			return at
		}
		entries++ // an index is the last
		at += walFrameLen + int(length+7)&^7
	}
	return at
}

// isEntryOf reports whether b begins with an entry of that length, by what raft-wal wrote into it: numbers, then data and
// extensions, each behind its length, and a time. Of data that go on beyond b it is enough that the length does.
func isEntryOf(b []byte, length uint64) bool {
	const timeLen = 15
	room, at := uint64(len(b)), uint64(0)
	for field := range 5 { // index, term, kind, data, extensions
		value, n := binary.Uvarint(b[at:])
		if n <= 0 {
			return false
		}
		at += uint64(n)
		if field < 3 {
			continue
		}
		if value > room-at {
			return length > room
		}
		at += value
	}
	return at+timeLen == length
}

// written returns what is in r but the zeros at its end.
func written(r io.Reader) ([]byte, error) {
	var all []byte
	zeros := 0 // that came last
	for buf := make([]byte, 1<<20); ; {
		n, err := io.ReadFull(r, buf)
		if got := bytes.TrimRight(buf[:n], "\x00"); len(got) > 0 {
			all = append(all, make([]byte, zeros)...)
			all = append(all, got...)
			zeros = n - len(got)
		} else {
			zeros += n
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// wholeAppend returns where in b an append begins that is whole, -1 if none does: behind what may be the commit
// frame of another. Sums anybody can compute, and a body may have one. So it looks behind the frames that are as long as
// their heads say, which end at from (a head of which a bit is wrong ends them before it, and all behind is looked at), and for
// entries that go on from the first one in b, which has index next, no faster than there is room for.
func wholeAppend(b []byte, from int, next uint64) int {
	const leastEntry = 32 // bytes, with its head
	for at := from; at+walFrameLen <= len(b); at += walFrameLen {
		if !isCommit(b[at:]) {
			continue
		}
		begin := at + walFrameLen
		r := walReader{Reader: bufio.NewReader(bytes.NewReader(b[begin:])), left: int64(len(b) - begin), sum: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
		if cause, err := r.append(); cause == nil && err == nil && r.goesOn(b[begin:], next+1, next+uint64(at/leastEntry)) {
			return begin
		}
	}
	return -1
}

// goesOn reports whether the append that was read last, which lies at the beginning of b, has entries one after the other, the
// first with an index from least to most.
func (r *walReader) goesOn(b []byte, least, most uint64) bool {
	for _, offset := range r.offsets {
		index, _ := binary.Uvarint(b[offset+walFrameLen:])
		if index < least || index > most {
			return false
		}
		least, most = index+1, index+1
	}
	return len(r.offsets) > 0
}

func isCommit(b []byte) bool { return wrongBits(b) == 0 }

// wrongBits counts those in which b differs from the head of a commit frame.
func wrongBits(b []byte) int { return bits.OnesCount32(binary.LittleEndian.Uint32(b) ^ walCommitFrame) }

// endsAsAppend reports whether b, which lies at an offset in the file and of which zeros
// at its end are cut off, ends with a commit frame, or one of which a bit is wrong: but
// what was cut off ends with a sector, and may look like the latter.
func endsAsAppend(b []byte, at int64) bool {
	last := (len(b) - 1) / walFrameLen * walFrameLen
	if len(b)-last <= 4 {
		return false
	}
	wrong := wrongBits(b[last:])
	return wrong == 0 || wrong == 1 && (at+int64(last)+walFrameLen)%sector != 0
}

// sector is what a disk writes whole or not at all.
const sector = 512

// hasZeroSector reports whether nothing was written of a sector, or of the part of one,
// that b takes, which begins at an offset in the file.
func hasZeroSector(b []byte, at int64) bool {
	for len(b) > 0 {
		n := min(int(sector-at%sector), len(b))
		if bytes.Count(b[:n], []byte{0}) == n {
			return true
		}
		b, at = b[n:], at+int64(n)
	}
	return false
}

// A walReader reads a segment append by append.
type walReader struct {
	*bufio.Reader
	left, at int64
	sum      hash.Hash32
	keep     bool // entries

	// Of the append that was read last.
	offsets    []uint32
	entries    [][]byte
	index      []byte
	indexStart int64
}

var errCutOff = errors.New("it is cut off")

// next returns n bytes, which are good until the next call.
func (r *walReader) next(n int64, into []byte) (b []byte, cause, err error) {
	if n > r.left {
		return nil, errCutOff, nil
	}
	b = slices.Grow(into[:0], int(n))[:n]
	if _, err := io.ReadFull(r.Reader, b); err != nil {
		return nil, nil, err
	}
	r.left, r.at = r.left-n, r.at+n
	return b, nil, nil
}

// header takes the file's header into the sum of the first append, and compares it.
func (r *walReader) header(info types.SegmentInfo) (cause, err error) {
	const magic = 0x58eb6b0d
	b, cause, err := r.next(walHeaderLen, nil)
	if cause != nil || err != nil {
		return cause, err
	}
	r.sum.Write(b)
	base, id, kind := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	if binary.LittleEndian.Uint64(b) != magic || base != info.BaseIndex || id != info.ID || kind != info.Codec {
		return fmt.Errorf("the header says segment %d from entry %d in form %d", id, base, kind), nil
	}
	return nil, nil
}

// append reads the next one to its commit frame. cause says why it is not whole.
func (r *walReader) append() (cause, err error) {
	r.offsets, r.entries, r.index, r.indexStart = r.offsets[:0], r.entries[:0], nil, 0
	var payload []byte
	for {
		at := r.at
		head, cause, err := r.next(walFrameLen, nil)
		if cause != nil || err != nil {
			return cause, err
		}
		value := binary.LittleEndian.Uint32(head[4:])
		if head[0] == walCommitFrame {
			if sum := r.sum.Sum32(); sum != value {
				return fmt.Errorf("it has checksum %08x, written with %08x at byte %d", sum, value, at), nil
			}
			r.sum.Reset()
			return nil, nil
		}
		if head[0] != walEntryFrame && head[0] != walIndexFrame || value > segment.MaxEntrySize {
			return fmt.Errorf("no frame of a log at byte %d", at), nil
		}
		if r.keep || head[0] == walIndexFrame {
			payload = nil
		}
		if payload, cause, err = r.next((int64(value)+7)&^7, payload); cause != nil || err != nil {
			return cause, err
		}
		r.sum.Write(head)
		r.sum.Write(payload)
		if head[0] == walIndexFrame {
			r.index, r.indexStart = payload[:value], at+walFrameLen
			continue
		}
		r.offsets = append(r.offsets, uint32(at))
		if r.keep {
			r.entries = append(r.entries, payload[:value])
		}
	}
}
