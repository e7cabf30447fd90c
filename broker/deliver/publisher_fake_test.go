package deliver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// A topicLogs is a Sink that keeps topics in memory and behaves as kgo does where
// it matters here: what is buffered for a partition is written or fails together,
// so an innocent record fails with a guilty one.
type topicLogs struct {
	mu     sync.Mutex
	topics map[string]*topicLog
	asked  int            // calls of Partitions
	sent   func(Delivery) // looks at each

	answersAfter time.Duration // how long an answer of Partitions is on its way
}

type topicLog struct {
	partitions int32
	err        error                // what Partitions answers instead
	refuse     func(Delivery) error // what a record fails with; nil: none fails
	silent     bool                 // nothing is answered any more
	heals      bool                 // fresh connections are answered
	latency    time.Duration
	inTurn     bool // what comes while an answer is awaited waits for that, and then for its own
	isolated   int

	buffered map[int32][]*attempt
	departed map[int32]int // of buffered, if in turn
	flying   []*attempt
	attempts map[string]*attempt // the last one, by value
	written  map[int32][]Delivery
}

type attempt struct {
	Delivery
	series *Series
	done   func(Receipt, error)
	offset int64 // once it is written
	alone  bool  // nothing else of the topic was flying at any time meanwhile
}

func newTopicLogs() *topicLogs { return &topicLogs{topics: make(map[string]*topicLog)} }

// topic creates the topic if there is none.
func (s *topicLogs) topic(name string, partitions int32) *topicLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[name] == nil {
		s.topics[name] = &topicLog{
			partitions: partitions,
			latency:    2 * time.Millisecond,
			buffered:   make(map[int32][]*attempt),
			departed:   make(map[int32]int),
			attempts:   make(map[string]*attempt),
			written:    make(map[int32][]Delivery),
		}
	}
	return s.topics[name]
}

// change does something to a topic between two calls of the sink.
func (s *topicLogs) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *topicLogs) Partitions(ctx context.Context, names []string) []PartitionCount {
	if s.answersAfter > 0 {
		defer func() {
			select {
			case <-ctx.Done():
			case <-time.After(s.answersAfter):
			}
		}()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	counts := make([]PartitionCount, len(names))
	for i, name := range names {
		switch t := s.topics[name]; {
		case t == nil:
			counts[i].Err = fmt.Errorf("topic %q: %w", name, ErrTargetMissing)
		case t.err != nil:
			counts[i].Err = t.err
		default:
			counts[i].Count = t.partitions
		}
	}
	return counts
}

func (s *topicLogs) Send(d Delivery, done func(Receipt, error)) {
	s.sent(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[d.Topic]
	if t == nil {
		go done(Receipt{}, ErrTargetMissing)
		return
	}
	d.Headers = slices.Clone(d.Headers)
	series := d.Series
	d.Series = nil // it is not written
	a := &attempt{Delivery: d, series: series, done: done, alone: len(t.flying) == 0}
	if len(t.flying) == 1 {
		t.flying[0].alone = false
	}
	t.flying = append(t.flying, a)
	t.attempts[string(d.Value)] = a
	if a.series.Failed != nil {
		t.resolve(a, a.series.Failed)
		return
	}
	t.buffered[d.Partition] = append(t.buffered[d.Partition], a)
	if len(t.buffered[d.Partition]) == 1 && !t.silent {
		s.depart(t, d.Partition)
	}
}

// depart has what is buffered for the partition answered in a while.
func (s *topicLogs) depart(t *topicLog, partition int32) {
	t.departed[partition] = len(t.buffered[partition])
	isolated := t.isolated
	time.AfterFunc(t.latency, func() { s.answer(t, partition, isolated) })
}

// answer answers what the partition was given, unless it was isolated since it had been so many times.
func (s *topicLogs) answer(t *topicLog, partition int32, isolated int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.silent || t.isolated != isolated {
		return
	}
	batch := t.buffered[partition]
	if t.inTurn {
		batch = batch[:t.departed[partition]]
	}
	t.buffered[partition] = t.buffered[partition][len(batch):]
	err := t.err
	for _, a := range batch {
		if t.refuse == nil {
			break
		}
		if e := t.refuse(a.Delivery); e != nil && (err == nil || isPermanent(e)) {
			err = e
		}
	}
	for _, a := range batch {
		if err != nil {
			a.series.Failed = err
		} else {
			a.offset = int64(len(t.written[partition]))
			t.written[partition] = append(t.written[partition], a.Delivery)
		}
		t.resolve(a, err)
	}
	if len(t.buffered[partition]) > 0 {
		s.depart(t, partition)
	}
}

func (t *topicLog) resolve(a *attempt, err error) {
	if i := slices.Index(t.flying, a); i >= 0 {
		t.flying = slices.Delete(t.flying, i, i+1)
	}
	a.done(Receipt{a.Partition, a.offset}, err)
}

func (s *topicLogs) Isolate(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	t.isolated++
	for _, a := range slices.Clone(t.flying) {
		t.resolve(a, ErrAbandoned)
	}
	clear(t.buffered)
	t.silent = t.silent && !t.heals
}

func (s *topicLogs) CreateTopic(context.Context, string, int) error { return nil }

func (s *topicLogs) Close() {}

// A fakeLog is storage and replicated log at once: commands are applied after the
// time that a commit takes.
type fakeLog struct {
	t     *testing.T
	sink  *topicLogs
	mu    sync.Mutex
	alive map[uint64]storage.Entry
	next  uint64
	acked []uint64
	dead  []storage.Entry // dead letters, in order
	told  []raftfsm.Ended
	err   error         // of every commit
	level storage.Level // LevelOne if it is not set
	time  int64         // that it has seen besides the clock
	// broken is the error of every read.
	broken error
}

func (f *fakeLog) ReadWithin(bytes int, refs []storage.Ref, out []storage.Entry) (entries []storage.Entry, read int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.IsSortedFunc(refs, storage.Ref.Compare) {
		f.t.Errorf("read of unsorted refs %v", refs)
	}
	for i, ref := range refs {
		e, ok := f.alive[ref.Seq]
		if !ok {
			continue
		}
		if bytes -= len(e.Body); bytes < 0 && len(out) > 0 {
			return out, i, f.broken
		}
		out = append(out, e)
	}
	return out, len(refs), f.broken
}

func (f *fakeLog) Level() storage.Level {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.level
}

// sent looks at what goes to Kafka: nothing that has expired does.
func (f *fakeLog) sent(d Delivery) {
	var seq uint64
	fmt.Sscan(string(d.Value), &seq)
	now := max(time.Now().UnixMilli(), f.Time())
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.alive[seq]; e.Expires != 0 && e.Expires <= now {
		f.t.Errorf("message %d is sent at %d, though it expired at %d", seq, now, e.Expires)
	}
}

func (f *fakeLog) Time() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.time
}

func (f *fakeLog) commit(ctx context.Context, command raftfsm.Command) (raftfsm.Result, error) {
	time.Sleep(3 * time.Millisecond) // in a bubble
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return raftfsm.Result{}, f.err
	}
	switch c := command.(type) {
	case raftfsm.Ack:
		f.hear(c.Ended, func(seq uint64) bool {
			return slices.ContainsFunc(c.Runs, func(r storage.SeqRun) bool { return r.First <= seq && seq <= r.Last })
		})
		for _, run := range c.Runs {
			for seq := run.First; seq <= run.Last; seq++ {
				delete(f.alive, seq)
				f.acked = append(f.acked, seq)
			}
		}
	case raftfsm.Replace:
		f.hear(c.Ended, func(seq uint64) bool { return slices.Contains(c.Kills, seq) })
		for i, seq := range c.Kills {
			if e, ok := f.alive[seq]; !ok || e.Expires != 0 && e.Expires <= c.Time {
				f.t.Errorf("message %d, which is dead or has expired, was dead-lettered", seq)
			}
			delete(f.alive, seq)
			f.dead = append(f.dead, c.Entries[i])
		}
	default:
		f.t.Errorf("unexpected command %T", command)
	}
	return raftfsm.Result{}, ctx.Err()
}

// hear takes in what a command tells of the messages that it ends.
func (f *fakeLog) hear(told []raftfsm.Ended, ends func(seq uint64) bool) {
	for i, e := range told {
		if f.level < storage.LevelThree || !ends(e.Seq) || i > 0 && e.Seq <= told[i-1].Seq {
			f.t.Errorf("at level %d a command tells %+v", f.level, e)
		}
		entry, alive := f.alive[e.Seq]
		if alive { // what comes later nobody believes
			f.told = append(f.told, e)
		}
		if alive && e.Kind == outcomes.Expired && (entry.Expires == 0 || e.At != entry.Expires) {
			f.t.Errorf("message %d, which expires at %d, is said to have expired at %d", e.Seq, entry.Expires, e.At)
		}
	}
}

// counted is a Count.
type counted struct {
	mu           sync.Mutex
	delivered    int
	expired      int
	late         []int64 // of each
	retried      int
	deadLettered map[string]int
	parked       int
	stuck        int
	valueless    int
	unreadable   int
}

func (c *counted) add(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *counted) Delivered(late int64) {
	c.add(func() { c.delivered, c.late = c.delivered+1, append(c.late, late) })
}
func (c *counted) Retried(n int) { c.add(func() { c.retried += n }) }
func (c *counted) Expired(n int) { c.add(func() { c.expired += n }) }
func (c *counted) Parked(n int)  { c.add(func() { c.parked += n }) }
func (c *counted) Unreadable()   { c.add(func() { c.unreadable++ }) }
func (c *counted) DeadLetterStuck() {
	c.add(func() { c.stuck++ })
}
func (c *counted) ValueDropped() { c.add(func() { c.valueless++ }) }
func (c *counted) DeadLettered(code string, n int) {
	c.add(func() { c.deadLettered[code] += n })
}

// A bench is a publisher with a fake world around it, inside a synctest bubble.
type bench struct {
	*Publisher
	t     *testing.T
	sink  *topicLogs
	log   *fakeLog
	count *counted
	ended chan error
	end   context.CancelFunc
}

const testTimeout = 5 * time.Minute // missing_target_timeout

func newBench(t *testing.T) *bench {
	b := &bench{t: t, sink: newTopicLogs(), count: &counted{deadLettered: make(map[string]int)}, ended: make(chan error, 1)}
	b.log = &fakeLog{t: t, sink: b.sink, alive: make(map[uint64]storage.Entry), next: 1}
	b.sink.sent = b.log.sent
	b.Publisher = New(Options{
		Sink:           b.sink,
		Store:          b.log,
		ClusterID:      [16]byte{0xab},
		MissingTimeout: func(string) time.Duration { return testTimeout },

		LeastMissingTimeout: testTimeout,
		MostMissing:         func(string) int { return 0 },

		DeadLetterFor:    func(string) string { return "dead" },
		DeadLetterTopics: []string{"dead"},
		Report:           report.New(),
		Verdicts:         mailbox.New[schedule.Verdict](),
		Count:            b.count,
		Now:              time.Now,
		Due:              time.Now,
		Logger:           slog.New(slog.DiscardHandler),
	})
	b.Publisher.commit = b.log.commit
	b.Publisher.acks.commit = b.log.commit
	ctx, cancel := context.WithCancel(t.Context())
	b.end = cancel
	go func() { b.ended <- b.Run(ctx) }()
	return b
}

// stop ends the term and returns what run returned.
func (b *bench) stop() error {
	b.end()
	return <-b.ended
}

// accept puts n messages that are due now into the schedule; prepare may change them. Their keys
// spread them over the partitions of the target.
func (b *bench) accept(target string, n int, prepare func(i int, m *message.Message)) []schedule.DueMessage {
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	due := make([]schedule.DueMessage, n)
	for i := range due {
		seq := b.log.next
		b.log.next++
		m := message.Message{Origin: message.Origin{Topic: "in.delay", Partition: 0, Offset: int64(seq)}, Partition: -1, PlannedFor: time.Now().UnixMilli(), Key: fmt.Append(nil, seq), Value: fmt.Append(nil, seq)}
		if prepare != nil {
			prepare(i, &m)
		}
		entry := m.Entry(time.Now().UnixMilli(), target, b.log.level)
		entry.Seq = seq
		b.log.alive[seq] = entry
		due[i] = schedule.DueMessage{Ref: entry.Ref(), Target: target}
	}
	return due
}

// deliver hands over n messages for the target and returns their seqs.
func (b *bench) deliver(target string, n int, prepare func(i int, m *message.Message)) []uint64 {
	due := b.accept(target, n, prepare)
	b.Hand(due)
	return seqsOf(due)
}

func seqsOf(due []schedule.DueMessage) []uint64 {
	seqs := make([]uint64, len(due))
	for i, d := range due {
		seqs[i] = d.Seq
	}
	return seqs
}

// after lets the time pass and everybody come to rest. Between two calls the test
// may look at everything: passing the locks here orders that before what follows.
func (b *bench) after(d time.Duration) {
	b.sink.change(func() {})
	b.count.add(func() {})
	b.acked()
	time.Sleep(d)
	synctest.Wait()
}

// verdicts returns the verdicts, and confirms each of being parked as the scheduler must.
func (b *bench) verdicts() []schedule.Verdict {
	got := b.cfg.Verdicts.Take(nil)
	for _, v := range got {
		if v.Parked {
			b.Confirm(v.Target)
		}
	}
	return got
}

// written returns the values in a topic's partition as numbers, without repetitions.
func (b *bench) written(topic string, partition int32) []uint64 {
	b.sink.mu.Lock()
	defer b.sink.mu.Unlock()
	var first []uint64
	for _, d := range b.sink.topics[topic].written[partition] {
		var seq uint64
		fmt.Sscan(string(d.Value), &seq)
		if !slices.Contains(first, seq) {
			first = append(first, seq)
		}
	}
	return first
}

// acked returns the acknowledged seqs in order.
func (b *bench) acked() []uint64 {
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	return slices.Sorted(slices.Values(b.log.acked))
}
