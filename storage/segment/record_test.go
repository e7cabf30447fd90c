package segment

import (
	"errors"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
)

// A segment that was just flushed has an entry for each of its seqs, as a rule, and no more.
func TestRecord_countsAnEntryForEachSeqAtMost(t *testing.T) {
	for count, valid := range map[uint64]bool{299: true, 300: true, 301: false} {
		r := writtenRecord()
		r.Info.Count = count
		if _, err := DecodeRecord(r.Encode()); valid != (err == nil) || !valid && !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%d entries for seqs %d to %d: %v", count, r.Info.First, r.Info.Last, err)
		}
	}
}
