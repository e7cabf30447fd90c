package deliver

import (
	"container/heap"
	"context"
	"time"
)

// A dispatcher knows where each target of the publisher stands. One goroutine owns it:
//
//	orders --> unseen --exists--> lane --fails for 2 s--> parked <-.
//	             `---- missing, or no answer, for 2 s --->  |      | probe fails
//	           forgotten <--idle-- on trial <--probe works--'------'
//	             lane <--an order--'
//
// Only a target that Kafka has said to exist has a lane, with its goroutine and a place
// in a Kafka client. All others are an entry here, and a name that the prober asks for
// with a thousand others. A target for which nothing waits is forgotten.
type dispatcher struct {
	p        *Publisher
	start    func(*lane)
	lanes    map[string]*lane
	laneless map[string]*laneless // all targets without a lane
	wakes    wakeQueue            // of these, those that wait for a time, and not for an answer
	trials   time.Time            // when the last of the trials begins that are planned
	warned   time.Time            // when it was last logged that one is parked
	orders   []order              // reused
}

func newDispatcher(p *Publisher, start func(*lane)) *dispatcher {
	return &dispatcher{p: p, start: start, lanes: make(map[string]*lane), laneless: make(map[string]*laneless)}
}

// run passes orders on until ctx ends.
func (d *dispatcher) run(ctx context.Context) error {
	defer d.end()
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		if len(d.wakes) > 0 {
			alarm.Reset(time.Until(d.p.time(d.wakes[0].wake)))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.p.orders.Ready():
			d.takeOrders()
		case <-d.p.ended.Ready():
			d.takeEnded()
		case <-d.p.prober.answers.Ready():
			d.takeAnswers()
		case <-alarm.C:
			for now := d.p.moment(time.Now()); len(d.wakes) > 0 && d.wakes[0].wake <= now; {
				d.wake(heap.Pop(&d.wakes).(*laneless))
			}
		}
	}
}

// end counts nothing as parked any more: the term is over.
func (d *dispatcher) end() {
	for _, t := range d.laneless {
		if _, ok := t.standing.(*parked); ok {
			d.p.cfg.Count.Parked(-1)
		}
	}
}

func (d *dispatcher) takeOrders() {
	d.orders = d.p.orders.Take(d.orders)
	for rest := d.orders; len(rest) > 0; {
		n := sameTarget(rest)
		d.order(rest[0].Target, rest[:n])
		rest = rest[n:]
	}
}

// order passes on what the scheduler wants of one target. A name that is new costs an entry and
// a question: invariant 11.
func (d *dispatcher) order(name string, orders []order) {
	if l := d.lanes[name]; l != nil {
		l.orders.Put(orders...)
		return
	}
	t := d.laneless[name]
	if t == nil {
		t = &laneless{name: name, standing: &unseen{since: time.Now()}, index: -1, letters: d.p.lettersFor(name).kept()}
		d.laneless[name] = t
		t.asked = true
		d.p.prober.ask(name)
	}
	d.take(t, orders)
}

func (d *dispatcher) take(t *laneless, orders []order) {
	for len(orders) > 0 {
		orders = t.standing.take(d, t, orders)
	}
}

// hear passes on what Kafka has answered about a target without a lane.
func (d *dispatcher) hear(t *laneless, heard PartitionCount) {
	absent := t.absence(d.p)
	absent.hear(heard.Err, time.Now())
	t.setAbsence(d.p, absent)
	t.standing.hear(d, t, heard)
}

// wake does what it is time for.
func (d *dispatcher) wake(t *laneless) { t.standing.wake(d, t) }

// probe asks for a target once more, in no hurry: of a hundred thousand names that are
// missing, some are given back in each second, and no claim has them all.
func (d *dispatcher) probe(t *laneless) {
	t.asked = true
	d.p.prober.probe(t.name)
}

// sameTarget returns how many orders at the front are for the first one's target.
func sameTarget(orders []order) int {
	n := 1
	for n < len(orders) && orders[n].Target == orders[0].Target {
		n++
	}
	return n
}

// takeEnded hears which lanes have ended, and why. What came for them meanwhile is
// taken before they are forgotten.
func (d *dispatcher) takeEnded() {
	for _, e := range d.p.ended.Take(nil) {
		l := e.lane
		late := l.orders.Take(nil)
		switch t := e.parked; {
		case t != nil:
			d.leave(l)
			d.laneless[t.name] = t
			d.p.cfg.Count.Parked(1)
			d.wakeAfter(t, t.standing.(*parked).pause(time.Since(l.begun)))
			d.take(t, late)
		case len(late) > 0:
			l.orders.Put(late...)
			d.start(l)
		default:
			d.leave(l)
		}
	}
}

func (d *dispatcher) leave(l *lane) {
	delete(d.lanes, l.target)
	d.p.lanes.Add(-1)
}

func (d *dispatcher) takeAnswers() {
	for _, a := range d.p.prober.answers.Take(nil) {
		if l := d.lanes[a.Target]; l != nil {
			l.answers.Put(a.PartitionCount)
		} else if t := d.laneless[a.Target]; t != nil && t.asked {
			t.asked = false
			d.hear(t, a.PartitionCount)
		}
	}
}

// begin gives a target its lane, which begins with the orders.
func (d *dispatcher) begin(t *laneless, heard PartitionCount, orders []order) {
	d.forget(t)
	l := newLane(d.p, t.name)
	l.begun = time.Now()
	l.health.absent = t.absence(d.p)
	if t.letters != nil {
		l.letters = *t.letters
	}
	switch s := t.standing.(type) {
	case *onTrial: // one failure parks it again, and for longer
		l.health.onTrial, l.health.probeAfter, l.health.window = true, s.probeAfter, 1
	case *unseen:
		l.waiting = s.waiting
	}
	if heard.Count > 0 {
		l.layout.heard, l.layout.askNext = heard, time.Now().Add(countMaxAge)
	}
	l.orders.Put(orders...)
	d.lanes[t.name] = l
	d.p.lanes.Add(1)
	d.start(l)
}

func (d *dispatcher) forget(t *laneless) {
	delete(d.laneless, t.name)
	if t.index >= 0 {
		heap.Remove(&d.wakes, int(t.index))
	}
}

// wakeAfter has a target without a lane looked at after a while.
func (d *dispatcher) wakeAfter(t *laneless, wait time.Duration) {
	t.wake = d.p.moment(time.Now().Add(wait))
	if t.index >= 0 {
		heap.Fix(&d.wakes, int(t.index))
	} else {
		heap.Push(&d.wakes, t)
	}
}

// A wakeQueue is a heap of targets by the time at which to look at them.
type wakeQueue []*laneless

func (q wakeQueue) Len() int           { return len(q) }
func (q wakeQueue) Less(i, j int) bool { return q[i].wake < q[j].wake }
func (q wakeQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = int32(i), int32(j)
}
func (q *wakeQueue) Push(x any) {
	t := x.(*laneless)
	t.index = int32(len(*q))
	*q = append(*q, t)
}
func (q *wakeQueue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.index = -1
	return t
}
