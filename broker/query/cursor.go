package query

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// A cursor is where a walk goes on, and what it is a walk of:
//
//	| version u8, 1 | due u64 | seq u64 | seal 8 |     big endian, in base64
//
// seal is a digest of what stands before it, of the question and of the cluster that was asked: a place alone
// would let a walk go on with another one, or elsewhere after a slip in copying, and leave out messages that
// nobody misses. It is no secret: who makes up a cursor gets what the filter alone would get.
const cursorVersion = 1

const (
	placeSize  = 1 + 8 + 8
	sealSize   = 8
	cursorSize = placeSize + sealSize
)

func (m *matcher) cursor(at storage.Ref) string {
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, uint64(at.Due))
	b = binary.BigEndian.AppendUint64(b, at.Seq)
	return base64.RawURLEncoding.EncodeToString(append(b, m.seal(b)...))
}

func (m *matcher) seal(place []byte) []byte {
	question, err := json.Marshal(m.Filter)
	if err != nil { // texts and numbers
		panic(err)
	}
	sum := sha256.Sum256(slices.Concat(place, m.cluster[:], question))
	return sum[:sealSize]
}

// resume returns where the cursor says that the walk goes on; "": at its beginning.
func (m *matcher) resume(cursor string) (storage.Ref, error) {
	if cursor == "" {
		return m.first(), nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	isWhole := err == nil && len(b) == cursorSize && base64.RawURLEncoding.EncodeToString(b) == cursor // the decoder lets line breaks pass, and spare bits
	switch {
	case !isWhole || b[0] != cursorVersion:
		return storage.Ref{}, client.BadField("cursor", cursor, "is none that this version of carillon gives out: begin without one")
	case string(b[placeSize:]) != string(m.seal(b[:placeSize])):
		return storage.Ref{}, client.BadField("cursor", cursor, "is damaged, or of another question, or of another cluster: give it whole, with the filter that it came with, or begin without one")
	}
	return storage.Ref{Due: int64(binary.BigEndian.Uint64(b[1:])), Seq: binary.BigEndian.Uint64(b[9:])}, nil
}
