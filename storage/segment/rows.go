package segment

import (
	"encoding/binary"
	"fmt"

	"github.com/carillonmq/carillon/storage/name"
)

// rowWriter gathers the rows of ids, which come in order of their keys after all entries.
type rowWriter struct {
	last   name.Key // of the row before
	chunk  name.ChunkBuilder
	filter name.FilterBuilder
}

// AddRow takes the next row in order of the keys, after all entries. A row that comes twice is
// written once. The error wraps disk.ErrFull when room would cure it.
func (w *Writer) AddRow(r *name.Row) error {
	key := r.Key()
	switch order := w.rows.last.Compare(key); {
	case w.info.Rows > 0 && order == 0:
		return nil
	case order >= 0:
		return fmt.Errorf("write rows: row %x comes after %x", key, w.rows.last)
	}
	w.rows.last = key
	w.info.Rows++
	if r.Foreign {
		w.info.Foreign++
	}
	if w.rows.filter.Full(&r.Hash) {
		if err := w.putFilter(&r.Hash); err != nil {
			return err
		}
	}
	w.rows.filter.Add(&r.Hash)
	if w.rows.chunk.Add(r) {
		return nil
	}
	if err := w.putRows(key); err != nil {
		return err
	}
	w.rows.chunk.Add(r)
	return nil
}

// putRows writes a chunk, after which the one that begins with until will come.
func (w *Writer) putRows(until name.Key) error {
	key, value := w.rows.chunk.Finish(w.info.RowChunks, until, w.buffer())
	w.info.RowChunks++
	return w.putOver(rowsBucket, key, value)
}

// putFilter writes a filter, next is the name after it, nil for none.
func (w *Writer) putFilter(next *name.Hash) error {
	value, err := w.rows.filter.Finish(w.info.Filters, next)
	if err != nil {
		return fmt.Errorf("write filters: %w", err)
	}
	key := binary.BigEndian.AppendUint32(nil, w.info.Filters)
	w.info.Filters++
	return w.putValue(filterBucket, key, value)
}

func (w *Writer) finishRows() error {
	if w.info.Rows == 0 {
		return nil
	}
	if err := w.putRows(name.End); err != nil {
		return err
	}
	return w.putFilter(nil)
}
