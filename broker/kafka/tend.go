package kafka

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/kafka/reach"
)

const (
	// tendEvery is below half of the 9 minutes after which franz-go closes a connection, so that it is used in time.
	tendEvery = 4 * time.Minute
	// spareIdle is how long a line that is not the first of the quick is kept without a flight.
	spareIdle = 10 * time.Minute
	// forgetAfter is when a target is forgotten whatever is known of it.
	forgetAfter = 24 * time.Hour
	// mostUnused is how many names are known besides those of targets, and once more as many as there are targets. A client of
	// franz-go forgets no topic by itself, and asks for all that it knows every 5 minutes.
	mostUnused = 1000
	// tendTimeout bounds the wait for an answer that nobody needs.
	tendTimeout = 10 * time.Second
)

// tend keeps the connections open that the next record needs, and lets go of what is not used any more.
func (s *Sink) tend() {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-ticker.C:
			s.keepOpen(s.letGo(now))
			s.forgetGone()
		}
	}
}

// warm opens the connections that the first record needs, which would else wait for them: those of the quick pools' first
// lines, and those for questions. Spares are made as soon as Kafka gives producer ids.
func (s *Sink) warm() {
	for _, p := range s.quick {
		s.background.Go(func() {
			if l := s.lineWithID(p); l != nil {
				keepOpen(s.ctx, s.makeFirst(l))
			}
		})
	}
	s.untilDone(func() error { return reach.Learn(s.ctx, s.asking) })
	s.questions.KeepOpen(s.ctx)
}

// makeFirst puts a line that has its producer id before those of its quick pool, unless a record was earlier and has made one
// that works, and returns the client of the first line. A client that Kafka has denied an id never asks again, so a line of
// such a one gives way. A line is not in the pool before it has its id: a record would ask for one as well, and in franz-go
// one waits for the other's answer behind a lock.
func (s *Sink) makeFirst(l *line) *kgo.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := l.pool
	switch {
	case s.closed:
		s.background.Go(l.client.Close)
		return l.client
	case len(p.lines) > 0 && !p.lines[0].denied:
		s.background.Go(l.client.Close)
		return p.lines[0].client
	case len(p.lines) > 0:
		s.retire(p.lines[0])
	}
	s.enter(l, 0)
	return l.client
}

// firsts returns the clients of the quick pools' first lines. The caller holds mu.
func (s *Sink) firsts() (clients []*kgo.Client) {
	for _, p := range s.quick {
		if len(p.lines) > 0 {
			clients = append(clients, p.lines[0].client)
		}
	}
	return clients
}

// untilDone tries until there is no error, ever more rarely, and reports whether it came to that before the sink was closed.
func (s *Sink) untilDone(try func() error) bool {
	for pause := time.Second; s.ctx.Err() == nil; pause = min(2*pause, tendEvery) {
		err := try()
		if err == nil {
			return true
		}
		s.log.Debug("cannot make a Kafka client ready, trying on", "error", err)
		select {
		case <-s.ctx.Done():
		case <-time.After(pause):
		}
	}
	return false
}

// letGo retires lines that are not used, and forgets targets that the Sink knows nothing of that matters. It
// returns the clients whose connections are kept open.
func (s *Sink) letGo(now time.Time) []*kgo.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	for _, p := range s.pools {
		for _, l := range slices.Clone(p.lines) {
			if (!p.coalesce || l != p.lines[0]) && l.flights == 0 && now.Sub(l.used) > spareIdle {
				s.retire(l)
			}
		}
	}
	maps.DeleteFunc(s.targets, func(_ string, t *target) bool { return t.isForgettable(now) })
	most := mostUnused + 2*len(s.targets)
	for _, p := range s.pools {
		for _, l := range slices.Clone(p.lines) {
			if len(l.topics)+len(l.forgot) > most {
				s.renew(l)
			}
		}
	}
	s.limits.forget(most, s.isKnown)
	return s.firsts()
}

// forgetGone has the clients forget topics that are gone and that nothing was sent to since, which would have told: each client
// that had met one would ask for it every 50 ms for as long as it lives.
func (s *Sink) forgetGone() {
	quiet := s.quietTopics()
	if len(quiet) == 0 {
		return
	}
	answers, err := s.describe(s.ctx, quiet)
	if err != nil {
		return // it is asked again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, topic := range quiet {
		answer := answers[topic]
		if answer == nil || answer.ErrorCode == 0 || !s.isQuiet(topic) {
			continue
		}
		if staysWrong(kerr.ErrorForCode(answer.ErrorCode)) {
			s.forgetOnAll(topic)
		}
	}
}

// quietTopics returns the topics that a client knows and nothing is on its way to.
func (s *Sink) quietTopics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	quiet := make(map[string]bool)
	for _, p := range s.pools {
		for _, l := range p.lines {
			for topic := range l.topics {
				if s.isQuiet(topic) {
					quiet[topic] = true
				}
			}
		}
	}
	return slices.Collect(maps.Keys(quiet))
}

// isQuiet reports whether nothing is on its way to the topic. The caller holds mu.
func (s *Sink) isQuiet(topic string) bool {
	t := s.targets[topic]
	return t == nil || t.outstanding.len == 0
}

// renew puts another line, which knows no names, in the place of one. The caller holds mu.
func (s *Sink) renew(l *line) {
	p := l.pool
	first := l == p.lines[0]
	s.retire(l)
	if p.coalesce && first {
		s.newLine(p, 0) // any other is made when it is needed
	}
}

// isKnown reports whether the topic is a target's, or a client has met it and keeps the limit that it had then. The caller
// holds mu.
func (s *Sink) isKnown(topic string) bool {
	if s.targets[topic] != nil {
		return true
	}
	for l := range s.open {
		if _, flew := l.topics[topic]; flew {
			return true
		}
	}
	return false
}

// keepOpen uses the connections of the clients, and those for questions, once for nothing.
func (s *Sink) keepOpen(clients []*kgo.Client) {
	ctx, cancel := context.WithTimeout(s.ctx, tendTimeout)
	defer cancel()
	var waiting sync.WaitGroup
	for _, client := range clients {
		waiting.Go(func() { keepOpen(ctx, client) })
	}
	waiting.Go(func() { s.questions.KeepOpen(ctx) })
	waiting.Wait()
}

// keepOpen uses the connections of a client that writes once for nothing, and opens those that are not. It blocks until all
// Kafka brokers have answered or failed, or ctx ends.
func keepOpen(ctx context.Context, client *kgo.Client) {
	if len(client.DiscoveredBrokers()) == 0 && reach.Learn(ctx, client) != nil {
		return
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { reach.KeepOpen(ctx, client) })
	for _, to := range client.DiscoveredBrokers() {
		waiting.Go(func() { _ = writeNothing(ctx, to) })
	}
	waiting.Wait()
}

// writeNothing asks the Kafka broker to write nothing, and returns when it has answered. It takes the connection that the client's
// records take: a request of another kind would take another one.
func writeNothing(ctx context.Context, to *kgo.Broker) error {
	request := kmsg.NewPtrProduceRequest()
	request.Acks = -1
	request.TimeoutMillis = int32(produceTimeout.Milliseconds())
	_, err := to.Request(ctx, request)
	return err
}
