package deadletter

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"

	"encoding/binary"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage/codec"
)

// A cursor is how far each partition has been told, and of which question:
//
//	| version u8, 1 | seal 8 | n | n x (topic id 16, | n | n x (number, before)) |     base64
//
// where numbers are uvarints. seal is a digest of the question and of what stands behind it: a slip in copying
// would leave out dead letters that nobody misses. A partition that is added meanwhile is told from its end.
const cursorVersion = 1

const sealSize = 8

// A place names a partition for as long as its topic lives.
type place struct {
	topicID [16]byte
	number  int32
}

// digest tells questions apart, those to other clusters, too.
func digest(cluster [16]byte, f client.Filter) []byte {
	text, err := json.Marshal(f)
	if err != nil { // texts and numbers
		panic(err)
	}
	sum := sha256.Sum256(append(cluster[:], text...))
	return sum[:]
}

// seal is that of places which answer the question.
func seal(question, places []byte) []byte {
	sum := sha256.Sum256(slices.Concat(question, places))
	return sum[:sealSize]
}

func cursor(tails []*tail, question []byte) string {
	sorted := slices.SortedFunc(slices.Values(tails), func(a, b *tail) int {
		return cmp.Or(bytes.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Number, b.Number))
	})
	var topics [][]*tail
	for i, t := range sorted {
		if i == 0 || t.TopicID != sorted[i-1].TopicID {
			topics = append(topics, nil)
		}
		last := &topics[len(topics)-1]
		*last = append(*last, t)
	}
	b := binary.AppendUvarint(nil, uint64(len(topics)))
	for _, of := range topics {
		b = binary.AppendUvarint(append(b, of[0].TopicID[:]...), uint64(len(of)))
		for _, t := range of {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(t.Number)), uint64(max(t.before, 0)))
		}
	}
	return base64.RawURLEncoding.EncodeToString(slices.Concat([]byte{cursorVersion}, seal(question, b), b))
}

// resume returns how far the partitions that the cursor names have been told.
func resume(text string, question []byte) (map[place]int64, error) {
	if text == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	isWhole := err == nil && len(b) >= 1+sealSize && base64.RawURLEncoding.EncodeToString(b) == text // the decoder lets line breaks pass, and spare bits
	if !isWhole || b[0] != cursorVersion {
		return nil, noCursor(text)
	}
	if !bytes.Equal(b[1:1+sealSize], seal(question, b[1+sealSize:])) {
		return nil, client.BadField("cursor", text, "is damaged, or of another question, or of another cluster: give it whole, with the filter that it came with, or begin without one")
	}
	places := map[place]int64{}
	d := codec.NewDecoder(b[1+sealSize:])
	for range d.CountOf(17) {
		id := d.ID()
		for range d.CountOf(2) {
			number, before := d.Uvarint(), d.Uvarint()
			if number > 1<<31-1 || before > 1<<63-1 {
				return nil, noCursor(text)
			}
			places[place{id, int32(number)}] = int64(before)
		}
	}
	if d.Finish("cursor") != nil {
		return nil, noCursor(text)
	}
	return places, nil
}

func noCursor(text string) error {
	return client.BadField("cursor", text, "is none that this version of carillon gives out: begin without one")
}
