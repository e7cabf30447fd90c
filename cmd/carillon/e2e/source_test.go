package e2e

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/kafka"
	"github.com/carillonmq/carillon/broker/kafka/reach"
)

// Kafka takes no topic id where offsets are asked. It does in a fetch, and tells one who asks for a topic that is gone from one
// who asks for an offset that is.
func TestOffsets_areOfTheTopicWithTheID(t *testing.T) {
	k := startKafka(t, freeAddrs(t, 1)...)
	k.create(1, "late.delay")
	source, err := kafka.NewSource(reach.Config{Kafka: config.Kafka{Brokers: k.addrs()}, Logger: slog.New(slog.DiscardHandler)},
		func(topic string) bool { return topic == "late.delay" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)

	// look returns the topic, when somebody leads it.
	look := func() (topic ingest.SourceTopic) {
		await(t, patience, "the topic has a leader", func() bool {
			topics, _, err := source.Topics(t.Context(), []string{"late.delay"})
			if err != nil || topics[0].Err != nil || topics[0].Partitions[0].Leader < 0 {
				return false
			}
			topic = topics[0]
			return true
		})
		return topic
	}
	ask := func(topic ingest.SourceTopic) ingest.OffsetsAnswer {
		answers, err := source.Offsets(t.Context(), []ingest.OffsetsQuestion{
			{Topic: topic.Topic, TopicID: topic.TopicID, SourceLeader: topic.Partitions[0], ReadEpoch: -1}})
		if err != nil {
			return ingest.OffsetsAnswer{Err: err}
		}
		return answers[0]
	}
	produce := func() {
		if err := k.client().ProduceSync(t.Context(), &kgo.Record{Topic: "late.delay"}, &kgo.Record{Topic: "late.delay"}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	produce()
	k.empty("late.delay")
	produce()
	before := look()
	var told ingest.OffsetsAnswer
	await(t, patience, "the offsets are told", func() bool { told = ask(before); return told.Err == nil && told.Latest == 4 })
	if told.Earliest != 2 {
		t.Errorf("told %+v, want that the first two records are gone", told)
	}
	if _, err := kadm.NewClient(k.client()).DeleteTopic(t.Context(), "late.delay"); err != nil {
		t.Fatal(err)
	}
	await(t, patience, "the topic can be created again", func() bool {
		_, err := kadm.NewClient(k.client()).CreateTopic(t.Context(), 1, -1, nil, "late.delay")
		return err == nil
	})
	await(t, patience, "another topic is told of", func() bool { return look().TopicID != before.TopicID })
	after := look()
	await(t, patience, "the offsets are told", func() bool { told = ask(after); return told.Err == nil })
	if told.Earliest != 0 || told.Latest != 0 {
		t.Errorf("told %+v, want an empty topic", told)
	}
	gone := after // led by the same broker, in the same epoch
	gone.TopicID = before.TopicID
	if told := ask(gone); !errors.Is(told.Err, ingest.ErrSourceMissing) {
		t.Errorf("of the topic before: %+v", told)
	}

	// What a transaction holds back lies between what readers see and the end.
	user := k.client(kgo.TransactionalID("user"))
	if err := user.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := user.ProduceSync(t.Context(), &kgo.Record{Topic: "late.delay"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	produce()
	if told := ask(after); told.Err != nil || told.Latest != 0 || told.End != 3 {
		t.Errorf("while a transaction is open: %+v", told)
	}
	if err := user.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	await(t, patience, "all is told to readers", func() bool { told = ask(after); return told.Err == nil && told.Latest == 4 && told.End == 4 })
}
