package brokertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/storage"
)

// Who reads for one target after the other lifts their holds one after the other as well, and would else be allowed a read for
// each.
func TestCatchUps_areOneForTargetsThatKafkaToldOfTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver()
		o.ledger.Log.Accepted = map[uint64]ledger.Acceptance{1: {}, 2: {}, 3: {}, 4: {}, 5: {}, 6: {}, 7: {}, 8: {}, 9: {}, 10: {}}
		lift := func(target string, after time.Duration, want int64) {
			t.Helper()
			time.Sleep(after)
			if o.hold(nil, []string{target}); o.ledger.Costs.CatchUps != want*10 {
				t.Errorf("%d reads were allowed when the hold of %s was lifted, want %d", o.ledger.Costs.CatchUps/10, target, want)
			}
		}
		o.hold([]storage.Hold{{Target: "a"}, {Target: "b"}, {Target: "c"}, {Target: "d"}, {Target: "e"}, {Target: "f"}}, nil)
		missing := deliver.PartitionCount{Err: deliver.ErrTargetMissing}
		o.told([]string{"a", "b", "c", "d"}, []deliver.PartitionCount{{Count: 1}, {Count: 1}, {Count: 1}, {Count: 1}})
		lift("a", time.Second, 1)
		lift("b", 100*time.Millisecond, 1)
		o.told([]string{"c", "e"}, []deliver.PartitionCount{missing, {Count: 1}})
		lift("e", 100*time.Millisecond, 2) // Kafka told of it after what waits was begun to be read
		lift("f", 20*time.Millisecond, 2)  // together with e
		o.told([]string{"c"}, []deliver.PartitionCount{{Count: 1}})
		lift("c", 100*time.Millisecond, 3) // it was missing once more
		lift("d", time.Minute, 4)          // that was read long ago
	})
}
