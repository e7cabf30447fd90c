package kafka

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// tendEvery is below half of the 9 minutes after which franz-go closes a connection, so that it is used in time.
	tendEvery = 4 * time.Minute
	// spareIdle is how long a line that is not the first of the quick is kept without a flight.
	spareIdle = 10 * time.Minute
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
		}
	}
}

// letGo retires lines that are not used, and forgets targets that the Sink knows nothing of that matters. It
// returns the Kafka brokers to which the quick have connections.
func (s *Sink) letGo(now time.Time) (open []*kgo.Broker) {
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
	for _, p := range s.quick {
		if len(p.lines) == 0 {
			continue
		}
		first := p.lines[0]
		for broker, pipe := range first.pipes {
			if pipe.proven && len(pipe.flights) == 0 {
				open = append(open, first.client.Broker(int(broker)))
			}
		}
	}
	return open
}

// keepOpen uses the connections to Kafka brokers once, for nothing.
func (s *Sink) keepOpen(producing []*kgo.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), tendTimeout)
	defer cancel()
	var waiting sync.WaitGroup
	for _, to := range producing {
		waiting.Go(func() { _ = writeNothing(ctx, to) })
	}
	waiting.Go(func() { s.questions.KeepOpen(ctx) })
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
