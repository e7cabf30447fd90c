package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// A ledger holds what was asked for and what came out, message by message.
// The value of each message is its number, in decimal.
type ledger struct {
	mu         sync.Mutex
	asked      map[int]int64    // by number, due in epoch milliseconds, for what Kafka acknowledged
	first      map[int]delivery // by number, the first copy
	records    int64            // all copies
	duplicates int              // copies after the first
	disordered int              // first copies that came after one due later, in their partition
	last       map[int32]int64  // by target partition, the due time of the last first copy
	came       []int64          // when the records were written, epoch milliseconds by the leader's clock
	faults     []string         // what must never happen, in words
}

type delivery struct {
	seq string
	due int64 // epoch milliseconds
}

func newLedger() *ledger {
	return &ledger{asked: map[int]int64{}, first: map[int]delivery{}, last: map[int32]int64{}}
}

// schedule produces one message without waiting for the answer.
func (l *ledger) schedule(producer *kgo.Client, topic string, number int, due time.Time) {
	record := &kgo.Record{
		Topic:   topic,
		Key:     []byte("key " + strconv.Itoa(number%1000)),
		Value:   []byte(strconv.Itoa(number)),
		Headers: []kgo.RecordHeader{{Key: client.HeaderAt, Value: strconv.AppendInt(nil, due.UnixMilli(), 10)}},
	}
	producer.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.faults = append(l.faults, fmt.Sprintf("message %d was not produced: %v", number, err))
			return
		}
		l.asked[number] = due.UnixMilli()
	})
}

// consume reads the target topic from its beginning until the test ends.
func (l *ledger) consume(k *kafkaCluster, topic string) {
	k.t.Helper()
	consumer := k.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := consumer.PollFetches(ctx)
			l.mu.Lock()
			fetches.EachRecord(l.record)
			l.mu.Unlock()
		}
	}()
	k.t.Cleanup(func() { cancel(); <-done })
}

// record enters one delivered record.
func (l *ledger) record(r *kgo.Record) {
	l.records++
	number, err := strconv.Atoi(string(r.Value))
	if err != nil {
		l.faults = append(l.faults, fmt.Sprintf("delivered %q, which nobody sent", r.Value))
		return
	}
	var seq string
	var due int64
	for _, h := range r.Headers {
		switch {
		case h.Key == client.HeaderDeliveredSeq:
			seq = string(h.Value)
		case h.Key == client.HeaderDeliveredFor:
			due, _ = strconv.ParseInt(string(h.Value), 10, 64) // 0 is caught in verify
		case strings.HasPrefix(h.Key, client.InstructionPrefix):
			l.faults = append(l.faults, fmt.Sprintf("message %d still has header %s", number, h.Key))
		}
	}
	// The record's timestamp is the moment of delivery by the leader's clock.
	at := r.Timestamp.UnixMilli()
	if at < due {
		l.faults = append(l.faults, fmt.Sprintf("message %d came %d ms early", number, due-at))
	}
	l.came = append(l.came, at)
	if was, ok := l.first[number]; ok {
		l.duplicates++
		if was.seq != seq {
			l.faults = append(l.faults, fmt.Sprintf("message %d was accepted twice, as %s and %s", number, was.seq, seq))
		}
		return
	}
	l.first[number] = delivery{seq: seq, due: due}
	if due < l.last[r.Partition] {
		l.disordered++
	}
	l.last[r.Partition] = due
}

// delivered returns how many messages have come at least once.
func (l *ledger) delivered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.first)
}

// deliveredBelow returns how many of the messages numbered below the limit have come.
func (l *ledger) deliveredBelow(limit int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for number := range l.first {
		if number < limit {
			n++
		}
	}
	return n
}

// pause returns the longest time without a delivery that began between the moments: under a steady
// load, how long nobody delivered.
func (l *ledger) pause(from, to time.Time) time.Duration {
	const inFlight = 500 // milliseconds: what was sent just before a strike may not have come
	l.mu.Lock()
	came := slices.Sorted(slices.Values(l.came))
	l.mu.Unlock()
	var longest int64
	for i := 1; i < len(came); i++ {
		if came[i-1] >= from.UnixMilli()-inFlight && came[i-1] < to.UnixMilli() {
			longest = max(longest, came[i]-came[i-1])
		}
	}
	return time.Duration(longest) * time.Millisecond
}

// settle waits until n messages have come, nothing is pending, and the target topic is read to its
// end, so that later copies are counted as well.
func (l *ledger) settle(k *kafkaCluster, c *carillonCluster, topic string, n int) {
	k.t.Helper()
	await(k.t, 2*patience, strconv.Itoa(n)+" messages are delivered", func() bool { return l.delivered() >= n })
	c.awaitPending(patience, 0)
	await(k.t, patience, "the target topic is read to its end", func() bool {
		total, known := k.written(topic)
		l.mu.Lock()
		defer l.mu.Unlock()
		return known && l.records >= total
	})
}

// busiest returns the most records that came within any 200 ms.
func (l *ledger) busiest() (most int) {
	came := slices.Sorted(slices.Values(l.came))
	first := 0
	for i, at := range came {
		for came[first] < at-200 {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// verify fails the test if any of n messages was lost, early, altered or accepted twice, or if more
// than 1 % per strike came more than once, and more than ever came within 200 ms: what went out during two
// commits of a busy disk may be repeated, and a strike can come while a backlog goes out. A strike is what the test did to the leader, to all nodes
// at once, or to Kafka: a kill in most. The elections are how often the term changed: when there are
// more of them than strikes, the machine was too busy for heartbeats, and that has its part in the
// duplicates, but earns no allowance.
func (l *ledger) verify(t testing.TB, n, strikes, elections int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := 0
	numbers := make(map[string]int, n) // by seq
	for number := range n {
		asked, produced := l.asked[number]
		first, came := l.first[number]
		if !produced || !came {
			lost++
			continue
		}
		if other, taken := numbers[first.seq]; taken {
			l.faults = append(l.faults, fmt.Sprintf("messages %d and %d were both delivered as %q", other, number, first.seq))
		}
		numbers[first.seq] = number
		if first.due != asked {
			l.faults = append(l.faults, fmt.Sprintf("message %d was delivered for %d, not %d", number, first.due, asked))
		}
	}
	busiest := l.busiest()
	t.Logf("%d sent, %d delivered, %d lost, %d strikes, %d elections, %d duplicates (%.3f %% per strike; %d in the busiest 200 ms), %d out of order",
		len(l.asked), len(l.first), lost, strikes, elections, l.duplicates,
		100*float64(l.duplicates)/float64(n*max(1, strikes)), busiest, l.disordered)
	if lost > 0 {
		t.Errorf("%d of %d messages are lost", lost, n)
	}
	if l.duplicates > max(n/100, busiest)*strikes {
		t.Errorf("%d duplicates after %d strikes and %d elections: more than 1 %% of %d per strike, and than the %d of the busiest 200 ms", l.duplicates, strikes, elections, n, busiest)
	}
	for _, fault := range l.faults[:min(10, len(l.faults))] {
		t.Error(fault)
	}
}
