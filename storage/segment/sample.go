package segment

import (
	"context"
	"fmt"

	"github.com/carillonmq/carillon/storage/codec"
	"go.etcd.io/bbolt"
)

// SampleSize is how many bytes of a segment stand for all of it. Live bytes are
// estimated within a few hundredths of the file's size.
const SampleSize = 256

// A Sample tells how many bytes of a segment are alive without a size for each
// seq: every (size / SampleSize)-th byte, in order of delivery, belongs to some
// entry, and the share of those entries that is alive is the share of the bytes.
// A large entry is there several times, small ones that all of them together make
// less than a part of the file may not be there at all.
type Sample []uint64

// LiveBytes estimates how many of size bytes belong to what is alive.
func (p Sample) LiveBytes(size int64, alive func(seq uint64) bool) int64 {
	hits := int64(0)
	for _, seq := range p {
		if alive(seq) {
			hits++
		}
	}
	return size * hits / int64(len(p))
}

// TakeSample reads the length of each chunk, which touches a page in 128 KB, and
// the index of those that a sampled byte lies in. Of a large file that is not in
// memory it takes seconds: ctx ends it.
func (s *Segment) TakeSample(ctx context.Context) (taken Sample, err error) {
	stride := max(1, s.Size/SampleSize)
	err = s.view(func(tx *bbolt.Tx) error {
		at, hit := int64(0), min(stride/2, chunkHeader) // of the file, chunks alone counted
		chunks := tx.Bucket(chunksBucket).Cursor()
		for key, value := chunks.First(); key != nil; key, value = chunks.Next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			end := at + int64(len(value))
			if hit < end {
				if taken, err = taken.add(s.Info.Form, key, value, hit-at, stride); err != nil {
					return fmt.Errorf("segment %s: %w", s.Path, err)
				}
				hit += (end - hit + stride - 1) / stride * stride
			}
			at = end
		}
		if s.Info.Foreign > 0 {
			if taken, err = s.sampleRows(tx, taken, hit-at, stride); err != nil {
				return err
			}
		}
		if len(taken) == 0 {
			return fmt.Errorf("%w: segment %s has no bytes of chunks", codec.ErrCorrupt, s.Path)
		}
		return nil
	})
	return taken, err
}

// sampleRows appends the seqs that the rows' bytes from hit on, a stride apart, belong to. Only
// where some are of messages elsewhere they are looked at: others live and die with the entries.
func (s *Segment) sampleRows(tx *bbolt.Tx, taken Sample, hit, stride int64) (Sample, error) {
	c, at := RowCursor{segment: s, tx: tx}, int64(0)
	for {
		r, ok, err := c.Next()
		if err != nil || !ok {
			return taken, err
		}
		for at += c.chunk.RowSize(); hit < at; hit += stride {
			taken = append(taken, r.Seq)
		}
	}
}

// add appends the seqs that the chunk's bytes from hit on, a stride apart, belong
// to. Header and index are shared out among the entries.
func (p Sample) add(form Form, key, value []byte, hit, stride int64) (Sample, error) {
	c, err := openChunk(form, key, value)
	if err != nil {
		return p, err
	}
	each := (int64(len(value)) - int64(len(c.bodies))) / int64(c.left)
	end := int64(0)
	for {
		var e chunkEntry
		ok, err := c.next(&e)
		if err != nil || !ok {
			return p, err
		}
		for end += each + int64(len(e.Body)); hit < end; hit += stride {
			p = append(p, e.Seq)
		}
	}
}
