package deliver

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/broker/mailbox"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// BenchmarkManyNames has messages due for a thousand targets, ten each over ten seconds: alone, and among
// 100,000 names, of which a hundred are slow and the others missing, each with a message that is due at the
// beginning. It prints what the leader takes in memory for that, and how late the thousand's messages are.
// Scheduler, publisher and log are real, Kafka is not.
func BenchmarkManyNames(b *testing.B) {
	for _, names := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			for range b.N {
				manyNames(b, names)
			}
		})
	}
}

func manyNames(b *testing.B, names int) {
	const existing, each, slow = 1000, 10, 100
	ctx, cancel := context.WithCancel(b.Context())
	node := nodetest.Open(b, ctx)
	defer node.Close()
	propose := func(command raftfsm.Command) {
		if _, err := node.Propose(ctx, command).Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
	propose(raftfsm.SetPositions{Surveyed: true, Sets: []raftfsm.PositionSet{{
		Position: storage.Position{Topic: "in.delay", Epoch: -1}, From: raftfsm.FromAbsent,
	}}})
	propose(raftfsm.RaiseLevel{Level: storage.LevelTwo}) // holds as changes
	sink, begin := newTopicLogs(), time.Now().Add(3*time.Second)
	sink.sent = func(Delivery) {}
	message := message.Message{Origin: message.Origin{Topic: "in.delay", Partition: 0, Offset: 1}, Partition: -1, Value: make([]byte, 100)}
	body := message.AppendBody(nil, 0)
	var entries []storage.Entry
	add := func(name string, after time.Duration) {
		entries = append(entries, storage.Entry{Due: begin.Add(after).UnixMilli(), Target: name, Body: body})
	}
	for i := range existing {
		name := fmt.Sprintf("customer-%08d.orders", i)
		sink.topic(name, 12)
		for k := range each {
			add(name, time.Duration(k)*time.Second+time.Duration(i)*time.Millisecond)
		}
	}
	for i := existing; i < names; i++ {
		name := fmt.Sprintf("customer-%08d.replies", i)
		if i < existing+slow {
			sink.topic(name, 12).latency = 900 * time.Millisecond
		}
		add(name, 0)
	}
	slices.SortFunc(entries, func(a, b storage.Entry) int { return int(a.Due - b.Due) })
	next := int64(0)
	for chunk := range slices.Chunk(entries, 2000) {
		part := raftfsm.Part{Topic: "in.delay", From: next, Next: next + int64(len(chunk)), Epoch: -1, Entries: chunk}
		next = part.Next
		propose(raftfsm.Ingest{Time: time.Now().UnixMilli(), Parts: []raftfsm.Part{part}})
	}
	entries = nil
	before := memory()
	count := &counted{deadLettered: make(map[string]int)}
	feed := node.Subscribe(schedule.FeedCapacity)
	if err := node.Barrier(ctx); err != nil {
		b.Fatal(err)
	}
	verdicts := mailbox.New[schedule.Verdict]()
	p := New(Options{
		Sink: sink, Store: node.Store(), Log: node, Verdicts: verdicts, Report: report.New(), Count: count, Now: time.Now, Due: time.Now,
		MissingTimeout:      func(string) time.Duration { return testTimeout },
		LeastMissingTimeout: testTimeout,
		MostMissing:         func(string) int { return 0 },
		DeadLetterFor:       func(string) string { return "dead" },
		Logger:              slog.New(slog.DiscardHandler),
	})
	searched := new(atomic.Bool)
	searched.Store(true)
	scheduler := schedule.New(schedule.Options{
		Store: node.Store(), Feed: feed, Log: node, Publisher: p, Verdicts: verdicts, Searched: searched,
		Now: time.Now, Report: report.New(), Logger: slog.New(slog.DiscardHandler),
	})
	ended := make(chan error, 2)
	go func() { ended <- p.Run(ctx) }()
	go func() {
		ended <- scheduler.Run(ctx)
		feed.Close()
	}()
	<-time.After(time.Until(begin.Add(12 * time.Second)))
	after, goroutines := memory(), runtime.NumGoroutine()
	cancel()
	<-ended
	<-ended
	slices.Sort(count.late)
	late := count.late[:min(len(count.late), existing*each)] // less the latest, those of slow targets
	n := len(late)
	b.Logf("%d names: %d messages delivered, late p50 %d, p99 %d, most %d ms; %+d MB of heap and stacks, %d goroutines; %d requests for partitions",
		names, n, late[n/2], late[n*99/100], late[n-1], (after-before)>>20, goroutines, sink.asked)
}

// memory returns the bytes of heap and stacks in use.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
