package client_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// Whatever concerns one id is in the partition that the id would have as a key, where nothing has a key; where
// something has one, that decides. What has neither goes to more than one partition.
func TestProducer_partitionsByTheIDWhereThereIsNoKey(t *testing.T) {
	kafka := newKafka(t, kfake.SeedTopics(7, "orders.delay"))
	producer := newProducer(t, kafka)
	plain, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	used := make(map[int32]bool)
	for i := range 30 {
		id, key := fmt.Sprint("reminder-", i), fmt.Appendf(nil, "customer-%d", i)
		partitionOf := func(r *kgo.Record, err error) int32 {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return r.Partition
		}
		asKey := partitionOf(plain.ProduceSync(t.Context(), &kgo.Record{Topic: "orders.delay", Key: []byte(id)}).First())
		scheduled := partitionOf(producer.Schedule(t.Context(), &kgo.Record{Topic: "orders.delay"}, client.After(0), client.ID(id)))
		cancelled := partitionOf(producer.Cancel(t.Context(), "orders.delay", nil, id))
		if scheduled != asKey || cancelled != asKey {
			t.Errorf("%s: scheduled in %d and cancelled in %d, want %d", id, scheduled, cancelled, asKey)
		}
		used[asKey] = true
		want := partitionOf(plain.ProduceSync(t.Context(), &kgo.Record{Topic: "orders.delay", Key: key}).First())
		got := partitionOf(producer.Schedule(t.Context(), &kgo.Record{Topic: "orders.delay", Key: key}, client.After(0), client.ID(id)))
		if got != want {
			t.Errorf("%s with key %s in %d, want %d", id, key, got, want)
		}
	}
	if len(used) < 4 {
		t.Errorf("30 ids are in the partitions %v", used)
	}
	used = make(map[int32]bool)
	for range 200 {
		r, err := producer.Schedule(t.Context(), &kgo.Record{Topic: "orders.delay", Value: make([]byte, 8<<10)}, client.After(0))
		if err != nil {
			t.Fatal(err)
		}
		used[r.Partition] = true
	}
	if len(used) < 2 {
		t.Errorf("200 records with neither are all in %v", used)
	}
}
