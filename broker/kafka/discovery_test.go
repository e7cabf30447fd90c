package kafka

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/carillonmq/carillon/broker/ingest"
)

func TestPartitionWithoutLeaderIsLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders.delay", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
		found, complete := r.look()
		if complete || len(found) != 2 || found[0].Partition != 0 || found[1].Partition != 2 {
			t.Errorf("found %+v, all %v, want partitions 0 and 2, not all", found, complete)
		}
	}, kfake.SeedTopics(3, "orders.delay"))
}

func TestTopicWithAnErrorIsLeftOut(t *testing.T) {
	for topic, want := range map[string]bool{"orders.delay": false, "orders": true} {
		inBubble(t, func(t *testing.T, kafka bubble) {
			kafka.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
				kafka.KeepControl()
				response := request.ResponseKind().(*kmsg.MetadataResponse)
				response.Brokers = []kmsg.MetadataResponseBroker{{Host: "localhost", Port: 9092}}
				response.Topics = []kmsg.MetadataResponseTopic{{Topic: &topic, ErrorCode: kerr.LeaderNotAvailable.Code}}
				return response, nil, true
			})
			found, complete := newReader(t, kafka).look()
			if complete != want || len(found) != 0 {
				t.Errorf("%s has an error: found %+v, all %v, want nothing, all %v", topic, found, complete, want)
			}
		})
	}
}

// Without ids, all topics would share the positions of one.
func TestKafkaWithoutTopicIDsIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		_, _, err := r.Topics(t.Context(), nil)
		want := `kafka.brokers localhost:9092: topic "orders.delay": no topic id from Kafka: upgrade it to 2.8 or newer`
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}, kfake.SeedTopics(1, "orders.delay"), kfake.MaxVersions(kversion.V2_7_0()))
}

func TestDiscoverWithoutKafkaFailsInBoundedTime(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		kafka.Close()
		start := time.Now()
		if found, _, err := r.Topics(t.Context(), nil); err == nil || time.Since(start) > 2*discoverTimeout || !strings.HasSuffix(err.Error(), "; check kafka.brokers and that Kafka runs") {
			t.Errorf("found %+v, %v after %v", found, err, time.Since(start))
		}
	})
}

func TestDiscoverFailsWhenNoOffsetsAreTold(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		kafka.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
			kafka.KeepControl()
			return nil, errors.New("connection reset"), true
		})
		question := ingest.OffsetsQuestion{Topic: "orders.delay", ReadEpoch: -1}
		if answers, err := r.Offsets(t.Context(), []ingest.OffsetsQuestion{question}); err == nil {
			t.Errorf("answers %+v: Kafka is silent", answers)
		}
		synctest.Wait()
	}, kfake.SeedTopics(1, "orders.delay"))
}

// A topic that is named is told of in any case, and why there is no more to say.
func TestNamedTopicsAreToldOf(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		topics, _, err := r.Topics(t.Context(), []string{"gone.delay", "orders.delay"})
		if err != nil || len(topics) != 2 || !errors.Is(topics[0].Err, ingest.ErrSourceMissing) || len(topics[1].Partitions) != 2 {
			t.Errorf("told %+v, %v", topics, err)
		}
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders.delay", Err: kerr.TopicAuthorizationFailed, Count: -1})
		topics, _, err = r.Topics(t.Context(), []string{"orders.delay"})
		if err != nil || len(topics) != 1 || !errors.Is(topics[0].Err, ingest.ErrSourceForbidden) {
			t.Errorf("told %+v, %v", topics, err)
		}
		if topics, _, err = r.Topics(t.Context(), []string{}); err != nil || len(topics) != 0 {
			t.Errorf("nothing was named: told %+v, %v", topics, err)
		}
	}, kfake.SeedTopics(2, "orders.delay"))
}

// A leader answers only who knows its epoch: the past and the future are refused.
func TestOffsetsAreToldInOneLeaderEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		kafka.produce(delayed("0"), delayed("1"))
		r := newReader(t, kafka)
		if err := kafka.MoveTopicPartition("orders.delay", 0, 0); err != nil { // to the same one, in a new epoch
			t.Fatal(err)
		}
		kafka.produce(delayed("2"))
		found, _ := r.look()
		epoch := found[0].SourceLeader.Epoch
		if epoch < 1 || found[0].Latest != 3 || found[0].OffsetsAnswer.Epoch != epoch {
			t.Fatalf("found %+v", found[0])
		}
		for asked, want := range map[int32]error{epoch - 1: kerr.FencedLeaderEpoch, epoch: nil, epoch + 1: kerr.UnknownLeaderEpoch} {
			leader := ingest.SourceLeader{Leader: found[0].Leader, Epoch: asked}
			answers, err := r.Offsets(t.Context(), []ingest.OffsetsQuestion{{Topic: "orders.delay", SourceLeader: leader, ReadEpoch: epoch - 1}})
			if err != nil || !errors.Is(answers[0].Err, want) {
				t.Errorf("asked in epoch %d of %d: %+v, %v, want %v", asked, epoch, answers, err, want)
			}
			if want == nil && answers[0].ReadEnd != 2 {
				t.Errorf("records of epoch %d end at %d, want 2", epoch-1, answers[0].ReadEnd)
			}
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

// Offsets are asked by name. Where the id is given, who does not have that topic says nothing, a Kafka that fetches by name
// included; who may not read it has it.
func TestOffsetsAreToldOfTheTopicWithTheID(t *testing.T) {
	for name, newest := range map[string]*kversion.Versions{"3.0": kversion.V3_0_0(), "newest": kversion.Stable()} {
		inBubble(t, func(t *testing.T, kafka bubble) {
			r := newReader(t, kafka)
			id := func() ingest.TopicID {
				topics, _, err := r.Topics(t.Context(), []string{"orders.delay"})
				if err != nil {
					t.Fatal(err)
				}
				return topics[0].TopicID
			}
			ask := func(id ingest.TopicID) ingest.OffsetsAnswer {
				t.Helper()
				answers, err := r.Offsets(t.Context(), []ingest.OffsetsQuestion{{Topic: "orders.delay", TopicID: id, ReadEpoch: -1}})
				if err != nil {
					t.Fatal(err)
				}
				return answers[0]
			}
			before := id()
			kafka.produce(delayed("0"), delayed("1"))
			if told := ask(before); told.Err != nil || told.Latest != 2 {
				t.Errorf("%s: told %+v", name, told)
			}
			if _, err := kafka.admin().DeleteTopic(t.Context(), "orders.delay"); err != nil {
				t.Fatal(err)
			}
			if _, err := kafka.admin().CreateTopic(t.Context(), 1, 1, nil, "orders.delay"); err != nil {
				t.Fatal(err)
			}
			after := id()
			if told := ask(before); !errors.Is(told.Err, ingest.ErrSourceMissing) {
				t.Errorf("%s: of the topic before: %+v", name, told)
			}
			for _, id := range []ingest.TopicID{after, {}} {
				if told := ask(id); told.Err != nil || told.Latest != 0 {
					t.Errorf("%s: of the topic that is there: %+v", name, told)
				}
			}
			kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders.delay", Err: kerr.TopicAuthorizationFailed, Count: -1})
			if told := ask(after); told.Err != nil {
				t.Errorf("%s: of a topic that may not be read: %+v", name, told)
			}
		}, kfake.SeedTopics(1, "orders.delay"), kfake.MaxVersions(newest))
	}
}

// Who is over its quota is answered a fetch with nothing.
func TestOffsetsOfAThrottledNodeSaySo(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		kafka.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
			kafka.KeepControl()
			response := request.ResponseKind().(*kmsg.FetchResponse)
			response.ThrottleMillis = 1000
			return response, nil, true
		})
		answers, err := r.Offsets(t.Context(), []ingest.OffsetsQuestion{{Topic: "orders.delay", TopicID: ingest.TopicID{1}, ReadEpoch: -1}})
		if err != nil || !errors.Is(answers[0].Err, errThrottled) {
			t.Errorf("told %+v, %v", answers, err)
		}
	}, kfake.SeedTopics(1, "orders.delay"))
}

// Who has not heard of a topic with that id, or has the log of the one before it, says nothing of it.
func TestSourceError_tellsWhoHasNoTopicWithThatID(t *testing.T) {
	for err, missing := range map[error]bool{
		kerr.UnknownTopicID: true, kerr.InconsistentTopicID: true, kerr.UnknownTopicOrPartition: true,
		kerr.OffsetOutOfRange: false, kerr.NotLeaderForPartition: false,
	} {
		if got := errors.Is(sourceError(err), ingest.ErrSourceMissing); got != missing {
			t.Errorf("%v: missing is %t", err, got)
		}
	}
}
