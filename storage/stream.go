package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
)

// A stream carries what one manifest commit names to another store:
//
//	| "carillon" 8 | length u32 | header record of that length |
//	then for each segment, in order:  | the file, of the size in its record | crc u32 |
//
// The header record holds
//
//	| meta | state | alive-set | n uvarint | n x segment record |
//
// and the crc is CRC-32C over the file.
const streamMagic = "carillon"

const streamPrefix = len(streamMagic) + 4

type streamHeader struct {
	meta    SnapshotMeta
	state   []byte
	alive   []byte
	records []segmentRecord
}

func (h *streamHeader) encode() []byte {
	b := h.meta.append(nil)
	b = appendBytes(b, h.state)
	b = appendBytes(b, h.alive)
	b = binary.AppendUvarint(b, uint64(len(h.records)))
	for i := range h.records {
		b = h.records[i].append(b)
	}
	record := sealRecord(b)
	prefix := binary.BigEndian.AppendUint32([]byte(streamMagic), uint32(len(record)))
	return append(prefix, record...)
}

func decodeStreamHeader(record []byte) (streamHeader, error) {
	payload, err := openRecord("stream header", record)
	if err != nil {
		return streamHeader{}, err
	}
	d := decoder{b: payload}
	h := streamHeader{meta: d.meta(), state: d.bytes(), alive: d.bytes()}
	for range d.count() {
		h.records = append(h.records, d.segmentRecord())
	}
	if err := d.finish("stream header"); err != nil {
		return streamHeader{}, err
	}
	for i := range h.records {
		if err := h.records[i].validate(); err != nil {
			return streamHeader{}, err
		}
	}
	return h, nil
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
}

func (st *stream) open(named *contents) (size int64, err error) {
	alive, err := encodeAlive(named.alive)
	if err != nil {
		return 0, err
	}
	h := streamHeader{meta: named.meta, state: named.state, alive: alive}
	for _, g := range named.segments {
		h.records = append(h.records, g.segmentRecord)
	}
	header := h.encode()
	size = int64(len(header))
	parts := []io.Reader{bytes.NewReader(header)}
	for _, g := range named.segments {
		file, err := os.Open(g.path)
		if err != nil {
			return 0, fmt.Errorf("open segment: %w", err)
		}
		st.files = append(st.files, file)
		sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
		content := &wholeFile{from: file, left: g.size, path: g.path}
		parts = append(parts, io.TeeReader(content, sum), &sumReader{sum: sum})
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
	st.files, st.segments = nil, nil
	return err
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
