package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/broker/message"
)

const (
	// recordTimeout is when a record that Kafka has not taken fails, if it is certain that Kafka has not.
	recordTimeout = 2 * time.Second
	// produceTimeout is what Kafka may spend on replicating one request, which all targets on the connection wait for.
	produceTimeout = 2 * time.Second
	// unknownTopicRetries: a topic that was just created may be unknown to some brokers.
	unknownTopicRetries = 4
	// maxBufferedRecords is no bound of ours: the publisher has its own, which is lower.
	maxBufferedRecords = 1 << 20

	// sinkMetadataMaxAge: leaders that moved are learned from errors, added partitions by asking.
	sinkMetadataMaxAge = 5 * time.Minute

	// quickPools is the number of connections to a Kafka broker that quick targets are dealt out to. Up to
	// that many targets share none: whatever shares one with a target that turns slow waits for its first
	// slow answer.
	quickPools = 4
	// How many clients of franz-go a pool has at most. A quick pool uses one until an answer is overdue.
	quickLines   = 3
	slowLines    = 4
	stuckLines   = 2
	suspectLines = 4
	// gatherFor bounds how long a client of any but the quick gathers what flies together. It makes one
	// request of that, since each further one would cost a slow answer, and is told when it has all.
	gatherFor = 5 * time.Millisecond
)

var _ deliver.Sink = (*Sink)(nil)

// A Sink writes target topics: idempotent, acknowledged by all in-sync replicas, at once. All methods are
// safe for concurrent use.
//
// Kafka answers one request of a connection after the other, so a target whose answers take long would delay
// all that share the connection. So a connection gets one flight at a time, and what waits can still take
// another one. Which targets share one depends on how long their answers took:
//
//	Send --> backlog --> a quick pool --> line, line, ..    a line is a client of franz-go
//	         of target   slow pool    --> line, line, ..
//	         and broker  stuck pool   --> line, line, ..
//	                     suspect pool --> line, line, ..
//
// franz-go does not give up a record that was sent and not answered, and holds back what follows it in
// that partition. So a topic that is given up leaves its lines, and goes on with others.
type Sink struct {
	reach   reach.Config
	options []kgo.Opt
	brokers []string // that are configured
	limits  *limits
	log     *slog.Logger

	hearing    *reach.Hearing   // of all clients
	asking     *kgo.Client      // for all that is not a record
	questions  *reach.Questions // put with asking
	ctx        context.Context  // ends with Close
	end        context.CancelFunc
	background sync.WaitGroup // calls of done, spares, and closing, which may block for a while
	sends      sync.Pool      // of *send: those that Kafka has taken, to be used again

	mu      sync.Mutex // guards all below, with all that hangs on it
	closed  bool
	targets map[string]*target
	open    map[*line]struct{} // lines that are not closed, retired ones too
	usual   time.Duration      // how long an answer in the quick pool usually takes

	quick                [quickPools]*pool
	slow, stuck, suspect *pool
	pools                []*pool // all of them
	dealt                int     // targets that have been given a quick pool
}

// NewSink returns a Sink at once. It opens connections meanwhile, so that the first record waits for none.
func NewSink(c reach.Config) (*Sink, error) {
	log := c.Logger.With("component", "sink")
	options, hearing, err := c.Heard(log)
	if err != nil {
		return nil, err
	}
	limits := newLimits()
	options = append(options,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(recordTimeout),
		kgo.ProduceRequestTimeout(produceTimeout),
		kgo.UnknownTopicRetries(unknownTopicRetries),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		kgo.MetadataMaxAge(sinkMetadataMaxAge),
		kgo.ProducerBatchMaxBytesFn(limits.batchBytes),
	)
	asking, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	s := &Sink{
		reach:     c,
		options:   options,
		brokers:   c.Kafka.Brokers,
		limits:    limits,
		log:       log,
		hearing:   hearing,
		asking:    asking,
		questions: reach.NewQuestions(asking, c.Cluster),
		targets:   make(map[string]*target),
		open:      make(map[*line]struct{}),
		usual:     usualAtFirst,
		slow:      newPool(pool{most: slowLines, gathers: true}),
		stuck:     newPool(pool{most: stuckLines, gathers: true}),
		suspect:   newPool(pool{most: suspectLines, gathers: true, alone: true}),
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	for i := range s.quick {
		s.quick[i] = newPool(pool{most: quickLines, coalesce: true})
	}
	s.pools = append(s.quick[:], s.slow, s.stuck, s.suspect)
	s.background.Go(s.warm)
	s.background.Go(s.tend)
	return s, nil
}

// Send hands one record to Kafka and returns at once; see [deliver.Sink].
func (s *Sink) Send(d deliver.Delivery, done func(deliver.Receipt, error)) {
	issued := s.newSend()
	issued.series, issued.done = d.Series, done
	issued.record = kgo.Record{
		Topic:     d.Topic,
		Partition: d.Partition,
		Key:       d.Key,
		Value:     d.Value,
		Headers:   appendKafkaHeaders(issued.headers[:0], d.Headers),
	}
	now := time.Now()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		go done(deliver.Receipt{}, abandoned(d.Topic))
		return
	}
	if failed := issued.failed(); failed != nil {
		s.mu.Unlock()
		go done(deliver.Receipt{}, failed)
		return
	}
	t := s.target(d.Topic, now)
	b := t.backlog(d.Partition)
	issued.backlog = b
	t.outstanding.add(issued)
	b.waiting = append(b.waiting, issued)
	out := s.offer(b, now)
	s.mu.Unlock()
	s.produce(out)
}

// offer lets the backlog, which has got a record, depart if a line takes it (lineFor): board puts what waits into the line's
// departed. Else it has it wait, until an answer or a timer calls dispatch. What waits already is not tried again,
// nor are the others. The caller, who holds mu, calls produce with the lines that are returned after it has let go of mu.
func (s *Sink) offer(b *backlog, now time.Time) []*line {
	p := s.poolOf(b.target, now)
	if b.pool == p {
		return nil // it waits there already
	}
	l := s.lineFor(p, b, now)
	if l == nil {
		s.enqueue(b, now)
		return nil
	}
	s.closeBoarding(s.board(l, b, now), now)
	if l.producing {
		return nil
	}
	l.producing = true
	return []*line{l}
}

// produce hands to the lines' clients what has departed, and what departs meanwhile. offer and dispatch name each line to
// one goroutine at a time: with two of them, what departed later could be the first that the client gets.
//
// A record is taken off its line as it is handed over and not before, so that whoever learns that one before it
// has failed can still recall it. The lines take turns.
func (s *Sink) produce(out []*line) {
	for turn := 0; len(out) > 0; turn++ {
		at := turn % len(out)
		l := out[at]
		issued, last := s.nextDeparted(l)
		if issued == nil {
			out = slices.Delete(out, at, at+1)
			continue
		}
		l.client.TryProduce(context.Background(), &issued.record, issued.settle)
		if last && l.pool.gathers {
			l.letGo()
		}
	}
}

// nextDeparted takes the next record off the line, and says whether it is the last for now. It returns nil when there is
// none: then nobody produces for the line any more.
func (s *Sink) nextDeparted(l *line) (issued *send, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.departed) == 0 {
		l.departed, l.producing = nil, false
		return nil, true
	}
	issued, l.departed[0] = l.departed[0], nil
	l.departed = l.departed[1:]
	return issued, len(l.departed) == 0
}

// settle resolves the send with Kafka's outcome, unless it was abandoned before.
func (s *Sink) settle(issued *send, err error) {
	t := issued.backlog.target
	s.mu.Lock()
	ours := t.outstanding.remove(issued)
	failure := issued.member.flight.line.classify(t.topic, err)
	var behind []*send
	var out []*line
	if ours {
		t.learn(err)
		if err != nil {
			issued.fail(failure)
			behind, out = s.failBehind(issued, err)
		}
		s.forgetStale(t)
	}
	out = append(out, s.land(issued, err)...)
	if len(out) > 0 && !s.closed {
		s.background.Go(func() { s.produce(out) }) // beside us: franz-go tells one outcome after the other
	}
	s.mu.Unlock()
	if ours {
		issued.done(receipt(&issued.record, err), failure)
	}
	for _, other := range behind {
		other.done(deliver.Receipt{}, failure)
	}
	if ours && err == nil {
		*issued = send{settle: issued.settle} // nobody has it any more: it has landed, and franz-go is through with the record
		s.sends.Put(issued)
	}
}

// newSend returns a send without a record.
func (s *Sink) newSend() *send {
	if used, ok := s.sends.Get().(*send); ok {
		return used
	}
	issued := new(send)
	issued.settle = func(_ *kgo.Record, err error) { s.settle(issued, err) }
	return issued
}

// receipt says where Kafka has put the record. The client knows no offset, and says -1, when it has sent the record twice
// and Kafka has forgotten where the first one went.
func receipt(record *kgo.Record, err error) deliver.Receipt {
	if err != nil {
		return deliver.Receipt{}
	}
	return deliver.Receipt{Partition: record.Partition, Offset: record.Offset}
}

// failBehind takes what is behind a send that failed in its partition and has not reached the client: it would be written
// before that one is sent again. franz-go fails what it buffers for the partition for the same reason. The caller holds mu.
func (s *Sink) failBehind(failed *send, err error) (behind []*send, out []*line) {
	b, partition := failed.backlog, failed.record.Partition
	behind, out = s.recall(b, func(other *send) bool { return other.record.Partition == partition }, err)
	behind = append(behind, b.leave(partition)...)
	for _, other := range behind {
		b.target.outstanding.remove(other)
	}
	return behind, out
}

// Isolate gives the topic's outstanding records up; see [deliver.Sink].
func (s *Sink) Isolate(topic string) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	t := s.target(topic, time.Now())
	s.log.Warn("target topic is isolated: until it answers it shares Kafka clients only with others that do not", "topic", topic, "abandoned", t.outstanding.len)
	s.abandon(t)
	t.standing = max(t.standing, s.standingOf(t))
	var out []*line
	for _, b := range t.backlogs {
		b.waiting, b.pool = nil, nil // its queue drops it
		_, more := s.recall(b, func(*send) bool { return true }, deliver.ErrAbandoned)
		out = append(out, more...)
		if b.flight != nil {
			s.giveUp(b)
		}
	}
	t.backlogs = make(map[int32]*backlog)
	s.mu.Unlock()
	s.produce(out)
}

// Unreached returns the addresses of the Kafka brokers that Kafka lists and that do not answer this node, or did not when they
// were connected to last. It does not block.
func (s *Sink) Unreached() []string { return s.hearing.Unreached(s.questions.Listed()) }

// Survey is [reach.Config.Survey], which finds Kafka by all addresses that the Sink knows and that answer.
func (s *Sink) Survey(ctx context.Context) (reached, unreached []int32, err error) {
	c := s.reach
	c.Kafka.Brokers, c.Hooks = s.hearing.Seeds(s.brokers), nil
	return c.Survey(ctx)
}

// abandon resolves everything outstanding of the target. The caller holds mu.
func (s *Sink) abandon(t *target) {
	given := t.outstanding.takeAll()
	s.background.Go(func() {
		for _, issued := range given {
			issued.done(deliver.Receipt{}, abandoned(t.topic))
		}
	})
}

func abandoned(topic string) error {
	return fmt.Errorf("send to %q: %w", topic, deliver.ErrAbandoned)
}

// Close gives everything outstanding up and releases the connections. It blocks until that is done.
func (s *Sink) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		for _, t := range s.targets {
			s.abandon(t)
		}
		for l := range s.open {
			s.background.Go(l.client.Close)
		}
		clear(s.open)
		for _, p := range s.pools {
			if p.spare != nil {
				s.background.Go(p.spare.client.Close)
			}
		}
		s.background.Go(s.asking.Close)
		s.end()
	}
	s.mu.Unlock()
	s.background.Wait()
	s.hearing.Close()
}

func appendKafkaHeaders(converted []kgo.RecordHeader, headers []message.Header) []kgo.RecordHeader {
	for _, h := range headers {
		converted = append(converted, kgo.RecordHeader(h))
	}
	return converted
}
