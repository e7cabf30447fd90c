package schedule

import (
	"testing"

	"github.com/carillonmq/carillon/storage"
)

// A hundred thousand messages may be out at one moment, and none for a day after that.
func TestOutRefs_keepNoMemoryOfWhatIsGone(t *testing.T) {
	const n = 100_000
	var out outRefs
	for seq := range uint64(n) {
		out.add(storage.Ref{Due: 1, Seq: seq})
	}
	first := uint64(n - 1)
	if got := out.lowest(func(ref storage.Ref) bool { return ref.Seq < first }); got.Seq != first {
		t.Errorf("the lowest that is out is %v, want seq %d", got, first)
	}
	if got := out.lowest(func(storage.Ref) bool { return true }); got != endOfSchedule {
		t.Errorf("the lowest that is out is %v, want none", got)
	}
	if out.inOrder != nil {
		t.Errorf("room for %d refs is kept, and what lies before it in memory", cap(out.inOrder))
	}
}
