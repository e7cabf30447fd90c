package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/segment"
)

// Digest hashes the logical content: the replicated values and every message
// alive, in order, body included. It is equal on all nodes that have applied the
// same log, whatever each has flushed or merged; the applied index itself is not
// part of it. It reads everything; Apply waits while the memtables are copied. It
// is for tests.
func (s *Store) Digest() ([32]byte, error) {
	m := s.copyMemory()
	defer segment.ReleaseAll(m.segments)
	sum := sha256.New()
	sum.Write(encodeValues(&m.values).Payload)
	var buf []byte
	err := m.each(func(e *Entry) error {
		buf = segment.AppendKey(buf[:0], e.Ref())
		buf = codec.AppendString(buf, e.Target)
		length := uint64(0)
		if e.Body != nil {
			length = uint64(len(e.Body)) + 1
		}
		buf = binary.AppendUvarint(buf, length)
		sum.Write(buf)
		sum.Write(e.Body)
		return nil
	})
	if err != nil {
		return [32]byte{}, fmt.Errorf("digest: %w", err)
	}
	return [32]byte(sum.Sum(nil)), nil
}
