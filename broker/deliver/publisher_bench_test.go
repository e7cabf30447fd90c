package deliver

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// instant answers every record at once.
type instant struct{}

func (instant) Partitions(_ context.Context, topics []string) []PartitionCount {
	counts := make([]PartitionCount, len(topics))
	for i := range counts {
		counts[i].Count = 12
	}
	return counts
}
func (instant) Send(_ Delivery, done func(Receipt, error))     { done(Receipt{}, nil) }
func (instant) Isolate(string)                                 {}
func (instant) CreateTopic(context.Context, string, int) error { return nil }
func (instant) Close()                                         {}

// A sameBody has the same payload for every message.
type sameBody struct{ body []byte }

func (s sameBody) ReadWithin(_ int, refs []storage.Ref, out []storage.Entry) (entries []storage.Entry, read int, err error) {
	for _, ref := range refs {
		out = append(out, storage.Entry{Due: ref.Due, Seq: ref.Seq, Body: s.body})
	}
	return out, len(refs), nil
}

func (s sameBody) Level() storage.Level { return storage.LevelThree }
func (s sameBody) Time() int64          { return 0 }

// BenchmarkPublisher delivers messages of 1 KB to one target: what the publisher
// itself costs, without storage, Kafka and log.
func BenchmarkPublisher(b *testing.B) {
	for _, id := range []string{"", "order-1"} {
		name := "without id"
		if id != "" {
			name = "with id"
		}
		b.Run(name, func(b *testing.B) { benchPublisher(b, id) })
	}
}

func benchPublisher(b *testing.B, id string) {
	m := message.Message{ID: id, Origin: message.Origin{Topic: "in.delay", Partition: 0, Offset: 1}, Partition: -1, Key: []byte("key"), Value: make([]byte, 1<<10), Headers: []message.Header{{Key: "a", Value: []byte("b")}}}
	p := New(Options{
		Sink:           instant{},
		Store:          sameBody{m.AppendBody(nil, storage.LevelThree)},
		MissingTimeout: func(string) time.Duration { return time.Minute },
		MostMissing:    func(string) int { return 0 },
		DeadLetterFor:  func(string) string { return "dead" },
		Verdicts:       mailbox.New[schedule.Verdict](),
		Count:          &counted{},
		Now:            time.Now,
		Due:            time.Now,
		Logger:         slog.New(slog.DiscardHandler),
	})
	acked := make(chan int, 1024)
	p.acks.commit = func(_ context.Context, c raftfsm.Command) (raftfsm.Result, error) {
		n := 0
		for _, run := range c.(raftfsm.Ack).Runs {
			n += int(run.Last - run.First + 1)
		}
		acked <- n
		return raftfsm.Result{}, nil
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	b.ReportAllocs()
	b.ResetTimer()
	seq, done := uint64(0), 0
	for done < b.N {
		var due []schedule.DueMessage
		for len(due) < 512 && int(seq) < b.N && int(seq)-done < schedule.MostHanded {
			seq++
			due = append(due, schedule.DueMessage{Ref: storage.Ref{Due: 1, Seq: seq}, Target: "orders"})
		}
		if len(due) > 0 {
			p.Hand(due)
			continue
		}
		done += <-acked
	}
	b.StopTimer()
	cancel()
	<-ended
}
