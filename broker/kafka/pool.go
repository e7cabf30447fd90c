package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// A pool is the lines of one class of targets, and what waits for them.
//
//	quick   answers come in time. All fly with the first line while that is in time: one request takes them all.
//	        There are several such pools, each with its share of the quick
//	slow    an answer was late not long ago. Each takes a line that is free, and when there is none shares a flight with
//	        targets that are as slow
//	stuck   given up by Isolate, as was all else of its Kafka broker; nothing has got through since
//	suspect given up by Isolate, though its Kafka broker answered others; nothing has got through since. Each flies alone
type pool struct {
	most     int  // lines; more only while retired ones have flights
	coalesce bool // of the quick: wait for a line that is in time, though another is free
	gathers  bool // a client gathers a flight before it sends, so that it is one request
	alone    bool // a flight takes one target
	lines    []*line
	queues   map[int32][]*backlog // by Kafka broker, in the order of arrival

	spare     *line // the next one
	preparing bool  // a spare
}

// newPool returns an empty pool of that manner.
func newPool(manner pool) *pool {
	manner.queues = make(map[int32][]*backlog)
	return &manner
}

// poolOf returns the pool whose lines the target's records take. The caller holds mu.
func (s *Sink) poolOf(t *target, now time.Time) *pool {
	switch {
	case t.standing == suspect:
		return s.suspect
	case t.standing == stuck:
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

// dispatch lets depart to one Kafka broker what may. The caller, who holds mu, calls produce with the lines
// that are returned after it has let go of mu.
func (s *Sink) dispatch(p *pool, broker int32, now time.Time) (out []*line) {
	queue := p.queues[broker]
	if len(queue) == 0 || s.closed {
		return nil
	}
	var boarding []*flight
	kept := queue[:0]
	for i, b := range queue {
		if b.pool != p {
			continue
		}
		if l := s.lineFor(p, b, now); l != nil {
			boarding = append(boarding, s.board(l, b, now))
			if !l.producing {
				l.producing = true
				out = append(out, l)
			}
			continue
		}
		if kept = append(kept, b); p.alone && b.flight == nil {
			kept = append(kept, queue[i+1:]...) // no line is free, and thousands may wait
			break
		}
	}
	clear(queue[len(kept):])
	p.queues[broker] = kept
	if len(kept) == 0 {
		delete(p.queues, broker)
	}
	for _, f := range boarding {
		s.closeBoarding(f, now)
	}
	return out
}

// lineFor returns the line that the backlog goes out with now, nil: it waits. The caller holds mu.
func (s *Sink) lineFor(p *pool, b *backlog, now time.Time) *line {
	if p.alone {
		return s.lineAlone(p, b)
	}
	if b.flight != nil {
		if l := b.flight.line; l.pool == p && !l.retired && b.flight.pipe != nil && b.flight.pipe.takes() {
			return l
		}
		return nil
	}
	if p.coalesce {
		return s.lineOfQuick(p, b, now)
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
	case shared != nil && len(p.lines) == p.most:
		return shared
	}
	return s.furtherLine(p, usable)
}

// lineOfQuick returns the first line whose answers come in time, nil: the backlog waits for one. What is new to the pool takes
// another as soon as one is silent, but for the last, which is for what is known. The caller holds mu.
func (s *Sink) lineOfQuick(p *pool, b *backlog, now time.Time) *line {
	usable := false
	var silent *line // and not overdue
	for i, l := range p.lines {
		if l.forgot[b.target.topic] {
			continue
		}
		usable = true
		pipe := l.pipe(b.broker)
		switch {
		case pipe.rests():
		case p.fliesAlone(l, b):
			switch {
			case pipe.isOverdue() || silent != nil && i == p.most-1:
			case !pipe.isSilent(now.Add(-s.patience() / 2)):
				return l
			case silent == nil:
				silent = l
			}
		case pipe.takes():
			return l
		case !pipe.isOverdue():
			return nil
		}
	}
	if silent != nil && len(p.lines) >= p.most-1 {
		return silent
	}
	return s.furtherLine(p, usable)
}

// furtherLine returns a new line if the pool may have one more, or none of those it has is usable; else nil. The caller holds mu.
func (s *Sink) furtherLine(p *pool, usable bool) *line {
	switch {
	case len(p.lines) < p.most:
	case usable:
		return nil
	default:
		s.retire(p.lines[len(p.lines)-1]) // the first of the quick has what all others use
	}
	return s.newLine(p, len(p.lines))
}

// lineAlone returns a line whose connection nobody uses, nil: the backlog waits. A line that was made to forget the topic gives
// its place to a new one. The caller holds mu.
func (s *Sink) lineAlone(p *pool, b *backlog) *line {
	if b.flight != nil {
		return nil
	}
	var forgetful *line
	for _, l := range p.lines {
		switch pipe := l.pipe(b.broker); {
		case pipe.rests() || len(pipe.flights) > 0:
		case !l.forgot[b.target.topic]:
			return l
		default:
			forgetful = l
		}
	}
	switch {
	case len(p.lines) < p.most:
	case forgetful != nil:
		s.retire(forgetful)
	default:
		return nil
	}
	return s.newLine(p, len(p.lines))
}

// fliesAlone reports whether the backlog neither waits for the pipe nor keeps others from it: its broker is
// not known, or the topic is new to the pool and the client has yet to ask for it, which says nothing of how fast that is. If
// those went one at a time, two that are slow would keep two lines from all others.
func (p *pool) fliesAlone(l *line, b *backlog) bool {
	topic := b.target.topic
	return b.broker == noBroker || p.coalesce && !l.topics[topic] && !p.lines[0].topics[topic]
}

// doubt has one backlog try first on each line of the pools, before all that wait for the Kafka broker follow.
func doubt(broker int32, pools ...*pool) {
	for _, p := range pools {
		for _, l := range p.lines {
			l.pipe(broker).proven = false
		}
	}
}

// noBroker stands for the leader of a partition that is not known.
const noBroker int32 = -1

// A line is a Kafka client that flights go out with, one connection for each Kafka broker.
//
// A topic that franz-go has forgotten must not come back. It would begin the topic's sequence numbers anew,
// at times under the same producer epoch; Kafka would then take new records for repeats of old ones, and
// acknowledge without writing them. Another client has another producer id.
type line struct {
	client  *kgo.Client
	pool    *pool
	pipes   map[int32]*pipe // by Kafka broker
	topics  map[string]bool // topics that flew; true: something of it got through
	forgot  map[string]bool // topics that the client was made to forget
	flights int             // without outcome
	used    time.Time       // when it was boarded last
	retired bool            // takes no more flights, and is closed when there are none
	hasID   bool            // its client has a producer id
	denied  bool            // Kafka has denied its client one, which franz-go keeps for good
	asking  bool            // its client, whether it has one

	departed  []*send // the client has not got them yet, in order
	producing bool    // a goroutine hands them to the client
}

// newLine adds a line to the pool, in that place: its spare if there is one. It returns nil when none can be made. The caller
// holds mu.
func (s *Sink) newLine(p *pool, place int) *line {
	l := p.spare
	p.spare = nil
	if l == nil {
		var err error
		if l, err = s.makeLine(p); err != nil {
			s.log.Error("cannot create another Kafka client", "error", err)
			return nil
		}
	}
	s.enter(l, place)
	return l
}

// enter adds the line to its pool, in that place. The caller holds mu.
func (s *Sink) enter(l *line, place int) {
	l.pool.lines = slices.Insert(l.pool.lines, place, l)
	s.open[l] = struct{}{}
	for _, p := range s.pools {
		s.prepare(p)
	}
}

// letGo has the client send what it gathers, and does not wait for the answers.
func (l *line) letGo() {
	ctx, over := context.WithCancel(context.Background())
	over()
	_ = l.client.Flush(ctx) // it says that there are no answers yet
}

// makeLine makes a line for the pool. The caller holds mu: franz-go edits the options' list of codecs in place.
func (s *Sink) makeLine(p *pool) (*line, error) {
	l := &line{
		pool:   p,
		pipes:  make(map[int32]*pipe),
		topics: make(map[string]bool),
		forgot: make(map[string]bool),
	}
	var linger time.Duration
	if p.gathers {
		linger = gatherFor
	}
	var err error
	l.client, err = kgo.NewClient(append(s.options[:len(s.options):len(s.options)],
		kgo.SeedBrokers(s.hearing.Seeds(s.brokers)...), kgo.ProducerLinger(linger), kgo.WithHooks(debts{s, l}))...)
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return l, nil
}

// prepare makes the pool's next line, its client with a producer id. A line is wanted when a Kafka broker does
// not answer in time; if that is the controller, none of the others may have an id to give before Kafka has a new one.
// The caller holds mu.
func (s *Sink) prepare(p *pool) {
	if p.spare != nil || p.preparing || s.closed {
		return
	}
	p.preparing = true
	s.background.Go(func() {
		l := s.lineWithID(p)
		s.mu.Lock()
		defer s.mu.Unlock()
		p.preparing = false
		if l != nil && s.closed {
			s.background.Go(l.client.Close)
			return
		}
		p.spare = l
		for _, denied := range slices.Clone(p.lines) {
			s.replaceDenied(denied)
		}
	})
}

// lineWithID returns a line whose client has its producer id and knows the Kafka brokers, nil when the sink is closed before.
// Without an id a client may be of no use for good, if Kafka denied it one; one that knows no more than the configured
// brokers is of none while these are away.
func (s *Sink) lineWithID(p *pool) *line {
	var l *line
	ready := s.untilDone(func() (err error) {
		s.mu.Lock()
		l, err = s.makeLine(p)
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if _, _, err = l.client.ProducerID(s.ctx); err == nil {
			err = reach.Learn(s.ctx, l.client)
		}
		if err != nil {
			l.client.Close()
		}
		return err
	})
	if !ready {
		return nil
	}
	l.hasID = true
	return l
}

// noteID learns from the outcome of a record whether the line's client has a producer id. Whatever error Kafka has for the one
// that asks for it franz-go keeps, unless it is one that trying again may change: then all that the client takes fails with
// that error for as long as it lives. What fails so may as well have been refused itself, so the client is asked, which says at
// once what it has kept. The caller holds mu.
func (s *Sink) noteID(l *line, err error) {
	if err == nil {
		l.hasID = true
		return
	}
	if !isLasting(err) || l.asking || l.retired || s.closed {
		return
	}
	l.asking = true
	s.background.Go(func() {
		_, _, err := l.client.ProducerID(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		l.asking, l.hasID, l.denied = false, err == nil, isLasting(err)
		s.replaceDenied(l)
	})
}

// isLasting reports whether it is an error of Kafka's that trying again does not change.
func isLasting(err error) bool {
	answer, answered := errors.AsType[*kerr.Error](err)
	return answered && !answer.Retriable
}

// replaceDenied has the pool's spare take the place of a line that Kafka has denied a producer id. Until Kafka gives one to the
// spare, another line would be denied as well, and cost a client for each try of each target. The caller holds mu.
func (s *Sink) replaceDenied(l *line) {
	if l.denied && !l.retired && !s.closed && l.pool.spare != nil {
		place := slices.Index(l.pool.lines, l)
		s.retire(l)
		s.newLine(l.pool, place)
	}
}

func (l *line) pipe(broker int32) *pipe {
	p := l.pipes[broker]
	if p == nil {
		p = new(pipe)
		l.pipes[broker] = p
	}
	return p
}

// forget makes the line's client forget the topic: records of it that are buffered there fail, and what was
// written is not written again. The caller holds mu.
func (s *Sink) forget(l *line, topic string) {
	delete(l.topics, topic)
	l.forgot[topic] = true
	s.background.Go(func() { l.client.PurgeTopicsFromProducing(topic) })
}

// forgetStale has all clients forget a topic of which they have a wrong idea, as soon as nothing of it is
// outstanding. The caller holds mu.
func (s *Sink) forgetStale(t *target) {
	if !t.stale || t.outstanding.len > 0 {
		return
	}
	t.stale = false
	s.forgetOnAll(t.topic)
}

// forgetOnAll has all clients that know the topic forget it. The caller holds mu.
func (s *Sink) forgetOnAll(topic string) {
	for _, p := range s.pools {
		for _, l := range p.lines {
			if _, ok := l.topics[topic]; ok {
				s.forget(l, topic)
			}
		}
	}
}

// retire takes the line out of its pool. The caller holds mu.
func (s *Sink) retire(l *line) {
	p := l.pool
	p.lines = slices.DeleteFunc(p.lines, func(other *line) bool { return other == l })
	l.retired = true
	s.closeRetired(l)
}

// closeRetired closes a retired line's client when nothing flies with it. The caller holds mu.
func (s *Sink) closeRetired(l *line) {
	if _, open := s.open[l]; open && l.retired && l.flights == 0 {
		delete(s.open, l)
		s.background.Go(l.client.Close)
	}
}
