package kafka

import "time"

// A pool is the lines of one class of targets, and what waits for them.
//
//	quick   answers come in time. All fly with the first line while that is in time: one request takes them all.
//	        There are several such pools, each with its share of the quick
//	slow    an answer was late not long ago. Each takes a line that is free, and when there is none shares a flight with
//	        targets that are as slow
//	stuck   given up by Isolate, nothing has got through since
type pool struct {
	most     int  // lines; more only while retired ones have flights
	coalesce bool // of the quick: wait for a line that is in time, though another is free
	gathers  bool // a client gathers a flight before it sends, so that it is one request
	lines    []*line
	queues   map[int32][]*backlog // by Kafka broker, in the order of arrival

	spare     *line // the next one
	preparing bool  // a spare
}

func newPool(most int, coalesce, gathers bool) *pool {
	return &pool{most: most, coalesce: coalesce, gathers: gathers, queues: make(map[int32][]*backlog)}
}

// poolOf returns the pool whose lines the target's records take. The caller holds mu.
func (s *Sink) poolOf(t *target, now time.Time) *pool {
	switch {
	case t.stuck:
		return s.stuck
	case now.Before(t.slowUntil):
		return s.slow
	}
	return t.quick
}

// quickPool returns the quick pool that knows the topic from before it was forgotten, or else the next in turn. The caller
// holds mu.
func (s *Sink) quickPool(topic string) *pool {
	for _, p := range s.quick {
		if len(p.lines) > 0 && p.lines[0].topics[topic] {
			return p
		}
	}
	s.dealt++
	return s.quick[s.dealt%quickPools]
}

// enqueue has the backlog wait in its target's pool. The caller holds mu.
func (s *Sink) enqueue(b *backlog, now time.Time) {
	p := s.poolOf(b.target, now)
	if b.pool != p && len(b.waiting) > 0 {
		b.pool = p // the queue that it was in drops it
		p.queues[b.broker] = append(p.queues[b.broker], b)
	}
}

// offer lets the backlog, which has got a record, depart if it may, or has it wait. What waits already is not tried again,
// nor are the others: whatever lets them depart calls dispatch. The caller, who holds mu, calls produce as for dispatch.
func (s *Sink) offer(b *backlog, now time.Time) []*line {
	p := s.poolOf(b.target, now)
	if b.pool == p {
		return nil
	}
	l := s.lineFor(p, b, now)
	if l == nil {
		s.enqueue(b, now)
		return nil
	}
	s.depart(s.board(l, b), now)
	if l.producing {
		return nil
	}
	l.producing = true
	return []*line{l}
}

// dispatch lets depart to one Kafka broker what may. The caller, who holds mu, calls produce with the lines
// that are returned after it has let go of mu.
func (s *Sink) dispatch(p *pool, broker int32, now time.Time) (out []*line) {
	queue := p.queues[broker]
	if len(queue) == 0 || s.closed {
		return nil
	}
	var boarding []*flight
	kept := queue[:0]
	for _, b := range queue {
		if b.pool != p {
			continue
		}
		if l := s.lineFor(p, b, now); l != nil {
			boarding = append(boarding, s.board(l, b))
			if !l.producing {
				l.producing = true
				out = append(out, l)
			}
			continue
		}
		kept = append(kept, b)
	}
	clear(queue[len(kept):])
	p.queues[broker] = kept
	if len(kept) == 0 {
		delete(p.queues, broker)
	}
	for _, f := range boarding {
		s.depart(f, now)
	}
	return out
}

// lineFor returns the line that the backlog goes out with now, nil: it waits. The caller holds mu.
func (s *Sink) lineFor(p *pool, b *backlog, now time.Time) *line {
	if b.flight != nil {
		if l := b.flight.line; l.pool == p && !l.retired && b.flight.pipe != nil && b.flight.pipe.takes() {
			return l
		}
		return nil
	}
	usable := false
	var idle, shared *line
	for _, l := range p.lines {
		if l.forgot[b.target.topic] {
			continue
		}
		usable = true
		pipe := l.pipe(b.broker)
		switch {
		case pipe.rests():
		case p.coalesce:
			if pipe.takes() || p.fliesAlone(l, b) && !pipe.isOverdue() {
				return l
			}
			if !pipe.isOverdue() {
				return nil
			}
		case len(pipe.flights) == 0:
			if idle == nil || l.topics[b.target.topic] && !idle.topics[b.target.topic] {
				idle = l
			}
		case pipe.takesBeside(b.target):
			shared = l
		}
	}
	switch {
	case idle != nil:
		return idle
	case len(p.lines) < p.most:
	case usable:
		return shared // nil: it waits
	default:
		s.retire(p.lines[len(p.lines)-1]) // the first of the quick has what all others use
	}
	l, err := s.newLine(p)
	if err != nil {
		s.log.Error("cannot create another Kafka client", "error", err)
		return nil
	}
	return l
}

// fliesAlone reports whether the backlog neither waits for the pipe nor keeps others from it: its broker is
// not known, or the client that all use has yet to ask for the topic, which says nothing of how fast that is.
func (p *pool) fliesAlone(l *line, b *backlog) bool {
	return b.broker == noBroker || p.coalesce && l == p.lines[0] && !l.topics[b.target.topic]
}

// doubt has one backlog try first on each line of the pools, before all that wait for the Kafka broker follow.
func doubt(broker int32, pools ...*pool) {
	for _, p := range pools {
		for _, l := range p.lines {
			l.pipe(broker).proven = false
		}
	}
}
