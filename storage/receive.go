package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"os"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
)

// Receiver takes a stream from another store's OpenStream: Write it, then Commit
// or Abort. It belongs to one goroutine.
//
//	prefix -> header -> (part -> sum) ... -> end
//
// A part is a file, or the chunks of the outcomes, which go into memory.
type Receiver struct {
	store *Store
	meta  SnapshotMeta
	stage receiveStage
	want  int64  // bytes that the stage still needs
	buf   []byte // of a stage other than part

	header  streamHeader
	base    alive.File       // of the alive-set; no id when the header holds it
	ended   *outcomes.Loader // nil when there are none
	parts   []part           // to come, the one that is taken in first
	files   []receivedFile   // the last one may be open
	file    *os.File
	sum     hash.Hash32
	failure error
}

type part struct {
	kind partKind
	size int64
}

type partKind int

const (
	basePart partKind = iota
	outcomesPart
	segmentPart
)

type receivedFile struct {
	id   uint64
	path string
}

type receiveStage int

const (
	stagePrefix receiveStage = iota
	stageHeader
	stagePart
	stageSum
	stageEnd
)

// Receive begins to take the snapshot that meta describes. Nothing changes for
// readers before Commit and Reload.
func (s *Store) Receive(meta SnapshotMeta) (*Receiver, error) {
	s.manifest.mu.Lock()
	defer s.manifest.mu.Unlock()
	if s.manifest.err != nil {
		return nil, fmt.Errorf("receive: %w", s.manifest.err)
	}
	return &Receiver{store: s, meta: meta, want: int64(streamPrefix)}, nil
}

// Write takes the next bytes of the stream. The header tells how much will come:
// without room for it Write returns ErrDiskFull at once. After an error only
// Abort is of use.
func (r *Receiver) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 && r.failure == nil {
		n := min(int64(len(p)), r.want)
		if r.stage == stageEnd {
			r.failure = fmt.Errorf("%w: %d bytes after the end of the stream", ErrCorrupt, len(p))
			break
		}
		r.failure = r.take(p[:n])
		p = p[n:]
		written += int(n)
	}
	if r.failure != nil {
		return written, fmt.Errorf("receive: %w", r.failure)
	}
	return written, nil
}

func (r *Receiver) take(p []byte) error {
	if r.stage == stagePart {
		if err := r.takePart(p); err != nil {
			return err
		}
	} else {
		r.buf = append(r.buf, p...)
	}
	if r.want -= int64(len(p)); r.want > 0 {
		return nil
	}
	buf := r.buf
	r.buf = nil
	switch r.stage {
	case stagePrefix:
		return r.prefixDone(buf)
	case stageHeader:
		return r.headerDone(buf)
	case stagePart:
		r.stage, r.want = stageSum, 4
		return nil
	default:
		return r.partDone(buf)
	}
}

func (r *Receiver) takePart(p []byte) error {
	r.sum.Write(p)
	if r.parts[0].kind == outcomesPart {
		_, err := r.ended.Write(p)
		return err
	}
	_, err := r.file.Write(p)
	return disk.MarkFull(err)
}

func (r *Receiver) prefixDone(prefix []byte) error {
	if string(prefix[:len(streamMagic)]) != streamMagic {
		return fmt.Errorf("%w: a stream begins with %q, not %q", ErrVersion, streamMagic, prefix[:len(streamMagic)])
	}
	r.stage, r.want = stageHeader, int64(binary.BigEndian.Uint32(prefix[len(streamMagic):]))
	if r.want == 0 {
		return fmt.Errorf("%w: stream header of no bytes", ErrCorrupt)
	}
	return nil
}

func (r *Receiver) headerDone(record []byte) (err error) {
	if r.header, err = decodeStreamHeader(record); err != nil {
		return err
	}
	if got := r.header.meta; got.Index != r.meta.Index || got.Term != r.meta.Term {
		return fmt.Errorf("%w: stream of index %d, term %d, announced as %d, %d", ErrCorrupt, got.Index, got.Term, r.meta.Index, r.meta.Term)
	}
	if _, err := decodeValues(r.header.state); err != nil { // of a level to come, say: gigabytes would follow in vain
		return err
	}
	if r.header.alive.Version >= 2 {
		if err := r.expectBase(); err != nil {
			return err
		}
	}
	if r.header.outcomes.Version > 0 {
		if err := r.expectOutcomes(); err != nil {
			return err
		}
	}
	for _, record := range r.header.records {
		r.parts = append(r.parts, part{segmentPart, record.Size})
	}
	var need int64
	for _, p := range r.parts {
		need += p.size
	}
	if err := r.store.checkRoom(need + spareRoom); err != nil {
		return err
	}
	return r.nextPart()
}

// expectBase takes from the header what comes next.
func (r *Receiver) expectBase() error {
	d := codec.NewDecoder(r.header.alive.Payload)
	size := int64(d.Uvarint())
	r.base = alive.File{ID: r.store.manifest.lastID.Add(1), Base: size, Size: size, Count: d.Uvarint()}
	if err := d.Finish("alive-set"); err != nil {
		return err
	}
	if size < 0 {
		return fmt.Errorf("%w: alive-set of %d bytes", ErrCorrupt, size)
	}
	r.parts = append(r.parts, part{basePart, size})
	return r.store.manifest.sets.Make()
}

func (r *Receiver) expectOutcomes() (err error) {
	if r.header.ended < 0 {
		return fmt.Errorf("%w: outcomes of %d bytes", ErrCorrupt, r.header.ended)
	}
	r.parts = append(r.parts, part{outcomesPart, r.header.ended})
	r.ended, err = outcomes.NewLoader(r.header.outcomes)
	return err
}

// nextPart begins with the first of the parts to come.
func (r *Receiver) nextPart() error {
	if len(r.parts) == 0 {
		r.stage = stageEnd
		return nil
	}
	next := r.parts[0]
	if err := r.openPart(next.kind); err != nil {
		return disk.MarkFull(err)
	}
	r.stage, r.want = stagePart, next.size
	r.sum = crc32.New(crc32.MakeTable(crc32.Castagnoli))
	return nil
}

func (r *Receiver) openPart(kind partKind) (err error) {
	var f receivedFile
	switch kind {
	case outcomesPart:
		return nil
	case basePart:
		f.id, f.path = r.base.ID, r.store.manifest.sets.PathOf(r.base.ID)
	default:
		f.id, f.path = r.store.manifest.newSegment()
	}
	if r.file, err = os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		r.files = append(r.files, f)
	}
	return err
}

func (r *Receiver) partDone(sum []byte) error {
	if want, got := binary.BigEndian.Uint32(sum), r.sum.Sum32(); want != got {
		return fmt.Errorf("%w: a part of the stream, with %d to come, has checksum %08x, sent with %08x", ErrCorrupt, len(r.parts)-1, got, want)
	}
	if err := r.closeFile(true); err != nil {
		return disk.MarkFull(err)
	}
	r.parts = r.parts[1:]
	return r.nextPart()
}

func (r *Receiver) closeFile(sync bool) (err error) {
	if r.file == nil {
		return nil
	}
	if sync {
		err = r.file.Sync()
	}
	err = errors.Join(err, r.file.Close())
	r.file = nil
	return err
}

// Commit checks everything that was received, entries too, and makes it what the
// manifest names, in one commit that raises the generation: flushes and merges
// begun before fail from now on. Readers see it after Reload. On an error, which
// wraps ErrPast when the manifest is further than the stream, the received files
// are gone and nothing has changed.
func (r *Receiver) Commit() error {
	if r.stage != stageEnd || r.failure != nil {
		r.Abort()
		return fmt.Errorf("receive: %w: the stream is not complete", ErrCorrupt)
	}
	next, err := r.open()
	if err == nil {
		err = next.verify()
	}
	if err == nil {
		err = disk.SyncDir(r.store.manifest.segmentsDir())
	}
	if err == nil && r.base.ID != 0 {
		err = disk.SyncDir(r.store.manifest.sets.Path)
	}
	if err != nil {
		segment.ReleaseAll(next.segments)
		r.Abort()
		return fmt.Errorf("receive: %w", err)
	}
	r.files = nil // the segments' references answer for the files now
	if err := r.name(next); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	r.store.log.Debug("received", "index", r.meta.Index)
	return nil
}

// name commits what was received, or removes it.
func (r *Receiver) name(next contents) (err error) {
	m := r.store.manifest
	m.mu.Lock()
	defer m.mu.Unlock()
	next.generation = m.current.generation + 1
	if at := m.current.meta.Index; next.meta.Index < at {
		err = fmt.Errorf("%w: it ends at index %d, the schedule at %d", ErrPast, next.meta.Index, at)
		m.removeAlive(next.stored.ID)
	} else {
		err = m.commit(next)
	}
	if err != nil {
		for _, g := range next.segments {
			r.store.discard(g)
		}
	}
	return err
}

// open returns what was received, its segments open.
func (r *Receiver) open() (contents, error) {
	next := contents{meta: r.meta, state: r.header.state}
	if err := errors.Join(r.openAlive(&next), r.openOutcomes(&next)); err != nil {
		return next, err
	}
	files := r.files[len(r.files)-len(r.header.records):]
	for i, record := range r.header.records {
		g, err := segment.Open(files[i].path, files[i].id, record, r.store.log)
		if err != nil {
			return next, err
		}
		next.segments = append(next.segments, g)
	}
	sortBySeq(next.segments)
	return next, next.check()
}

func (r *Receiver) openAlive(next *contents) (err error) {
	if r.base.ID == 0 {
		next.alive, err = alive.DecodePortable(r.header.alive)
		return err
	}
	v, err := next.values()
	if err != nil {
		return err
	}
	r.base.Next = v.nextSeq
	next.stored = r.base
	next.alive, err = r.store.manifest.sets.Load(r.base)
	return err
}

func (r *Receiver) openOutcomes(next *contents) (err error) {
	if r.ended == nil {
		next.outcomes = outcomes.NewSet().Freeze()
		return nil
	}
	next.outcomes, err = r.ended.Finish()
	return err
}

// Abort removes what was received. It does nothing after Commit.
func (r *Receiver) Abort() {
	err := r.closeFile(false)
	for _, f := range r.files {
		err = errors.Join(err, os.Remove(f.path))
	}
	if err != nil { // the next start removes what is left
		r.store.log.Error("abort receiving", "error", err)
	}
	r.files = nil
}
