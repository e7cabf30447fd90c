package outcomes

import (
	"encoding/binary"
	"io"

	"github.com/carillonmq/carillon/storage/codec"
)

// A stream has the chunks one after the other, in the order of their keys, each as a piece, and not the head:
//
//	piece  | length u32 | chunk, a record of that length |

// pieceFrame is how many bytes of a piece are not payload: length, version, checksum.
const pieceFrame = 4 + 1 + 4

// A Reader reads a stream of the chunks of a Frozen.
type Reader struct {
	Size int64 // of all of it
	from *Frozen
	next []uint64 // keys of the chunks that are still to come
	left []byte   // of the piece at hand
}

// NewReader reads all chunks. It costs as much as reading does, to learn the size.
func (f *Frozen) NewReader() *Reader {
	r := &Reader{from: f}
	for key, chunk := range f.Chunks(nil) {
		r.next = append(r.next, key)
		r.Size += pieceFrame + int64(len(chunk.Payload))
	}
	return r
}

func (r *Reader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		if len(r.next) == 0 {
			return 0, io.EOF
		}
		sealed := codec.Seal(r.from.chunk(r.next[0]))
		r.left = append(binary.BigEndian.AppendUint32(nil, uint32(len(sealed))), sealed...)
		r.next = r.next[1:]
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Write takes the next bytes of a stream, and the chunks in it.
func (l *Loader) Write(p []byte) (int, error) {
	l.gathered = append(l.gathered, p...)
	for len(l.gathered) >= 4 {
		end := 4 + uint64(binary.BigEndian.Uint32(l.gathered))
		if uint64(len(l.gathered)) < end {
			break
		}
		chunk, err := codec.Open("chunk of the outcomes", NewestChunk, l.gathered[4:end])
		if err == nil {
			err = l.Take(chunk)
		}
		if err != nil {
			return 0, err
		}
		l.gathered = l.gathered[end:]
	}
	return len(p), nil
}
