package merge

import (
	"context"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/segment"
)

// Rows calls add for those rows of the segments' ids whose message is in the set, in order of
// their keys. One that several segments have comes as often. It reads all of the rows.
func Rows(ctx context.Context, segments []*segment.Segment, set *alive.Set, add func(*name.Row) error) error {
	return disk.Guard(func() error {
		var heads []rowHead
		for _, g := range segments {
			c, err := g.Rows()
			if err != nil {
				return err
			}
			defer c.Close()
			h := rowHead{from: c}
			ok, err := h.next(set)
			if err != nil {
				return err
			}
			if ok {
				heads = append(heads, h)
			}
		}
		for len(heads) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			first := 0 // of few: a step has not many segments
			for i := range heads {
				if heads[i].key.Compare(heads[first].key) < 0 {
					first = i
				}
			}
			if err := add(&heads[first].Row); err != nil {
				return err
			}
			ok, err := heads[first].next(set)
			if err != nil {
				return err
			}
			if !ok {
				heads = append(heads[:first], heads[first+1:]...)
			}
		}
		return nil
	})
}

type rowHead struct {
	name.Row
	key  name.Key
	from *segment.RowCursor
}

// next moves to the next row that is in the set, false at the end.
func (h *rowHead) next(set *alive.Set) (bool, error) {
	for {
		r, ok, err := h.from.Next()
		if err != nil || !ok {
			return false, err
		}
		if set.Contains(r.Seq) {
			h.Row, h.key = r, r.Key()
			return true, nil
		}
	}
}
