package raftfsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft-wal/types"
)

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
