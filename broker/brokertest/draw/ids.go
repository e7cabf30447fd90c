package draw

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// chosen is what has ids of its users' choice: orders that are paid in time and reminders that move.
// Most of what comes after is for the same few ids, in any order and from any partition.
func chosen(r *run, at time.Duration) {
	source, target := pick(r, r.sources...), r.to()
	ids := 1 + r.IntN(r.count())
	of := fmt.Sprintf("ids=%d key=k%% deliver-id=%s%%", ids, pick(r, "order-", "cart-"))
	say := func(count int, what string) { r.at(at, "produce %s count=%d %s %s", source, count, of, what) }
	schedule := func() string { return fmt.Sprintf("deliver-to=%s %s", target, r.due(at)) }
	say(r.count(), schedule())
	for range 2 + r.IntN(6) {
		at += r.span(r.unit/10, 10*r.unit)
		count := 1 + r.count()/2
		switch r.IntN(6) {
		case 0, 1:
			say(count, "deliver-cancel=true"+pick(r, "", "", " deliver-if=present"))
		case 2:
			say(count, schedule())
		case 3:
			say(count, schedule()+" deliver-if="+pick(r, "absent", "present"))
		case 4:
			say(count, schedule()+" deliver-expires-after="+span(r.span(time.Millisecond, 20*r.unit)))
		case 5: // due about when it is cancelled
			say(count, fmt.Sprintf("deliver-to=%s %s", target, r.until(at+r.span(time.Millisecond, r.unit))))
			at += r.span(time.Millisecond, 2*r.unit)
			say(count, "deliver-cancel=true")
		}
	}
}

// expired has something expire at any time, beside whatever else happens. It draws for itself, as paused does, in
// all scripts.
func (r *run) expired(seed uint64, end time.Duration) {
	r.Rand = rand.New(rand.NewPCG(seed, 3))
	begin := r.ready()
	expiring(r, begin+time.Duration(r.Int64N(int64(end-begin))))
}

// expiring is of no use when it is late.
func expiring(r *run, at time.Duration) {
	for range 1 + r.IntN(3) {
		r.produce(at, r.count(), "key=k%% deliver-to=%s %s deliver-expires-after=%s", r.to(), r.due(at), span(r.span(time.Millisecond, 30*r.unit)))
		at += r.span(r.unit/10, 5*r.unit)
	}
}
