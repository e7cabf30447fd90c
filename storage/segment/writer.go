package segment

import (
	"errors"
	"fmt"
	"os"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"go.etcd.io/bbolt"
)

var (
	chunksBucket = []byte("chunks")
	rowsBucket   = []byte("rows")    // of a segment WithIDs
	filterBucket = []byte("filters") // of a segment WithIDs
	surveyBucket = []byte("survey")  // of a segment WithIDs, but not of the first ones
	infoBucket   = []byte("info")
	infoKey      = []byte("segment")
)

// transactionSize bounds what bbolt holds in memory while a segment is written.
// Each transaction writes its last leaf (two chunks) again in the next one: 1.6 %
// at 8 MB.
const transactionSize = 8 << 20

// writerMap is address space, not memory: with it bbolt never maps anew, which
// copies every pending page.
const writerMap = 1 << 36

// Writer writes a new segment file. It belongs to one goroutine. Nothing is synced before
// Finish; a file that is not named in the manifest is removed at the next start.
type Writer struct {
	path  string
	db    *bbolt.DB
	file  *os.File // bbolt's
	tx    *bbolt.Tx
	info  Info
	chunk chunkBuilder
	rows  rowWriter
	picks surveyor
	dirty int // bytes put into tx
	// values are buffers for chunks. The first put of them may be in tx: bbolt
	// needs their memory until it commits.
	values [][]byte
	put    int
}

// Create begins a file for count entries whose seqs lie within first and last. It must be
// finished or aborted.
func Create(path string, form Form, first, last, count uint64) (*Writer, error) {
	w := &Writer{
		path: path, info: Info{Form: form, First: first, Last: last},
		chunk: chunkBuilder{form: form}, picks: newSurveyor(form, count),
	}
	var err error
	w.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		OpenFile: w.open, NoSync: true, NoGrowSync: true, NoFreelistSync: true, InitialMmapSize: writerMap, NoStatistics: true,
		FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		_ = os.Remove(path) // it may never have been there
		return nil, fmt.Errorf("create segment: %w", disk.MarkFull(err))
	}
	return w, nil
}

func (w *Writer) open(name string, flag int, mode os.FileMode) (file *os.File, err error) {
	w.file, err = os.OpenFile(name, flag, mode)
	return w.file, err
}

// Add takes the next entry in (due, seq) order. Its body must stay until
// Finish. The error wraps disk.ErrFull when room would cure it.
func (w *Writer) Add(e *Entry) error {
	if w.info.Count == 0 {
		w.info.Min = e.Ref()
	}
	w.info.Max = e.Ref()
	w.info.Count++
	w.info.Bodies += int64(len(e.Body))
	w.picks.add(e)
	w.chunk.add(e)
	if w.chunk.full() {
		return w.putChunk()
	}
	return nil
}

// Empty reports whether nothing was added.
func (w *Writer) Empty() bool { return w.info.Count+w.info.Rows == 0 }

func (w *Writer) putChunk() error {
	key, value := w.chunk.finish(w.info.Chunks, w.buffer())
	w.info.Chunks++
	return w.putOver(chunksBucket, key, value)
}

// buffer returns one to write the next value over.
func (w *Writer) buffer() []byte {
	if w.put == len(w.values) {
		w.values = append(w.values, nil)
	}
	return w.values[w.put]
}

// putOver puts what was written over buffer.
func (w *Writer) putOver(name, key, value []byte) error {
	if cap(value) <= 2*chunkSize { // of large bodies not too many are kept
		w.values[w.put] = value
	}
	w.put++
	return w.putValue(name, key, value)
}

// putValue puts what stays as it is until the transaction ends.
func (w *Writer) putValue(name, key, value []byte) error {
	bucket, err := w.bucket(name)
	if err != nil {
		return err
	}
	if err := bucket.Put(key, value); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if w.dirty += len(value); w.dirty < transactionSize {
		return nil
	}
	return w.commit()
}

func (w *Writer) bucket(name []byte) (*bbolt.Bucket, error) {
	if w.tx == nil {
		tx, err := w.db.Begin(true)
		if err != nil {
			return nil, fmt.Errorf("write segment: %w", err)
		}
		w.tx = tx
	}
	bucket, err := w.tx.CreateBucketIfNotExists(name)
	if err != nil {
		return nil, fmt.Errorf("write segment: %w", err)
	}
	bucket.FillPercent = 1 // keys only ever grow
	return bucket, nil
}

func (w *Writer) commit() error {
	tx := w.tx
	w.tx, w.dirty, w.put = nil, 0, 0
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write segment: %w", disk.MarkFull(err))
	}
	disk.StartWriteback(w.file)
	return nil
}

// finishParts writes what is still gathered, and makes the buckets that a segment of its form has.
func (w *Writer) finishParts() error {
	if w.chunk.count > 0 {
		if err := w.putChunk(); err != nil {
			return err
		}
	}
	if w.info.Count != w.picks.count {
		return fmt.Errorf("write segment: %d entries came where %d should", w.info.Count, w.picks.count)
	}
	if w.info.Form == WithIDs {
		if err := w.finishRows(); err != nil {
			return err
		}
		if err := w.putSurvey(); err != nil {
			return err
		}
	}
	for _, name := range w.info.Form.buckets() {
		if _, err := w.bucket(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) putSurvey() error {
	if w.info.Count == 0 {
		return nil
	}
	key, value := w.picks.chunk.finish(0, nil)
	return w.putValue(surveyBucket, key, value)
}

// buckets are those that every segment of the form has; they have pages that lead to others.
func (f Form) buckets() [][]byte {
	if f == Plain {
		return [][]byte{chunksBucket}
	}
	return [][]byte{chunksBucket, rowsBucket, filterBucket}
}

// Finish makes the file durable, its name not yet, and returns its record. It blocks for
// the sync. As many entries as were announced must have been added, and at least one or a row.
func (w *Writer) Finish() (Record, error) {
	// A merge's bodies lie in the mapped files of segments, which stay pinned.
	if err := disk.Guard(w.finishParts); err != nil {
		return Record{}, err
	}
	info, err := w.bucket(infoBucket)
	if err != nil {
		return Record{}, err
	}
	if err := info.Put(infoKey, codec.Seal(w.info.encode())); err != nil {
		return Record{}, fmt.Errorf("write segment info: %w", err)
	}
	if err := w.commit(); err != nil {
		return Record{}, err
	}
	record := Record{Info: w.info}
	if err := record.measure(w.db); err != nil {
		return Record{}, err
	}
	if err := w.db.Sync(); err != nil {
		return Record{}, fmt.Errorf("sync segment: %w", disk.MarkFull(err))
	}
	if err := w.db.Close(); err != nil {
		return Record{}, fmt.Errorf("close segment: %w", err)
	}
	return record, nil
}

// Abort gives the file up for cause, removes it, and returns cause. It may follow a
// Finish that failed.
func (w *Writer) Abort(cause error) error {
	if w.tx != nil {
		cause = errors.Join(cause, w.tx.Rollback())
		w.tx = nil
	}
	return errors.Join(cause, w.db.Close(), os.Remove(w.path))
}

// measure reads back the file's size and the pages between root and chunks.
func (r *Record) measure(db *bbolt.DB) error {
	stat, err := os.Stat(db.Path())
	if err != nil {
		return fmt.Errorf("measure segment: %w", err)
	}
	r.Size = stat.Size()
	pages, err := openPages(db)
	if err != nil {
		return err
	}
	defer pages.close()
	return db.View(func(tx *bbolt.Tx) error {
		for _, name := range r.Info.Form.buckets() {
			branches, err := pages.branches(uint64(tx.Bucket(name).Root()))
			if err != nil {
				return err
			}
			r.Branches = append(r.Branches, branches...)
		}
		r.CRC, err = pages.checksum(r.Branches)
		return err
	})
}
