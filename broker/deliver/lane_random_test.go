package deliver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// A feeder stands for the scheduler: it hands over in order, learns only then that a target is
// parked, and begins with what came back when it works again.
type feeder struct {
	*bench
	waiting []schedule.DueMessage // not with the publisher
	parked  bool
}

func (f *feeder) step() {
	if !f.parked {
		slices.SortFunc(f.waiting, func(a, b schedule.DueMessage) int { return a.Compare(b.Ref) })
		f.Hand(f.waiting)
		f.waiting = nil
	}
	for _, v := range f.cfg.Verdicts.Take(nil) {
		f.parked = v.Parked
		for _, ref := range v.Returned {
			f.waiting = append(f.waiting, schedule.DueMessage{Ref: ref, Target: v.Target})
		}
		if v.Parked {
			f.Confirm(v.Target)
		}
	}
}

// Whatever fails and heals, and in whichever order: first copies go out in order, only what is guilty
// or has expired loses its delivery, and nothing is lost or kept. The fakes look that nothing is sent or
// dead-lettered that has expired, and nothing ends as expired that has not.
func TestLane_keepsItsPromisesWhateverFails(t *testing.T) {
	const guilty = 37 // each of so many is refused
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			f := &feeder{bench: b}
			random := rand.New(rand.NewPCG(seed, 0))
			if seed%2 == 1 {
				b.raise(storage.LevelThree)
			}
			orders := b.sink.topic("orders", 3)
			orders.heals = true
			failing := int32(-1) // partition
			refuse := func(d Delivery) error {
				var seq uint64
				fmt.Sscan(string(d.Value), &seq)
				switch {
				case seq%guilty == 0:
					return ErrRecordTooLarge
				case d.Partition == failing:
					return ErrTargetUnavailable
				}
				return nil
			}
			orders.refuse = refuse
			var all []uint64
			for range 200 {
				b.sink.change(func() {
					switch random.IntN(16) {
					case 0:
						orders.err = []error{ErrTargetUnavailable, ErrTargetMissing, ErrTargetForbidden}[random.IntN(3)]
					case 1:
						orders.silent = true
					case 2:
						failing = random.Int32N(3)
					case 3:
						orders.latency = time.Duration(random.IntN(1500)) * time.Millisecond
					case 4:
						orders.err, failing, orders.latency = nil, -1, 2*time.Millisecond
					}
				})
				if random.IntN(3) == 0 {
					due := b.accept("orders", 1+random.IntN(30), func(i int, m *message.Message) {
						m.Key = []byte{byte(random.IntN(20))}
						if seed%2 == 1 && random.IntN(3) == 0 {
							m.ID, m.Expires = "id", m.PlannedFor+random.Int64N(5000)
						}
					})
					all = append(all, seqsOf(due)...)
					f.waiting = append(f.waiting, due...)
				}
				if random.IntN(8) == 0 { // else it has not looked yet
					f.step()
				}
				b.after(time.Duration(random.IntN(400)) * time.Millisecond)
			}
			b.sink.change(func() { orders.err, failing, orders.latency, orders.silent = nil, -1, time.Millisecond, false })
			for range 300 {
				f.step()
				b.after(100 * time.Millisecond)
			}
			delivered := 0
			ended := make(map[uint64]bool)
			for partition := range int32(3) {
				written := b.written("orders", partition)
				for _, seq := range written {
					ended[seq] = true
				}
				delivered += len(written)
				if !slices.IsSorted(written) {
					t.Errorf("seed %d: partition %d out of order: %v", seed, partition, written)
				}
			}
			for _, entry := range b.log.dead {
				var seq uint64
				if m, err := message.FromEntry(&entry); err != nil {
					t.Fatal(err)
				} else if fmt.Sscan(string(m.Value), &seq); seq%guilty != 0 {
					t.Errorf("seed %d: message %d was dead-lettered", seed, seq)
				} else {
					ended[seq] = true
				}
			}
			expired := 0
			for _, e := range b.log.told {
				if e.Kind == outcomes.Expired { // it may have arrived, and the answer did not
					ended[e.Seq] = true
					expired++
				}
			}
			if len(ended) != len(all) || len(b.log.alive) != 0 || expired != b.count.expired || expired == 0 == (seed%2 == 1) {
				t.Errorf("seed %d: %d delivered, %d expired, %d counted, and %d dead-lettered of %d, %d alive", seed, delivered, expired, b.count.expired, len(b.log.dead), len(all), len(b.log.alive))
			}
			if seed%2 == 0 && delivered+len(b.log.dead) != len(all) {
				t.Errorf("seed %d: %d delivered and %d dead-lettered of %d", seed, delivered, len(b.log.dead), len(all))
			}
			if loaded := b.loaded.Load(); loaded != 0 || b.count.parked != 0 {
				t.Errorf("seed %d: %d bytes of payload in memory, %d parked", seed, loaded, b.count.parked)
			}
			b.stop()
		})
	}
}
