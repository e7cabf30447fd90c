// Package name finds messages by the ids that users chose, in memory and in segments.
package name

import (
	"crypto/sha256"
	"encoding/binary"
)

// A Hash stands for an id within its delay topic: nobody finds two ids with one hash.
type Hash [16]byte

// Of returns the first half of SHA-256 over topic, a zero byte, and id. No topic holds a zero byte.
func Of(topic, id string) (h Hash) {
	text := make([]byte, 0, 512) // stays on the stack for all but the longest
	text = append(append(append(text, topic...), 0), id...)
	sum := sha256.Sum256(text)
	copy(h[:], sum[:])
	return h
}

// Head returns the first eight bytes, by which names are sorted but for very few.
func (h *Hash) Head() uint64 { return binary.BigEndian.Uint64(h[:]) }
