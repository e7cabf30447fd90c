package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/carillonmq/carillon/storage/codec"
	"go.etcd.io/bbolt"
)

// SurveySize is how many entries of a segment stand for all of it.
const SurveySize = 512

// A survey keeps the entries that Survey has found: a segment never changes.
type survey struct {
	mu      sync.Mutex
	entries []Entry // without bodies
}

// Survey returns entries without bodies that stand for all of the segment: SurveySize of them, each from another of as many
// parts of equal number, or all if there are not more. At first it reads a page of each chunk, and the
// index of those that an entry is taken from, which ctx ends; from then on they are in memory, some 50 KB.
// They must not be changed.
func (s *Segment) Survey(ctx context.Context) ([]Entry, error) {
	s.survey.mu.Lock()
	defer s.survey.mu.Unlock()
	if s.survey.entries != nil || s.Info.Count == 0 {
		return s.survey.entries, nil
	}
	parts := min(s.Info.Count, SurveySize)
	taken := make([]Entry, 0, parts)
	texts := make(map[string]string)
	kept := func(text string) string {
		if _, ok := texts[text]; !ok {
			texts[text] = strings.Clone(text)
		}
		return texts[text]
	}
	err := s.view(func(tx *bbolt.Tx) error {
		at := uint64(0) // entries before the chunk
		chunks := tx.Bucket(chunksBucket).Cursor()
		for key, value := chunks.First(); key != nil && len(taken) < int(parts); key, value = chunks.Next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			if len(value) < chunkHeader {
				return fmt.Errorf("%w: chunk of %d bytes", codec.ErrCorrupt, len(value))
			}
			end := at + uint64(binary.BigEndian.Uint32(value[8:]))
			if Surveyed(uint64(len(taken)), parts, s.Info.Count) >= end {
				at = end
				continue
			}
			c, err := openChunk(s.Info.Form, key, value)
			if err != nil {
				return err
			}
			for ; at < end && len(taken) < int(parts); at++ {
				e, ok, err := c.next()
				if err != nil || !ok {
					return err
				}
				if at == Surveyed(uint64(len(taken)), parts, s.Info.Count) {
					e.Body, e.Target, e.Topic, e.ID = nil, kept(e.Target), kept(e.Topic), strings.Clone(e.ID)
					taken = append(taken, e.Entry)
				}
			}
			at = end
		}
		if len(taken) < int(parts) {
			return fmt.Errorf("%w: it has fewer than its %d entries", codec.ErrCorrupt, s.Info.Count)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("survey segment %s: %w", s.Path, err)
	}
	s.survey.entries = taken
	return taken, nil
}

// Surveyed returns which of count entries is taken from a part. Its place in the part follows no period
// that targets, say, may have as well.
func Surveyed(part, parts, count uint64) uint64 {
	first, next := part*count/parts, (part+1)*count/parts
	return first + scatter(part)%(next-first)
}

// scatter returns a number that has nothing in common with its neighbours' (splitmix64).
func scatter(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
