package reach

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// askAnother is how long the first Kafka broker has for an answer that any can give before the next is asked too. Each
	// further one has twice as long: the answer may be a large one, which need not be made by all of them.
	askAnother = 100 * time.Millisecond
	// askAgain is how often a broker that did not answer in time is asked again, beside one that did.
	askAgain = time.Second
	// askSilentTimeout bounds the wait for an answer that nobody needs.
	askSilentTimeout = 10 * time.Second
)

// Questions asks what any Kafka broker can answer, and is safe for concurrent use. franz-go chooses one and waits for
// it, though it may be frozen, and does not hear the context while it connects.
//
// The brokers take turns. One that is cut off from the others answers from the past, and whoever asks several times,
// because one answer proves nothing, must hear others as well.
type Questions struct {
	client  *kgo.Client
	cluster *Cluster

	mu     sync.Mutex
	turn   int
	silent map[kgo.Broker]time.Time // when those were asked that have not answered in time what they were asked last
	listed []string                 // the addresses of the brokers that Kafka listed last
}

// NewQuestions returns what asks with the client, which stays the caller's to close. No answer of another Kafka than
// the cluster's is taken.
func NewQuestions(client *kgo.Client, cluster *Cluster) *Questions {
	return &Questions{client: client, cluster: cluster, silent: make(map[kgo.Broker]time.Time)}
}

// An answer is one Kafka broker's.
type answer struct {
	response kmsg.Response
	err      error
}

// Ask returns the first answer of a Kafka broker. request makes the request anew for each. It blocks until then, or until
// all have failed or ctx ends.
func (q *Questions) Ask(ctx context.Context, request func() kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	brokers := q.inTurn()
	q.askSilent(brokers[len(brokers)-1])
	answers := make(chan answer, len(brokers))
	pause := askAnother
	next := time.NewTimer(pause)
	defer next.Stop()
	asked := 0
	askNext := func() {
		if asked < len(brokers) {
			go q.put(ctx, brokers[asked], request(), answers)
			asked++
			next.Reset(pause)
			pause *= 2
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
			if failed == nil {
				failed = ctx.Err()
			}
			return nil, failed
		}
	}
	q.lookAround()
	return nil, failed
}

// lookAround has the client learn the Kafka brokers anew, from the configured ones if need be: those that it knows
// do not answer, and may have other addresses now. It does not wait for that.
func (q *Questions) lookAround() { q.client.ForceMetadataRefresh() }

// askSilent asks a broker for nothing if it is silent, from time to time, to hear whether it still is.
func (q *Questions) askSilent(to *kgo.Broker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if asked, silent := q.silent[*to]; silent && time.Since(asked) >= askAgain {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), askSilentTimeout)
			defer cancel()
			q.put(ctx, to, forNothing(), make(chan answer, 1))
		}()
	}
}

// KeepOpen asks each Kafka broker once for nothing, so that no connection is closed for want of use. It blocks until all
// have answered or failed, or ctx ends.
func (q *Questions) KeepOpen(ctx context.Context) {
	var waiting sync.WaitGroup
	for _, to := range q.inTurn() {
		waiting.Go(func() {
			if response, err := to.Request(ctx, forNothing()); err == nil {
				_ = q.take(response) // another Kafka's is not needed
			}
		})
	}
	waiting.Wait()
}

// KeepOpen asks each Kafka broker that the client knows once for nothing, by each way that the client may take to it for what
// any can answer: franz-go takes those that it has learned of in turn, and between two rounds a configured one, each on a
// connection of its own. It blocks until all have answered or failed, or ctx ends.
func KeepOpen(ctx context.Context, client *kgo.Client) {
	var waiting sync.WaitGroup
	for _, to := range slices.Concat(client.DiscoveredBrokers(), client.SeedBrokers()) {
		waiting.Go(func() { _, _ = to.Request(ctx, forNothing()) })
	}
	waiting.Wait()
}

// Learn has the client learn which Kafka brokers there are. It blocks until one has told it, or ctx ends.
func Learn(ctx context.Context, client *kgo.Client) error {
	_, err := client.Request(ctx, forNothing())
	return err
}

// forNothing returns a question that each Kafka broker answers at once.
func forNothing() kmsg.Request {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // of none
	return request
}

// put puts the question to one broker.
func (q *Questions) put(ctx context.Context, to *kgo.Broker, request kmsg.Request, answers chan<- answer) {
	asked := time.Now()
	q.mu.Lock()
	q.silent[*to] = asked
	q.mu.Unlock()
	response, err := to.RetriableRequest(ctx, request)
	if err == nil && time.Since(asked) <= askAnother {
		q.mu.Lock()
		delete(q.silent, *to)
		q.mu.Unlock()
	}
	if err == nil {
		err = q.take(response)
	}
	answers <- answer{response, err}
}

// take notes which brokers there are, if the response tells, and has an error if it is another Kafka's.
func (q *Questions) take(response kmsg.Response) error {
	told, isMetadata := response.(*kmsg.MetadataResponse)
	if !isMetadata {
		return nil
	}
	if err := q.cluster.confirm(told.ClusterID); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listed = addressesOf(told.Brokers)
	return nil
}

// Listed returns the addresses of the Kafka brokers that were listed when one was last asked for topics. The caller does not
// change them.
func (q *Questions) Listed() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.listed
}

// inTurn returns the brokers to ask. Those that are silent come last, and the one of them that was asked longest ago
// at the very end.
func (q *Questions) inTurn() []*kgo.Broker {
	brokers := q.client.DiscoveredBrokers()
	if len(brokers) == 0 {
		q.lookAround() // beside us: it may wait for a frozen one
		brokers = q.client.SeedBrokers()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turn++
	first := q.turn % len(brokers)
	brokers = slices.Concat(brokers[first:], brokers[:first])
	slices.SortStableFunc(brokers, func(a, b *kgo.Broker) int {
		asked, silent := q.silent[*a]
		other, otherSilent := q.silent[*b]
		switch {
		case silent && otherSilent:
			return other.Compare(asked)
		case silent:
			return 1
		case otherSilent:
			return -1
		}
		return 0
	})
	return brokers
}
