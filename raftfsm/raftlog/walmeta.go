package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// damaged makes damage of a file that of the data directory.
func damaged(err error) error {
	if errors.Is(err, codec.ErrCorrupt) {
		return fmt.Errorf("%w: %w", raftfsm.ErrDamaged, err)
	}
	return err
}

// walMeta cures the lock-out of raft-wal v0.4.2. The append that fills a segment
// seals the file; a goroutine records that in wal-meta.db later. After a crash or
// a Close in between, the segment is opened as the tail although it is sealed,
// and every append fails for ever. Load finds that and records it late. It also
// takes back a seal that was not written to its end, which raft-wal would take for
// one: on a full disk the last bytes of a segment are the first that find no room.
type walMeta struct {
	metadb.BoltMetaDB
	files  types.VFS
	logger hclog.Logger
}

func (m *walMeta) Load(dir string) (types.PersistentState, error) {
	state, err := m.BoltMetaDB.Load(dir)
	if errors.Is(err, types.ErrCorrupt) {
		err = damaged(codec.DamageAt(filepath.Join(dir, File(WAL)), -1, "%w", err))
	}
	if err != nil {
		return state, err
	}
	extents, err := checkSegments(dir, state, nil, nil)
	if err != nil {
		return state, damaged(err)
	}
	if len(state.Segments) == 0 {
		return state, nil
	}
	tail := &state.Segments[len(state.Segments)-1]
	if !tail.SealTime.IsZero() {
		return state, nil
	}
	if x := extents[len(extents)-1]; x.isHalfMade(*tail) {
		// Raft-wal would append to it as it is, and the check at the next start would miss what was
		// never there. What does not exist raft-wal makes whole.
		if err := m.files.Delete(dir, segment.FileName(*tail)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return state, fmt.Errorf("remove a segment that was not made to its end: %w", err)
		}
		return state, nil
	}
	filer := segment.NewFiler(dir, m.files)
	sealed, err := sealedTail(filer, *tail)
	if err != nil || sealed == nil {
		return state, err
	}
	name := segment.FileName(*tail)
	taken, err := takeBackTornSeal(m.files, dir, name, int64(sealed.IndexStart))
	if err != nil {
		return state, fmt.Errorf("seal of segment %s: %w", name, err)
	}
	if taken {
		m.logger.Info("took back a seal that was not written to its end", "segment", name)
		return state, nil
	}
	*tail = *sealed
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: sealed.MaxIndex + 1, MinIndex: sealed.MaxIndex + 1,
		SizeLimit: sealed.SizeLimit, Codec: sealed.Codec, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	m.logger.Info("recorded the rotation of a sealed segment", "max-index", sealed.MaxIndex)
	return state, m.CommitState(state)
}

// sealedTail returns what wal-meta.db should say of the tail, nil if it is not sealed.
func sealedTail(filer *segment.Filer, tail types.SegmentInfo) (sealed *types.SegmentInfo, err error) {
	w, err := filer.RecoverTail(tail)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	is, indexStart, err := w.Sealed()
	if err != nil || !is {
		return nil, err
	}
	tail.SealTime, tail.IndexStart, tail.MaxIndex = time.Now(), indexStart, w.LastIndex()
	return &tail, nil
}

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

// takeBackTornSeal clears the index frame of a segment, whose payload begins at
// indexStart, if no commit frame with the right sum follows it, and reports whether
// it has. Such an append was never acknowledged.
func takeBackTornSeal(files types.VFS, dir, name string, indexStart int64) (torn bool, err error) {
	f, err := files.OpenWriter(dir, name)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	index := indexStart - walFrameLen
	begin, err := appendBefore(f, index)
	if err != nil {
		return false, err
	}
	frame, err := readFrame(f, index)
	if err != nil {
		return false, err
	}
	commit := frame.end
	if end, err := readFrame(f, commit); err == nil && end.kind == walCommitFrame {
		sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
		if _, err := io.Copy(sum, io.NewSectionReader(f, begin, commit-begin)); err != nil {
			return false, err
		}
		if sum.Sum32() == end.value {
			return false, nil
		}
	} else if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if _, err := f.WriteAt(make([]byte, walFrameLen), index); err != nil {
		return false, err
	}
	return true, f.Sync()
}

// appendBefore returns where the append began that wrote the frame at index.
func appendBefore(f io.ReaderAt, index int64) (int64, error) {
	begin := int64(0)
	for at := int64(walHeaderLen); at < index; {
		frame, err := readFrame(f, at)
		if err != nil {
			return 0, err
		}
		if frame.kind == walCommitFrame {
			begin = frame.end
		}
		at = frame.end
	}
	return begin, nil
}

type walFrame struct {
	kind  byte
	value uint32 // its length, or the sum of a commit frame
	end   int64  // where the next one begins
}

func readFrame(f io.ReaderAt, at int64) (walFrame, error) {
	var head [walFrameLen]byte
	if n, err := f.ReadAt(head[:], at); n < len(head) {
		return walFrame{}, fmt.Errorf("read frame at %d: %w", at, err)
	}
	frame := walFrame{kind: head[0], value: binary.LittleEndian.Uint32(head[4:]), end: at + walFrameLen}
	if frame.kind != walCommitFrame {
		frame.end += (int64(frame.value) + 7) &^ 7
	}
	return frame, nil
}
