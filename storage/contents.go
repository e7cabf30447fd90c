package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/segment"
	"go.etcd.io/bbolt"
)

// The newest versions of what the manifest holds that this program reads. Which one
// is written, the level of what is written decides (see contents.level): version 1
// of all is what LevelOne has.
const (
	newestHead  = 2
	newestState = 4
)

// contents is what one manifest commit names. It is never changed once it is
// the manifest's: a commit replaces it.
type contents struct {
	number     uint64 // of the commit
	generation uint64 // raised by a received snapshot
	meta       SnapshotMeta
	state      codec.Record       // encodeValues
	stored     alive.File         // where alive is on disk; LevelOne has it in the manifest
	alive      *alive.Set         // at meta.Index
	outcomes   *outcomes.Frozen   // at meta.Index
	segments   []*segment.Segment // sorted by seq
}

func emptyContents() contents {
	v := newValues()
	return contents{state: encodeValues(&v), alive: alive.NewSet(), outcomes: outcomes.NewSet().Freeze()}
}

// values decodes the state and puts the applied index to it.
func (c *contents) values() (values, error) {
	v, err := decodeValues(c.state)
	v.appliedIndex = c.meta.Index
	return v, err
}

// level is what the state says. All that is written with it, to disk and into
// streams, has the forms of this level: it may be behind Store.Level, which a
// restart forgets until the log is replayed.
func (c *contents) level() Level {
	if c.state.Version < 2 {
		return LevelOne
	}
	d := codec.NewDecoder(c.state.Payload)
	return readLevel(&d)
}

// encodeHead writes | number uvarint | generation uvarint | meta |, and above
// LevelOne version 2, which ends with the file of the alive-set.
func (c *contents) encodeHead() codec.Record {
	b := binary.AppendUvarint(nil, c.number)
	b = binary.AppendUvarint(b, c.generation)
	b = c.meta.append(b)
	if c.stored.ID == 0 {
		return codec.Record{Version: 1, Payload: b}
	}
	return codec.Record{Version: 2, Payload: c.stored.Append(b)}
}

func (c *contents) decodeHead(r codec.Record) error {
	d := codec.NewDecoder(r.Payload)
	c.number, c.generation, c.meta = d.Uvarint(), d.Uvarint(), readMeta(&d)
	if r.Version >= 2 {
		c.stored = alive.ReadFile(&d)
	}
	return d.Finish("manifest head")
}

// append writes | index uvarint | term uvarint | configuration | its index uvarint |.
func (m *SnapshotMeta) append(b []byte) []byte {
	b = binary.AppendUvarint(b, m.Index)
	b = binary.AppendUvarint(b, m.Term)
	b = codec.AppendBytes(b, m.Configuration)
	return binary.AppendUvarint(b, m.ConfigurationIndex)
}

func readMeta(d *codec.Decoder) SnapshotMeta {
	return SnapshotMeta{Index: d.Uvarint(), Term: d.Uvarint(), Configuration: d.Bytes(), ConfigurationIndex: d.Uvarint()}
}

// check compares what is named with each other: segments answer for disjoint
// seqs, in order, below the next seq, and every alive seq has one.
func (c *contents) check() error {
	v, err := c.values()
	if err != nil {
		return err
	}
	return checkRanges(c.alive, v.nextSeq, slices.Values(c.infos()))
}

func (c *contents) infos() []segment.Info {
	infos := make([]segment.Info, len(c.segments))
	for i, s := range c.segments {
		infos[i] = s.Info
	}
	return infos
}

var (
	manifestBucket = []byte("manifest")
	segmentsBucket = []byte("segments")
	stateBucket    = []byte("state")
	headKey        = []byte("head")
	stateKey       = []byte("state")
	outcomesBucket = []byte("outcomes")
	aliveKey       = []byte("alive")
)

func (c *contents) putHead(tx *bbolt.Tx) error {
	head, err := tx.CreateBucketIfNotExists(manifestBucket)
	if err != nil {
		return err
	}
	return head.Put(headKey, codec.Seal(c.encodeHead()))
}

func (c *contents) put(tx *bbolt.Tx, before *contents) error {
	if err := c.putHead(tx); err != nil {
		return err
	}
	if before == nil || before.alive != c.alive {
		if err := c.putState(tx); err != nil {
			return err
		}
	}
	if err := c.putOutcomes(tx, before); err != nil {
		return err
	}
	return writeSegments(tx, c, before)
}

// putState writes the state, and the alive-set where that is a part of the
// manifest. Where it is not, the state has a bucket, and by that a page, of its
// own: what lies beside the head is written by every transaction.
func (c *contents) putState(tx *bbolt.Tx) error {
	bucket := tx.Bucket(manifestBucket)
	if c.stored.ID == 0 {
		set, err := alive.EncodePortable(c.alive)
		if err != nil {
			return err
		}
		return errors.Join(bucket.Put(aliveKey, codec.Seal(set)), bucket.Put(stateKey, codec.Seal(c.state)))
	}
	own, err := tx.CreateBucketIfNotExists(stateBucket)
	if err != nil {
		return err
	}
	return errors.Join(bucket.Delete(aliveKey), bucket.Delete(stateKey), own.Put(stateKey, codec.Seal(c.state)))
}

// putOutcomes writes those that are not there yet. A received snapshot has others.
func (c *contents) putOutcomes(tx *bbolt.Tx, before *contents) error {
	if c.level() < LevelThree {
		return nil
	}
	then := outcomes.NewSet().Freeze()
	switch bucket := tx.Bucket(outcomesBucket); {
	case bucket == nil:
	case before != nil && before.generation == c.generation:
		then = before.outcomes
	default:
		if err := tx.DeleteBucket(outcomesBucket); err != nil {
			return err
		}
	}
	bucket, err := tx.CreateBucketIfNotExists(outcomesBucket)
	if err != nil {
		return err
	}
	for number := range c.outcomes.Gone(then) {
		if err := bucket.Delete(chunkKey(number)); err != nil {
			return err
		}
	}
	for number, chunk := range c.outcomes.Chunks(then) {
		if err := bucket.Put(chunkKey(number), codec.Seal(chunk)); err != nil {
			return err
		}
	}
	if head := codec.Seal(c.outcomes.Head()); !bytes.Equal(head, bucket.Get(headKey)) {
		return bucket.Put(headKey, head)
	}
	return nil
}

// readOutcomes returns those that the file holds; below LevelThree there are none.
func (m *manifest) readOutcomes(level Level) (read *outcomes.Frozen, err error) {
	if level < LevelThree {
		return outcomes.NewSet().Freeze(), nil
	}
	err = disk.Guard(func() error {
		return m.db.View(func(tx *bbolt.Tx) error {
			read, err = outcomesFrom(tx)
			return err
		})
	})
	return read, err
}

func outcomesFrom(tx *bbolt.Tx) (*outcomes.Frozen, error) {
	bucket := tx.Bucket(outcomesBucket)
	if bucket == nil {
		return nil, fmt.Errorf("%w: no bucket %q", ErrCorrupt, outcomesBucket)
	}
	head, err := openRecord(tx, "head of the outcomes", outcomes.NewestHead, bucket.Get(headKey))
	if err != nil {
		return nil, err
	}
	loader, err := outcomes.NewLoader(head)
	if err != nil {
		return nil, err
	}
	err = bucket.ForEach(func(key, value []byte) error {
		if bytes.Equal(key, headKey) {
			return nil
		}
		if number, ok := loader.Wants(); !ok || !bytes.Equal(key, chunkKey(number)) {
			return fmt.Errorf("%w: outcomes have a chunk %x where %d should be (wanted: %t)", ErrCorrupt, key, number, ok)
		}
		chunk, err := openRecord(tx, "chunk of the outcomes", outcomes.NewestChunk, value)
		if err != nil {
			return err
		}
		return loader.Take(chunk)
	})
	if err != nil {
		return nil, err
	}
	return loader.Finish()
}

func chunkKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

func writeSegments(tx *bbolt.Tx, next, before *contents) error {
	bucket, err := tx.CreateBucketIfNotExists(segmentsBucket)
	if err != nil {
		return err
	}
	if before != nil {
		for _, s := range before.segments {
			if !slices.Contains(next.segments, s) {
				if err := bucket.Delete(segmentKey(s.ID)); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range next.segments {
		if before == nil || !slices.Contains(before.segments, s) {
			if err := bucket.Put(segmentKey(s.ID), codec.Seal(s.Record.Encode())); err != nil {
				return err
			}
		}
	}
	return nil
}

// segmentRecords is what the manifest says of segments not opened yet.
type segmentRecords struct {
	ids     []uint64
	records []segment.Record
}

// read returns the file's contents without segments, and their records.
func (m *manifest) read() (c contents, s segmentRecords, err error) {
	err = disk.Guard(func() error {
		return m.db.View(func(tx *bbolt.Tx) error {
			if err := c.readFrom(tx); err != nil {
				return err
			}
			return s.readFrom(tx)
		})
	})
	return c, s, err
}

func (c *contents) readFrom(tx *bbolt.Tx) error {
	bucket := tx.Bucket(manifestBucket)
	if bucket == nil {
		return fmt.Errorf("%w: no bucket %q", ErrCorrupt, manifestBucket)
	}
	head, err := openRecord(tx, "manifest head", newestHead, bucket.Get(headKey))
	if err != nil {
		return err
	}
	if err := c.decodeHead(head); err != nil {
		return err
	}
	if c.stored.ID != 0 { // the set is read from its file
		return c.readState(tx, tx.Bucket(stateBucket))
	}
	if err := c.readState(tx, bucket); err != nil {
		return err
	}
	sealed, err := openRecord(tx, "alive-set", 1, bucket.Get(aliveKey))
	if err != nil {
		return err
	}
	c.alive, err = alive.DecodePortable(sealed)
	return err
}

// openRecord is codec.Open of a value of the manifest; the error says where it lies.
func openRecord(tx *bbolt.Tx, name string, newest byte, value []byte) (codec.Record, error) {
	r, err := codec.Open(name, newest, value)
	if errors.Is(err, ErrCorrupt) {
		err = &codec.Damage{File: tx.DB().Path(), Offset: disk.Offset(tx.DB(), value), Err: err}
	}
	return r, err
}

func (c *contents) readState(tx *bbolt.Tx, bucket *bbolt.Bucket) error {
	if bucket == nil {
		return fmt.Errorf("%w: no bucket %q", ErrCorrupt, stateBucket)
	}
	state, err := openRecord(tx, "state", newestState, bucket.Get(stateKey))
	if err != nil {
		return err
	}
	c.state = codec.Record{Version: state.Version, Payload: slices.Clone(state.Payload)}
	return nil
}

func (s *segmentRecords) readFrom(tx *bbolt.Tx) error {
	bucket := tx.Bucket(segmentsBucket)
	if bucket == nil {
		return fmt.Errorf("%w: no bucket %q", ErrCorrupt, segmentsBucket)
	}
	return bucket.ForEach(func(key, value []byte) error {
		if len(key) != 8 {
			return fmt.Errorf("%w: segment id of %d bytes", ErrCorrupt, len(key))
		}
		sealed, err := openRecord(tx, "segment record", segment.NewestRecord, value)
		if err != nil {
			return err
		}
		named, err := segment.DecodeRecord(sealed)
		if err != nil {
			return err
		}
		s.ids = append(s.ids, binary.BigEndian.Uint64(key))
		s.records = append(s.records, named)
		return nil
	})
}

func segmentKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }
