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

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
)

// A stream carries what one manifest commit names to another store:
//
//	| "carillon" 8 | length u32 | header record of that length |
//	from version 2 on:                | base of the alive-set | crc u32 |
//	in version 3:                     | chunks of the outcomes | crc u32 |
//	then for each segment, in order:  | the file, of the size in its record | crc u32 |
//
// The header record holds
//
//	version 1, at LevelOne   | meta | state bytes | alive-set bytes | n uvarint | n x segment record |
//	version 2, at LevelTwo   | meta | state | alive-set | n uvarint | n x segment record |
//	version 3, above         | meta | state | alive-set | outcomes | size uvarint | n uvarint | n x segment record |
//
// In version 1 the parts are payloads of version 1; from version 2 on each tells its
// version, | version u8 | payload bytes |, and the alive-set says only what its base
// (see alive.pieceSize) is like: | size uvarint | count uvarint |. The outcomes are their head,
// and the size of their chunks (see outcomes.Reader). The crc is CRC-32C over the base, the
// chunks or the file.
const streamMagic = "carillon"

// The newest versions of the header, and of what it says of the alive-set.
const (
	newestStreamHeader = 3
	newestAlive        = 2
)

const streamPrefix = len(streamMagic) + 4

type streamHeader struct {
	meta     SnapshotMeta
	state    codec.Record
	alive    codec.Record
	outcomes codec.Record // no version below LevelThree
	ended    int64        // bytes of their chunks
	records  []segment.Record
}

// encode returns what goes before the files, in the form of the level that the
// state has.
func (h *streamHeader) encode(level Level) []byte {
	r := codec.Record{Version: byte(min(level, newestStreamHeader)), Payload: h.meta.append(nil)}
	if level > LevelOne {
		r.Payload = h.appendParts(r.Payload, r.Version)
	} else {
		r.Payload = h.appendPayloads(r.Payload)
	}
	sealed := codec.Seal(r)
	prefix := binary.BigEndian.AppendUint32([]byte(streamMagic), uint32(len(sealed)))
	return append(prefix, sealed...)
}

func (h *streamHeader) appendPayloads(b []byte) []byte {
	b = codec.AppendBytes(b, h.state.Payload)
	b = codec.AppendBytes(b, h.alive.Payload)
	b = binary.AppendUvarint(b, uint64(len(h.records)))
	for i := range h.records {
		b = h.records[i].Append(b)
	}
	return b
}

func (h *streamHeader) appendParts(b []byte, version byte) []byte {
	b = codec.AppendRecord(b, h.state)
	b = codec.AppendRecord(b, h.alive)
	if version >= 3 {
		b = codec.AppendRecord(b, h.outcomes)
		b = binary.AppendUvarint(b, uint64(h.ended))
	}
	b = binary.AppendUvarint(b, uint64(len(h.records)))
	for i := range h.records {
		b = codec.AppendRecord(b, h.records[i].Encode())
	}
	return b
}

func decodeStreamHeader(sealed []byte) (streamHeader, error) {
	r, err := codec.Open("stream header", newestStreamHeader, sealed)
	if err != nil {
		return streamHeader{}, err
	}
	d := codec.NewDecoder(r.Payload)
	h := streamHeader{meta: readMeta(&d)}
	if r.Version == 1 {
		err = h.readPayloads(&d)
	} else {
		err = h.readParts(&d, r.Version)
	}
	return h, err
}

func (h *streamHeader) readPayloads(d *codec.Decoder) error {
	h.state = codec.Record{Version: 1, Payload: d.Bytes()}
	h.alive = codec.Record{Version: 1, Payload: d.Bytes()}
	for range d.Count() {
		h.records = append(h.records, segment.ReadRecord(d, segment.Plain))
	}
	if err := d.Finish("stream header"); err != nil {
		return err
	}
	for i := range h.records {
		if err := h.records[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

func (h *streamHeader) readParts(d *codec.Decoder, version byte) error {
	h.state, h.alive = d.Record(), d.Record()
	if version >= 3 {
		h.outcomes, h.ended = d.Record(), int64(d.Uvarint())
	}
	segments := make([]codec.Record, d.Count())
	for i := range segments {
		segments[i] = d.Record()
	}
	if err := d.Finish("stream header"); err != nil {
		return err
	}
	if err := errors.Join(h.state.Check("state", newestState), h.alive.Check("alive-set", newestAlive)); err != nil {
		return err
	}
	if version >= 3 {
		if err := h.outcomes.Check("head of the outcomes", outcomes.NewestHead); err != nil {
			return err
		}
	}
	for _, r := range segments {
		if err := r.Check("segment record", segment.NewestRecord); err != nil {
			return err
		}
		named, err := segment.DecodeRecord(r)
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
	segment.AcquireAll(s.manifest.current.segments)
	return s.manifest.current, nil
}

// stream reads the header, then file by file.
type stream struct {
	io.Reader
	segments []*segment.Segment // pinned
	files    []*os.File
	base     *alive.Reader // nil at LevelOne
}

// addAlive returns what the header says of the alive-set.
func (st *stream) addAlive(named *contents) (codec.Record, error) {
	if named.level() < LevelTwo {
		return alive.EncodePortable(named.alive)
	}
	st.base = alive.NewReader(named.alive)
	payload := binary.AppendUvarint(nil, uint64(st.base.Size))
	return codec.Record{Version: 2, Payload: binary.AppendUvarint(payload, named.alive.Count())}, nil
}

// summed reads part, then its checksum.
func summed(part io.Reader) []io.Reader {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	return []io.Reader{io.TeeReader(part, sum), &sumReader{sum: sum}}
}

func (st *stream) open(named *contents) (size int64, err error) {
	said, err := st.addAlive(named)
	if err != nil {
		return 0, err
	}
	h := streamHeader{meta: named.meta, state: named.state, alive: said}
	for _, g := range named.segments {
		h.records = append(h.records, g.Record)
	}
	var ended *outcomes.Reader
	if named.level() >= LevelThree {
		ended = named.outcomes.NewReader()
		h.outcomes, h.ended = named.outcomes.Head(), ended.Size
	}
	header := h.encode(named.level())
	parts := []io.Reader{bytes.NewReader(header)}
	if st.base != nil {
		parts = append(parts, summed(st.base)...)
		size = st.base.Size + 4
	}
	if ended != nil {
		parts = append(parts, summed(ended)...)
		size += ended.Size + 4
	}
	size += int64(len(header))
	for _, g := range named.segments {
		file, err := os.Open(g.Path)
		if err != nil {
			return 0, fmt.Errorf("open segment: %w", err)
		}
		st.files = append(st.files, file)
		parts = append(parts, summed(&wholeFile{from: file, left: g.Size, path: g.Path})...)
		size += g.Size + 4
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
	segment.ReleaseAll(st.segments)
	if st.base != nil {
		st.base.Close()
	}
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
