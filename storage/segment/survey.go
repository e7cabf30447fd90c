package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"go.etcd.io/bbolt"
)

// SurveySize is how many entries of a segment stand for all of it.
const SurveySize = 512

// A survey keeps the entries that Survey has found: a segment never changes.
type survey struct {
	mu      sync.Mutex
	entries []Entry // without bodies
}

// A surveyor picks the entries that stand for all, which come in order, and makes a chunk of them, without bodies:
// a segment WithIDs has it in a bucket of its own. There is none in those that were written before there were surveys.
type surveyor struct {
	count uint64 // of entries that will have come
	came  uint64
	chunk chunkBuilder
}

func newSurveyor(form Form, count uint64) surveyor {
	return surveyor{count: count, chunk: chunkBuilder{form: form}}
}

func (s *surveyor) add(e *Entry) {
	if taken, parts := uint64(s.chunk.count), surveyParts(s.count); taken < parts && s.came == Surveyed(taken, parts, s.count) {
		bare := *e
		bare.Body = nil
		s.chunk.add(&bare)
	}
	s.came++
}

// verify compares what was picked with what the segment has.
func (s *surveyor) verify(g *Segment) error {
	return g.view(func(tx *bbolt.Tx) error {
		key, value := storedSurvey(tx)
		if key == nil || s.chunk.count == 0 {
			return nil
		}
		if wantKey, want := s.chunk.finish(0, nil); !bytes.Equal(key, wantKey) || !bytes.Equal(value, want) {
			return &codec.Damage{File: g.Path, Offset: disk.Offset(g.db, value), Err: fmt.Errorf("%w: the survey is not of the segment's entries", codec.ErrCorrupt)}
		}
		return nil
	})
}

// storedSurvey returns the survey that was written with the segment; the key is nil when there is none.
func storedSurvey(tx *bbolt.Tx) (key, value []byte) {
	bucket := tx.Bucket(surveyBucket)
	if bucket == nil {
		return nil, nil
	}
	return bucket.Cursor().First()
}

// Survey returns entries without bodies that stand for all of the segment: SurveySize of them, each from another of as many
// parts of equal number, or all if there are not more. At first it reads them from the file; from then on they are in
// memory, some 50 KB. A segment from before surveys were written must be read for it: a page of each chunk, and the
// index of those that an entry is taken from, which ctx ends. They must not be changed.
func (s *Segment) Survey(ctx context.Context) ([]Entry, error) {
	s.survey.mu.Lock()
	defer s.survey.mu.Unlock()
	if s.survey.entries != nil || s.Info.Count == 0 {
		return s.survey.entries, nil
	}
	var taken []Entry
	err := s.view(func(tx *bbolt.Tx) (err error) {
		if key, value := storedSurvey(tx); key != nil {
			taken, err = s.readSurvey(key, value)
		} else {
			taken, err = s.takeSurvey(ctx, tx)
		}
		return err
	})
	if err == nil && uint64(len(taken)) != surveyParts(s.Info.Count) {
		err = fmt.Errorf("%w: %d of %d entries were found to stand for all", codec.ErrCorrupt, len(taken), s.Info.Count)
	}
	if err != nil {
		return nil, fmt.Errorf("survey segment %s: %w", s.Path, err)
	}
	s.survey.entries = taken
	return taken, nil
}

// readSurvey reads the chunk that a surveyor wrote.
func (s *Segment) readSurvey(key, value []byte) (taken []Entry, err error) {
	c, err := openChunk(s.Info.Form, key, value)
	if err != nil {
		return nil, err
	}
	for {
		var e chunkEntry
		ok, err := c.next(&e)
		if err != nil || !ok {
			return taken, err
		}
		e.ID = strings.Clone(e.ID)
		taken = append(taken, e.Entry)
	}
}

// takeSurvey picks the entries out of all chunks.
func (s *Segment) takeSurvey(ctx context.Context, tx *bbolt.Tx) (taken []Entry, err error) {
	texts := make(map[string]string)
	kept := func(text string) string {
		if _, ok := texts[text]; !ok {
			texts[text] = text
		}
		return texts[text]
	}
	at, parts := uint64(0), surveyParts(s.Info.Count) // at: entries before the chunk
	chunks := tx.Bucket(chunksBucket).Cursor()
	for key, value := chunks.First(); key != nil && uint64(len(taken)) < parts; key, value = chunks.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(value) < chunkHeader {
			return nil, fmt.Errorf("%w: chunk of %d bytes", codec.ErrCorrupt, len(value))
		}
		end := at + uint64(binary.BigEndian.Uint32(value[8:]))
		if Surveyed(uint64(len(taken)), parts, s.Info.Count) >= end {
			at = end
			continue
		}
		c, err := openChunk(s.Info.Form, key, value)
		if err != nil {
			return nil, err
		}
		for ; at < end && uint64(len(taken)) < parts; at++ {
			var e chunkEntry
			ok, err := c.next(&e)
			if err != nil || !ok {
				return nil, err
			}
			if at == Surveyed(uint64(len(taken)), parts, s.Info.Count) {
				e.Body, e.Target, e.Topic, e.ID = nil, kept(e.Target), kept(e.Topic), strings.Clone(e.ID)
				taken = append(taken, e.Entry)
			}
		}
		at = end
	}
	return taken, nil
}

// surveyParts is how many of count entries stand for all.
func surveyParts(count uint64) uint64 { return min(count, SurveySize) }

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
