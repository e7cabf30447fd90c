package kafka

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func TestPartitionWithoutLeaderIsLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders.delay", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
		found, complete, err := r.Discover(t.Context())
		if err != nil || complete || len(found) != 2 || found[0].Partition != 0 || found[1].Partition != 2 {
			t.Errorf("found %+v, all %v, %v, want partitions 0 and 2, not all", found, complete, err)
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
			found, complete, err := newReader(t, kafka).Discover(t.Context())
			if err != nil || complete != want || len(found) != 0 {
				t.Errorf("%s has an error: found %+v, all %v, %v, want nothing, all %v", topic, found, complete, err, want)
			}
		})
	}
}

// Without ids, all topics would share the positions of one.
func TestKafkaWithoutTopicIDsIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, kafka bubble) {
		r := newReader(t, kafka)
		_, _, err := r.Discover(t.Context())
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
		if found, _, err := r.Discover(t.Context()); err == nil || time.Since(start) > 2*discoverTimeout {
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
		if found, _, err := r.Discover(t.Context()); err == nil {
			t.Errorf("found %+v: every partition would be taken away", found)
		}
		synctest.Wait()
	}, kfake.SeedTopics(1, "orders.delay"))
}
