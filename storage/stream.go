package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"iter"
	"os"
)

// A stream carries what one manifest commit names to another store:
//
//	| "carillon" 8 | length u32 | header record of that length |
//	in version 2:                     | base of the alive-set | crc u32 |
//	then for each segment, in order:  | the file, of the size in its record | crc u32 |
//
// The header record holds
//
//	version 1, at LevelOne   | meta | state bytes | alive-set bytes | n uvarint | n x segment record |
//	version 2, above         | meta | state | alive-set | n uvarint | n x segment record |
//
// In version 1 the parts are payloads of version 1; in version 2 each tells its
// version, | version u8 | payload bytes |, and the alive-set says only what its base
// (see pieceSize) is like: | size uvarint | count uvarint |. The crc is CRC-32C over
// the base or the file.
const streamMagic = "carillon"

const streamPrefix = len(streamMagic) + 4

type streamHeader struct {
	meta    SnapshotMeta
	state   record
	alive   record
	records []segmentRecord
}

// encode returns what goes before the files, in the form of the level that the
// state has.
func (h *streamHeader) encode(level Level) []byte {
	r := record{version: 1, payload: h.meta.append(nil)}
	if level > LevelOne {
		r.version = 2
		r.payload = h.appendParts(r.payload)
	} else {
		r.payload = h.appendPayloads(r.payload)
	}
	sealed := sealRecord(r)
	prefix := binary.BigEndian.AppendUint32([]byte(streamMagic), uint32(len(sealed)))
	return append(prefix, sealed...)
}

func (h *streamHeader) appendPayloads(b []byte) []byte {
	b = appendBytes(b, h.state.payload)
	b = appendBytes(b, h.alive.payload)
	b = binary.AppendUvarint(b, uint64(len(h.records)))
	for i := range h.records {
		b = h.records[i].append(b)
	}
	return b
}

func (h *streamHeader) appendParts(b []byte) []byte {
	b = appendRecord(b, h.state)
	b = appendRecord(b, h.alive)
	b = binary.AppendUvarint(b, uint64(len(h.records)))
	for i := range h.records {
		b = appendRecord(b, h.records[i].encode())
	}
	return b
}

func decodeStreamHeader(sealed []byte) (streamHeader, error) {
	r, err := openRecord("stream header", newestStreamHeader, sealed)
	if err != nil {
		return streamHeader{}, err
	}
	d := decoder{b: r.payload}
	h := streamHeader{meta: d.meta()}
	if r.version == 1 {
		err = h.readPayloads(&d)
	} else {
		err = h.readParts(&d)
	}
	return h, err
}

func (h *streamHeader) readPayloads(d *decoder) error {
	h.state = record{version: 1, payload: d.bytes()}
	h.alive = record{version: 1, payload: d.bytes()}
	for range d.count() {
		h.records = append(h.records, d.segmentRecord())
	}
	if err := d.finish("stream header"); err != nil {
		return err
	}
	for i := range h.records {
		if err := h.records[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (h *streamHeader) readParts(d *decoder) error {
	h.state, h.alive = d.record(), d.record()
	segments := make([]record, d.count())
	for i := range segments {
		segments[i] = d.record()
	}
	if err := d.finish("stream header"); err != nil {
		return err
	}
	if err := errors.Join(h.state.check("state", newestState), h.alive.check("alive-set", newestAlive)); err != nil {
		return err
	}
	for _, r := range segments {
		if err := r.check("segment record", newestSegmentRecord); err != nil {
			return err
		}
		named, err := decodeSegmentRecord(r)
		if err != nil {
			return err
		}
		h.records = append(h.records, named)
	}
	return nil
}

// OpenStream returns what the disk holds as one stream of exactly size bytes, for
// a Receiver. The segments stay on disk until rc is closed, whatever is merged or
// received meanwhile; no transaction is held open.
func (s *Store) OpenStream() (meta SnapshotMeta, size int64, rc io.ReadCloser, err error) {
	named, err := s.pinNamed()
	if err != nil {
		return SnapshotMeta{}, 0, nil, fmt.Errorf("open stream: %w", err)
	}
	st := &stream{segments: named.segments}
	if size, err = st.open(&named); err != nil {
		return SnapshotMeta{}, 0, nil, fmt.Errorf("open stream: %w", errors.Join(err, st.Close()))
	}
	return named.meta, size, st, nil
}

// pinNamed returns what the manifest names, its segments pinned.
func (s *Store) pinNamed() (contents, error) {
	s.manifest.mu.Lock()
	defer s.manifest.mu.Unlock()
	if s.manifest.err != nil {
		return contents{}, s.manifest.err
	}
	acquireAll(s.manifest.current.segments)
	return s.manifest.current, nil
}

// stream reads the header, then file by file.
type stream struct {
	io.Reader
	segments []*segment // pinned
	files    []*os.File
	base     *baseReader // nil at LevelOne
}

// addAlive returns what the header says of the alive-set.
func (st *stream) addAlive(named *contents) (record, error) {
	if named.level() < LevelTwo {
		return encodeAlive(named.alive)
	}
	st.base = newBaseReader(named.alive)
	payload := binary.AppendUvarint(nil, uint64(st.base.size))
	return record{version: 2, payload: binary.AppendUvarint(payload, named.alive.count)}, nil
}

// summed reads part, then its checksum.
func summed(part io.Reader) []io.Reader {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	return []io.Reader{io.TeeReader(part, sum), &sumReader{sum: sum}}
}

func (st *stream) open(named *contents) (size int64, err error) {
	alive, err := st.addAlive(named)
	if err != nil {
		return 0, err
	}
	h := streamHeader{meta: named.meta, state: named.state, alive: alive}
	for _, g := range named.segments {
		h.records = append(h.records, g.segmentRecord)
	}
	header := h.encode(named.level())
	parts := []io.Reader{bytes.NewReader(header)}
	if st.base != nil {
		parts = append(parts, summed(st.base)...)
		size = st.base.size + 4
	}
	size += int64(len(header))
	for _, g := range named.segments {
		file, err := os.Open(g.path)
		if err != nil {
			return 0, fmt.Errorf("open segment: %w", err)
		}
		st.files = append(st.files, file)
		parts = append(parts, summed(&wholeFile{from: file, left: g.size, path: g.path})...)
		size += g.size + 4
	}
	st.Reader = io.MultiReader(parts...)
	return size, nil
}

// Close lets go of the segments.
func (st *stream) Close() error {
	var err error
	for _, f := range st.files {
		err = errors.Join(err, f.Close())
	}
	releaseAll(st.segments)
	if st.base != nil {
		st.base.stop()
	}
	st.files, st.segments = nil, nil
	return err
}

// baseReader reads a base out of a frozen set, piece by piece.
type baseReader struct {
	size int64
	next func() ([]byte, bool)
	stop func()
	left []byte
}

func newBaseReader(set *aliveSet) *baseReader {
	r := &baseReader{size: set.baseSize()}
	r.next, r.stop = iter.Pull(set.basePieces())
	return r
}

func (r *baseReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		piece, ok := r.next()
		if !ok {
			return 0, io.EOF
		}
		r.left = piece
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// wholeFile reads exactly left bytes and says so when the file has fewer.
type wholeFile struct {
	from io.Reader
	left int64
	path string
}

func (w *wholeFile) Read(p []byte) (int, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > w.left {
		p = p[:w.left]
	}
	n, err := w.from.Read(p)
	w.left -= int64(n)
	if err == io.EOF && w.left > 0 {
		return n, fmt.Errorf("%w: segment %s ends %d bytes early", ErrCorrupt, w.path, w.left)
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// sumReader yields the checksum of what was read before it.
type sumReader struct {
	sum  hash.Hash32
	left io.Reader
}

func (s *sumReader) Read(p []byte) (int, error) {
	if s.left == nil {
		s.left = bytes.NewReader(binary.BigEndian.AppendUint32(nil, s.sum.Sum32()))
	}
	return s.left.Read(p)
}
