package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// An answer is overdue after three times what is usual among the quick, within these bounds: more than
	// the hiccups of a Kafka in health, less than anybody notices. It is late after leastPatience more.
	leastPatience = 25 * time.Millisecond
	mostPatience  = 250 * time.Millisecond
	usualAtFirst  = 5 * time.Millisecond

	// inquireAfter is how long after it was late a flight is looked into: well before the publisher gives it up.
	inquireAfter = time.Second
)

// A pipe is a line's connection to one Kafka broker, which answers one request at a time. Behind the flight that
// it works on another may follow, so that it need not wait for us, if answers come in time.
type pipe struct {
	flights []*flight // in the order of departure
	prompt  bool      // the last answer came in time
	proven  bool      // has answered, and none was overdue since. If not, one backlog tries first
	kept    int       // flights alone without an answer for so long that nothing should follow them
	givenUp bool      // of what is owed, some whose records are given up: they keep the connection all the same

	owed        int       // requests with records that were written and not answered
	silentSince time.Time // when one was answered last, or the first of those that are owed was written if that was later
}

// rests reports whether what was given up keeps the connection.
func (p *pipe) rests() bool { return p.givenUp && p.owed > 0 }

func (p *pipe) isBoarding() bool {
	return len(p.flights) > 0 && p.flights[len(p.flights)-1].boarding
}

func (p *pipe) isOverdue() bool {
	return p.kept > 0 || len(p.flights) > 0 && p.flights[0].overdue
}

// isSilent reports whether the pipe owes an answer, and has given none since then.
func (p *pipe) isSilent(then time.Time) bool { return p.owed > 0 && p.silentSince.Before(then) }

// takes reports whether one more backlog may go out now.
func (p *pipe) takes() bool {
	switch {
	case p.kept > 0:
		return false
	case len(p.flights) == 0:
		return true
	case p.isBoarding():
		return p.proven
	}
	return len(p.flights) == 1 && p.prompt && !p.flights[0].overdue
}

// takesBeside reports whether one more slow or stuck target may join those that go out now.
func (p *pipe) takesBeside(t *target) bool {
	return p.isBoarding() && p.proven && p.flights[len(p.flights)-1].members[0].target.isLike(t)
}

// A flight is what a line sends to one Kafka broker at a time. Kafka answers one request of a connection
// after the other, so what would be sent behind it would wait as well; what waits here can go another way.
type flight struct {
	line     *line
	broker   int32
	pipe     *pipe // nil: it flies alone, and nobody waits for it
	members  []*member
	left     int       // sends without outcome
	since    time.Time // when Kafka began with it, as far as we know
	boarding bool
	overdue  bool
	judged   bool // its targets are among the slow
	beside   bool // its Kafka broker has answered something else since it was overdue
	timer    *time.Timer
}

// patience is how long an answer may take before it is overdue. The caller holds mu.
func (s *Sink) patience() time.Duration { return min(max(3*s.usual, leastPatience), mostPatience) }

// A member is a backlog on a flight.
type member struct {
	*backlog
	flight *flight
	left   int  // sends without outcome
	first  bool // nothing of the topic has got through on this line: no judgment on how fast it is
}

// board puts all that waits of the backlog on a flight of the line. The caller holds mu.
func (s *Sink) board(l *line, b *backlog, now time.Time) *flight {
	var f *flight
	pipe := l.pipe(b.broker)
	switch {
	case l.pool.fliesAlone(l, b):
		f = &flight{line: l, broker: b.broker, boarding: true}
		l.flights++
	case pipe.isBoarding():
		f = pipe.flights[len(pipe.flights)-1]
	default:
		f = &flight{line: l, broker: b.broker, pipe: pipe, boarding: true}
		pipe.flights = append(pipe.flights, f)
		l.flights++
	}
	l.used = now
	warm := l.topics[b.target.topic]
	l.topics[b.target.topic] = warm // it has flown now, warm or not
	m := &member{backlog: b, flight: f, left: len(b.waiting), first: !warm}
	f.members = append(f.members, m)
	f.left += m.left
	b.flight = f
	b.flying += m.left
	for _, issued := range b.waiting {
		issued.member = m
	}
	l.departed = append(l.departed, b.waiting...)
	b.waiting, b.pool = nil, nil
	return f
}

// closeBoarding closes the flight to others. The caller holds mu.
func (s *Sink) closeBoarding(f *flight, now time.Time) {
	if !f.boarding {
		return
	}
	f.boarding = false
	switch {
	case f.pipe == nil && f.broker != noBroker:
		f.timer = time.AfterFunc(2*s.patience(), func() { s.divert(f) }) // it asks for metadata first
	case f.pipe != nil && f.pipe.flights[0] == f:
		s.watch(f, now)
	}
}

// divert is called when a flight that nobody waits for has no answer yet. Nothing is said of its target, but what
// would be written behind it takes another line until it lands. The caller does not hold mu.
func (s *Sink) divert(f *flight) {
	s.mu.Lock()
	if f.left == 0 || s.closed {
		s.mu.Unlock()
		return
	}
	f.overdue = true
	f.timer = time.AfterFunc(inquireAfter, func() { s.inquire(f) })
	f.line.pipe(f.broker).kept++
	out := s.dispatchAll(f.broker, time.Now())
	s.mu.Unlock()
	s.produce(out)
}

// watch begins to wait for the flight's answer, when there is none before it. The caller holds mu.
func (s *Sink) watch(f *flight, now time.Time) {
	f.since = now
	f.timer = time.AfterFunc(s.patience(), func() { s.overtake(f) })
}

// overtake is called when the flight's answer is overdue. What waits takes another line.
func (s *Sink) overtake(f *flight) {
	s.mu.Lock()
	if f.left == 0 || s.closed {
		s.mu.Unlock()
		return
	}
	f.overdue = true
	f.timer = time.AfterFunc(leastPatience, func() { s.judge(f) })
	f.pipe.prompt = false
	if f.line.pool.coalesce {
		doubt(f.broker, s.quick[:]...) // it may be frozen: what is sent to it now would be written twice
	}
	out := s.dispatchAll(f.broker, time.Now())
	s.mu.Unlock()
	s.produce(out)
}

// judge is called when the answer is so late that others must not wait for one like it: the flight's targets are among the
// slow from now on.
func (s *Sink) judge(f *flight) {
	s.mu.Lock()
	if f.left == 0 || s.closed {
		s.mu.Unlock()
		return
	}
	now := time.Now()
	f.judged = true
	f.timer = time.AfterFunc(inquireAfter, func() { s.inquire(f) })
	for _, m := range f.members {
		if m.left > 0 && !m.first {
			m.target.strike(now)
			for _, b := range m.target.backlogs {
				s.enqueue(b, now)
			}
		}
	}
	out := s.dispatchAll(f.broker, now)
	s.mu.Unlock()
	s.produce(out)
}

// inquire is called when a flight is so late that it may be given up. Whether its Kafka broker answers somebody else who writes
// tells then who is to blame: see [standing].
func (s *Sink) inquire(f *flight) {
	s.mu.Lock()
	if f.left == 0 || f.broker == noBroker || s.closed {
		s.mu.Unlock()
		return
	}
	s.background.Go(func() {
		if err := writeNothing(s.ctx, s.asking.Broker(int(f.broker))); err == nil {
			s.mu.Lock()
			f.beside = true
			s.mu.Unlock()
		}
	})
	s.mu.Unlock()
}

// land notes that a send has an outcome, and returns the lines to call produce with. The caller holds mu.
func (s *Sink) land(issued *send, err error) (out []*line) {
	m := issued.member
	b, f := m.backlog, m.flight
	if err == nil && m.first && !f.line.forgot[b.target.topic] {
		f.line.topics[b.target.topic] = true
	}
	if _, answered := errors.AsType[*kerr.Error](err); f.pipe != nil && (err == nil || answered) {
		f.pipe.proven = true
	}
	s.noteID(f.line, err)
	m.left--
	f.left--
	if b.flying--; b.flying > 0 && f.left > 0 {
		return nil // as most do: nothing has landed as a whole
	}
	now := time.Now()
	if b.flying == 0 {
		b.flight = nil
		s.enqueue(b, now)
	}
	if f.left > 0 {
		if b.flying == 0 && f.overdue {
			return s.dispatchAll(f.broker, now)
		}
		return nil
	}
	f.line.flights--
	switch {
	case f.pipe != nil:
		s.clear(f, now)
	case f.timer != nil:
		f.timer.Stop()
		if f.overdue {
			f.line.pipe(f.broker).kept--
		}
	}
	s.closeRetired(f.line)
	return s.dispatchAll(f.broker, now)
}

// clear takes a flight that has landed off its pipe. The caller holds mu.
func (s *Sink) clear(f *flight, now time.Time) {
	p := f.pipe
	i := slices.Index(p.flights, f)
	p.flights = slices.Delete(p.flights, i, i+1)
	if f.timer == nil {
		return // it was not its turn
	}
	f.timer.Stop()
	p.prompt = !f.overdue
	if f.judged {
		for _, m := range f.members {
			if !m.first {
				m.target.slowness = max(now.Sub(f.since), m.target.slowness*3/4)
			}
		}
	}
	if f.line.pool.coalesce {
		s.measure(now.Sub(f.since))
	}
	if i == 0 && len(p.flights) > 0 && !p.flights[0].boarding {
		p.flights[0].beside = f.beside // what was given up is in its way
		s.watch(p.flights[0], now)
	}
}

// measure keeps usual at what about nine of ten answers do not exceed.
func (s *Sink) measure(took time.Duration) {
	if took > s.usual {
		s.usual += s.usual / 8
	} else {
		s.usual -= s.usual / 64
	}
	s.usual = min(max(s.usual, time.Millisecond), mostPatience)
}

// dispatchAll is dispatch for every pool. The caller holds mu.
func (s *Sink) dispatchAll(broker int32, now time.Time) (out []*line) {
	for _, p := range s.pools {
		out = append(out, s.dispatch(p, broker, now)...)
	}
	return out
}

// recall takes back what of the backlog has departed, as far as it is of that kind and the client has not got it. It lands,
// since nothing else will be heard of it. The caller holds mu, and calls produce with the lines that are returned.
func (s *Sink) recall(b *backlog, of func(*send) bool, err error) (recalled []*send, out []*line) {
	if b.flight == nil {
		return nil, nil
	}
	l := b.flight.line // nothing of a backlog flies with two lines
	l.departed = slices.DeleteFunc(l.departed, func(issued *send) bool {
		if issued.backlog != b || !of(issued) {
			return false
		}
		recalled = append(recalled, issued)
		return true
	})
	for _, issued := range recalled {
		out = append(out, s.land(issued, err)...)
	}
	return recalled, out
}

// standingOf returns what is to be thought of a target that is given up now. The caller holds mu.
func (s *Sink) standingOf(t *target) standing {
	for _, b := range t.backlogs {
		switch f := b.flight; {
		case f == nil:
		case f.beside || f.pipe != nil && f.pipe.flights[0].beside || f.line.pool == s.stuck:
			return suspect
		}
	}
	return stuck
}

// giveUp has the clients forget a backlog that is on its way. Its answer may still keep the connection.
// The caller holds mu.
func (s *Sink) giveUp(b *backlog) {
	f := b.flight
	s.forget(f.line, b.target.topic)
	if f.pipe != nil {
		doubt(f.broker, f.line.pool)
		f.pipe.givenUp = true
	}
}

// debts hears from franz-go what Kafka owes a line: what was written and not answered keeps the connection, also
// when its records were given up. franz-go cuts the connection after produceTimeout and the 5 s that reach gives an
// answer, and tells that as an answer to each request.
type debts struct {
	sink *Sink
	line *line
}

// OnBrokerWrite hears that a request, or some of it, was written.
func (d debts) OnBrokerWrite(broker kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, _ error) {
	if kmsg.Key(key) == kmsg.Produce && bytes > 0 {
		d.sink.mu.Lock()
		defer d.sink.mu.Unlock()
		p := d.line.pipe(broker.NodeID)
		if p.owed == 0 {
			p.silentSince = time.Now()
		}
		p.owed++
	}
}

// OnBrokerE2E hears that a request was answered, or that it will not be. Of one that waited to be written and was given
// up meanwhile it is all that is heard.
func (d debts) OnBrokerE2E(broker kgo.BrokerMetadata, key int16, request kgo.BrokerE2E) {
	if kmsg.Key(key) == kmsg.Produce && request.BytesWritten > 0 {
		d.sink.paid(d.line, broker.NodeID)
	}
}

// paid has what waits for a Kafka broker depart when what was given up does not keep the connection any more.
func (s *Sink) paid(l *line, broker int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := l.pipe(broker)
	p.silentSince = time.Now()
	if p.owed--; p.owed > 0 || !p.givenUp {
		return
	}
	p.givenUp = false
	if out := s.dispatchAll(broker, time.Now()); len(out) > 0 && !s.closed {
		s.background.Go(func() { s.produce(out) }) // beside us: franz-go reads the next answer when we return
	}
}
