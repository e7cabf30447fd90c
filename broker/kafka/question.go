package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// askAnother is how long one Kafka broker has for an answer that any can give before the next is asked too.
	askAnother = 100 * time.Millisecond
	// questionTimeout bounds the wait for the first answer.
	questionTimeout = 2 * time.Second
)

// questions asks what any Kafka broker can answer. franz-go chooses one and waits for it, though it may be
// frozen, and does not hear the context while it connects.
type questions struct {
	client *kgo.Client

	mu     sync.Mutex
	last   kgo.Broker              // the one that answered last
	silent map[kgo.Broker]struct{} // have not answered what they were asked last
}

// An answer is one Kafka broker's.
type answer struct {
	response kmsg.Response
	err      error
}

// ask returns the first answer of a Kafka broker. request makes the request anew for each.
func (q *questions) ask(ctx context.Context, request func() kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	brokers := q.inTurn()
	answers := make(chan answer, len(brokers))
	next := time.NewTimer(askAnother)
	defer next.Stop()
	asked := 0
	askNext := func() {
		if asked < len(brokers) {
			go q.put(ctx, brokers[asked], request(), answers)
			asked++
			next.Reset(askAnother)
		}
	}
	var failed error
	askNext()
	for failures := 0; failures < len(brokers); {
		select {
		case <-next.C:
			askNext()
		case a := <-answers:
			if a.err == nil {
				return a.response, nil
			}
			failures, failed = failures+1, a.err
			askNext()
		case <-ctx.Done():
			q.lookAround()
			return nil, ctx.Err()
		}
	}
	q.lookAround()
	return nil, failed
}

// lookAround has the client learn the Kafka brokers anew, from the configured ones if need be: those that it knows
// do not answer, and may have other addresses now. It does not wait for that.
func (q *questions) lookAround() { q.client.ForceMetadataRefresh() }

// put puts the question to one broker.
func (q *questions) put(ctx context.Context, to *kgo.Broker, request kmsg.Request, answers chan<- answer) {
	q.mu.Lock()
	q.silent[*to] = struct{}{}
	q.mu.Unlock()
	response, err := to.RetriableRequest(ctx, request)
	if err == nil {
		q.mu.Lock()
		delete(q.silent, *to)
		q.last = *to
		q.mu.Unlock()
	}
	answers <- answer{response, err}
}

// inTurn returns the brokers to ask: first who answered last, and last who did not answer.
func (q *questions) inTurn() []*kgo.Broker {
	brokers := q.client.DiscoveredBrokers()
	if len(brokers) == 0 {
		q.lookAround() // beside us: it may wait for a frozen one
		brokers = q.client.SeedBrokers()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	place := func(b *kgo.Broker) int {
		_, silent := q.silent[*b]
		switch {
		case silent:
			return 2
		case *b != q.last:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(brokers, func(a, b *kgo.Broker) int { return place(a) - place(b) })
	return brokers
}
