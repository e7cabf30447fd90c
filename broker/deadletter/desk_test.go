package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deadletter"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
	"github.com/carillonmq/carillon/broker/kafka"
	"github.com/carillonmq/carillon/broker/kafka/reach"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/replayed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A room is a Desk beside a Kafka in virtual time.
type room struct {
	t        *testing.T
	kafka    kafkatest.Bubble
	freezer  *kafkatest.Freezer // between the desk and Kafka
	client   *kgo.Client
	letters  *kafka.Letters
	desk     *deadletter.Desk
	replayed replayed.Set
}

func (r *room) State() storage.State { return storage.State{ClusterID: [16]byte{1}} }
func (r *room) Replayed(at replayed.Partition, offset int64) bool {
	return r.replayed.Has(at, offset)
}

func inRoom(t *testing.T, test func(t *testing.T, r *room)) {
	kafkatest.InBubble(t, func(t *testing.T, bubble kafkatest.Bubble) {
		r := &room{t: t, kafka: bubble, freezer: kafkatest.NewFreezer(bubble.Network.DialContext), replayed: replayed.New()}
		letters, err := kafka.NewLetters(reach.Config{Kafka: config.Kafka{Brokers: bubble.ListenAddrs()}, Logger: slog.New(slog.DiscardHandler), Dial: r.freezer.Dial})
		if err != nil {
			t.Fatal(err)
		}
		r.letters = letters
		if r.client, err = kgo.NewClient(kgo.SeedBrokers(bubble.ListenAddrs()...), kgo.Dialer(bubble.Network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4<<20)); err != nil {
			t.Fatal(err)
		}
		defer r.client.Close()
		r.desk = deadletter.New(deadletter.Options{
			Kafka: letters, Store: r, Topics: []string{"bills.dead", "carillon.dead-letter"}, Now: time.Now,
			TargetOf: func(topic string) string { return strings.TrimSuffix(topic, ".delay") },
		})
		test(t, r)
	})
}

func (r *room) create(topic string, partitions int32) {
	r.t.Helper()
	if _, err := kadm.NewClient(r.client).CreateTopic(r.t.Context(), partitions, 1, map[string]*string{"max.message.bytes": new("16777216")}, topic); err != nil {
		r.t.Fatal(err)
	}
}

func (r *room) produce(records ...*kgo.Record) {
	r.t.Helper()
	if err := r.client.ProduceSync(r.t.Context(), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// letter is what the broker writes for a record that cannot be delivered.
func letter(origin message.Origin, code string, headers ...message.Header) *kgo.Record {
	m := message.Message{Origin: origin, Key: []byte("k"), Value: []byte("v"), Headers: headers}
	dead := m.AsDeadLetter(message.Problem{Code: code, Message: "why " + code}, 0)
	record := &kgo.Record{Topic: "carillon.dead-letter", Key: dead.Key, Value: dead.Value}
	for _, h := range dead.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader(h))
	}
	return record
}

// all lists by pages of that many.
func (r *room) all(f client.Filter, limit int) (all []client.DeadLetter, pages int) {
	r.t.Helper()
	for cursor := ""; ; {
		page, err := r.desk.List(r.t.Context(), deadletter.ListRequest{Filter: f, Cursor: cursor, Limit: limit})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(page.DeadLetters) > limit {
			r.t.Fatalf("%d in a page of %d", len(page.DeadLetters), limit)
		}
		all, pages = append(all, page.DeadLetters...), pages+1
		if cursor = page.Next; cursor == "" {
			return all, pages
		}
		if pages > 10_000 {
			r.t.Fatal("the pages have no end")
		}
	}
}

func TestList_ofTopicsThatDoNotExistIsEmpty(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		if got, pages := r.all(client.Filter{}, 10); len(got) != 0 || pages != 1 {
			t.Errorf("got %+v, %d pages", got, pages)
		}
	})
}

func TestList_tellsWhyEachIsThere(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.create("carillon.dead-letter", 1)
		first := letter(message.Origin{Topic: "orders.delay", Partition: 3, Offset: 9}, "malformed", message.Header{Key: "deliver-id", Value: []byte("one")}, message.Header{Key: "deliver-to", Value: []byte("x")})
		again := letter(message.Origin{Topic: "bills.delay", Partition: -1, Offset: 7}, "target-missing")
		again.Headers = append(slices.Clone(first.Headers), again.Headers...) // of one that was produced from a dead letter
		again.Headers = slices.DeleteFunc(again.Headers, func(h kgo.RecordHeader) bool { return h.Key == "deliver-to" || h.Key == "deliver-id" })
		r.produce(first, again, &kgo.Record{Topic: "carillon.dead-letter", Value: []byte("mine")})
		partitions, err := r.letters.Partitions(t.Context(), []string{"carillon.dead-letter"}, 0)
		if err != nil || len(partitions) != 1 {
			t.Fatal(partitions, err)
		}
		r.replayed.Add(replayed.Partition{TopicID: partitions[0].TopicID}, 1, 0)
		got, _ := r.all(client.Filter{}, 10)
		var told []string
		for _, l := range got {
			told = append(told, fmt.Sprintf("%s/%d/%d %q %q to %q from %s by %q id %q, replayed %t, foreign %t, %d bytes", l.Topic, l.Partition, l.Offset, l.Code, l.Detail, l.Target, l.Origin, l.DelayTopic, l.ID, l.Replayed, l.Foreign, l.Size))
		}
		want := []string{
			`carillon.dead-letter/0/2 "" "" to "" from  by "" id "", replayed false, foreign true, 4 bytes`,
			`carillon.dead-letter/0/1 "target-missing" "why target-missing" to "bills" from api/7 by "bills.delay" id "", replayed true, foreign false, 346 bytes`,
			`carillon.dead-letter/0/0 "malformed" "why malformed" to "x" from orders.delay/3/9 by "orders.delay" id "one", replayed false, foreign false, 197 bytes`,
		}
		if !slices.Equal(told, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
		one, err := r.desk.Get(t.Context(), deadletter.Place{Topic: "carillon.dead-letter", Partition: 0, Offset: 1})
		if err != nil || one.Code != "target-missing" || !one.Replayed || string(one.Payload.Key) != "k" || string(one.Payload.Value) != "v" || len(one.Payload.Headers) != len(again.Headers) {
			t.Errorf("got %+v, %v", one, err)
		}
	})
}

// Records of all sizes in several partitions: whatever the pages, all are told once, the newest first.
func TestList_equalsTheTopicsWhateverThePages(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			inRoom(t, func(t *testing.T, r *room) {
				random := rand.New(rand.NewPCG(seed, 1))
				r.create("carillon.dead-letter", 3)
				r.create("bills.dead", 2)
				type key struct {
					topic     string
					partition int32
				}
				next := map[key]int64{}
				var model []client.DeadLetter
				for i := range 300 {
					topics, partitions := []string{"orders.delay", "bills.delay"}, []int32{3, 2}
					which := random.IntN(2)
					record := letter(message.Origin{Topic: topics[which], Partition: 1, Offset: int64(i)}, []string{"malformed", "refused"}[random.IntN(2)])
					record.Topic = []string{"carillon.dead-letter", "bills.dead"}[which]
					record.Partition = random.Int32N(partitions[which])
					record.Value = make([]byte, max(0, 2_000_000>>random.IntN(100)-1))
					record.Timestamp = time.UnixMilli(int64(1_000_000 + i))
					at := key{record.Topic, record.Partition}
					model = append(model, client.DeadLetter{Topic: record.Topic, Partition: record.Partition, Offset: next[at], DelayTopic: topics[which], Time: record.Timestamp.UnixMilli(), Code: string(record.Headers[0].Value)})
					next[at]++
					r.produce(record)
				}
				slices.Reverse(model)
				middle := model[150].Time
				for _, f := range []client.Filter{{}, {Topic: "orders.delay"}, {Code: "refused", Target: "bills"}, {From: middle}, {To: middle}, {From: middle - 50, To: middle + 50, Code: "malformed"}, {Topic: "x.delay"}} {
					var want []string
					for _, l := range model {
						if (f.Topic == "" || l.DelayTopic == f.Topic) && (f.Code == "" || l.Code == f.Code) && (f.Target == "" || l.DelayTopic == f.Target+".delay") && l.Time >= f.From && (f.To == 0 || l.Time < f.To) {
							want = append(want, place(l))
						}
					}
					for _, limit := range []int{7, 1000} {
						got, pages := r.all(f, limit)
						told := make([]string, len(got))
						for i, l := range got {
							told[i] = place(l)
						}
						if !slices.Equal(told, want) {
							t.Fatalf("%+v by %d, %d pages: %d told, want %d\n%v\n%v", f, limit, pages, len(told), len(want), told, want)
						}
					}
				}
			})
		})
	}
}

func place(l client.DeadLetter) string {
	return fmt.Sprintf("%s/%d/%d", l.Topic, l.Partition, l.Offset)
}

// What comes meanwhile is not told by the pages that follow; what is gone meanwhile is not, either.
func TestList_goesOnWhereItWas(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.create("carillon.dead-letter", 1)
		for i := range int64(10) {
			r.produce(letter(message.Origin{Topic: "orders.delay", Offset: i}, "malformed"))
		}
		page, err := r.desk.List(t.Context(), deadletter.ListRequest{Limit: 3})
		if err != nil || len(page.DeadLetters) != 3 || page.DeadLetters[2].Offset != 7 {
			t.Fatal(page, err)
		}
		r.produce(letter(message.Origin{Topic: "orders.delay", Offset: 10}, "malformed"))
		r.deleteBefore(5)
		page, err = r.desk.List(t.Context(), deadletter.ListRequest{Limit: 3, Cursor: page.Next})
		if err != nil || len(page.DeadLetters) != 2 || page.DeadLetters[0].Offset != 6 || page.Next != "" {
			t.Fatal(page, err)
		}
	})
}

func (r *room) deleteBefore(offset int64) {
	r.t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "carillon.dead-letter", Partition: 0, At: offset})
	if _, err := kadm.NewClient(r.client).DeleteRecords(r.t.Context(), offsets); err != nil {
		r.t.Fatal(err)
	}
}

// Of transactions only what was committed is told, and their markers are no records.
func TestList_leavesOutWhatWasAborted(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.create("carillon.dead-letter", 1)
		r.produce(letter(message.Origin{Topic: "orders.delay", Offset: 1}, "malformed"))
		transactional, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.ListenAddrs()...), kgo.Dialer(r.kafka.Network.DialContext), kgo.TransactionalID("t"))
		if err != nil {
			t.Fatal(err)
		}
		defer transactional.Close()
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			if err := errors.Join(transactional.BeginTransaction(),
				transactional.ProduceSync(t.Context(), letter(message.Origin{Topic: "orders.delay", Offset: 2 + int64(i)}, "malformed")).FirstErr(),
				transactional.EndTransaction(t.Context(), end)); err != nil {
				t.Fatal(err)
			}
		}
		got, _ := r.all(client.Filter{}, 10)
		if len(got) != 2 || got[0].Offset != 1 || got[1].Offset != 0 {
			t.Errorf("got %+v", got)
		}
		_, err = r.desk.Get(t.Context(), deadletter.Place{Topic: "carillon.dead-letter", Offset: 2}) // a marker
		if !errors.Is(err, deadletter.ErrGone) {
			t.Errorf("a marker: %v", err)
		}
	})
}

func TestDesk_saysWhatIsWrongWithAQuestion(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.create("carillon.dead-letter", 1)
		for i := range int64(10) {
			r.produce(letter(message.Origin{Topic: "orders.delay", Offset: i}, "malformed"))
		}
		r.deleteBefore(5)
		for at, want := range map[deadletter.Place]struct {
			err  error
			says string
		}{
			{"orders", 0, 7}:                {deadletter.ErrTopic, `"orders": the configuration names bills.dead, carillon.dead-letter`},
			{"__consumer_offsets", 0, 0}:    {deadletter.ErrTopic, ""},
			{"bills.dead", 0, 7}:            {deadletter.ErrGone, `topic "bills.dead" does not exist`},
			{"carillon.dead-letter", 1, 7}:  {deadletter.ErrGone, "has 1 partitions, and none of number 1"},
			{"carillon.dead-letter", -1, 7}: {deadletter.ErrGone, "none of number -1"},
			{"carillon.dead-letter", 0, 4}:  {deadletter.ErrGone, "before offset 5 are gone, by the retention of the topic"},
			{"carillon.dead-letter", 0, -1}: {deadletter.ErrGone, "before offset 5 are gone"},
			{"carillon.dead-letter", 0, 10}: {deadletter.ErrGone, "the last record of carillon.dead-letter/0 is before offset 10"},
			{"carillon.dead-letter", 0, 9}:  {},
		} {
			_, err := r.desk.Get(t.Context(), at)
			if !errors.Is(err, want.err) || err != nil && !strings.Contains(err.Error(), want.says) {
				t.Errorf("%v: %v", at, err)
			}
		}
		page, err := r.desk.List(t.Context(), deadletter.ListRequest{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		for what, test := range map[string]struct {
			request deadletter.ListRequest
			field   string
		}{
			"no limit":               {deadletter.ListRequest{}, "limit"},
			"any limit":              {deadletter.ListRequest{Limit: 1001}, "limit"},
			"an id":                  {deadletter.ListRequest{Limit: 1, Filter: client.Filter{Prefix: "a"}}, "prefix"},
			"a state":                {deadletter.ListRequest{Limit: 1, Filter: client.Filter{States: []string{"waiting"}}}, "state"},
			"times that are turned":  {deadletter.ListRequest{Limit: 1, Filter: client.Filter{From: 2, To: 2}}, "to"},
			"a cursor that is none":  {deadletter.ListRequest{Limit: 1, Cursor: "x y"}, "cursor"},
			"half a cursor":          {deadletter.ListRequest{Limit: 1, Cursor: page.Next[:len(page.Next)-4]}, "cursor"},
			"a cursor and some more": {deadletter.ListRequest{Limit: 1, Cursor: page.Next + "AAAA"}, "cursor"},
			"another filter's":       {deadletter.ListRequest{Limit: 1, Cursor: page.Next, Filter: client.Filter{Code: "malformed"}}, "cursor"},
			"its own":                {deadletter.ListRequest{Limit: 1, Cursor: page.Next}, ""},
		} {
			_, err := r.desk.List(t.Context(), test.request)
			if p, _ := err.(*client.Problem); test.field == "" && err != nil || test.field != "" && (!errors.Is(err, client.ErrBadRequest) || p.Field != test.field || p.Value == "") {
				t.Errorf("%s: %#v", what, err)
			}
		}
		// A Kafka that does not answer is waited for so long, and said to be it.
		r.kafka.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if _, err := r.desk.List(ctx, deadletter.ListRequest{Limit: 1}); !errors.Is(err, deadletter.ErrKafka) || time.Since(began) > 11*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestDesk_waitsForItsTurnNoLongerThanForKafka(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		r.freezer.Freeze(r.kafka.ListenAddrs()...)
		began := time.Now()
		answers := make(chan error)
		const most = 21 * time.Second // ten, and as long again in which Kafka's client may hear of no end while it connects
		const asking = 7              // more than are worked on at a time
		for range asking {
			go func() {
				_, err := r.desk.List(t.Context(), deadletter.ListRequest{Limit: 1})
				answers <- err
			}()
		}
		for range asking {
			if err := <-answers; !errors.Is(err, deadletter.ErrKafka) || time.Since(began) > most {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.desk.List(ctx, deadletter.ListRequest{Limit: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("of one that asks no more: %v", err)
		}
	})
}

// Marks of what was replayed are kept by the id of the topic: without one nothing is told, and nothing replayed.
func TestDesk_refusesATopicWithoutItsID(t *testing.T) {
	inRoom(t, func(t *testing.T, r *room) {
		topic := "carillon.dead-letter"
		r.create(topic, 1)
		r.produce(letter(message.Origin{Topic: "orders.delay", Offset: 7}, "malformed"))
		r.kafka.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
			r.kafka.KeepControl()
			response := request.ResponseKind().(*kmsg.MetadataResponse)
			response.Brokers = []kmsg.MetadataResponseBroker{{Host: "localhost", Port: 9092}}
			for _, asked := range request.(*kmsg.MetadataRequest).Topics {
				response.Topics = append(response.Topics, kmsg.MetadataResponseTopic{Topic: asked.Topic, Partitions: []kmsg.MetadataResponseTopicPartition{kmsg.NewMetadataResponseTopicPartition()}})
			}
			return response, nil, true
		})
		for what, ask := range map[string]func() error{
			"list": func() error { _, err := r.desk.List(t.Context(), deadletter.ListRequest{Limit: 1}); return err },
			"get":  func() error { _, err := r.desk.Get(t.Context(), deadletter.Place{Topic: topic}); return err },
		} {
			if err := ask(); !errors.Is(err, deadletter.ErrKafka) || !strings.Contains(err.Error(), "no topic id from Kafka") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
