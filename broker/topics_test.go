package broker

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
)

// No value is dropped by a topic of our own making. Kafka counts two bytes for the
// length of what has 64, where ingest counts one.
func TestDeadLetter_fitsTheTopicThatWeCreate(t *testing.T) {
	refused := message.Message{Origin: message.Origin{Topic: "in.delay"}, Value: make([]byte, 100)}
	for size := len(refused.Value); size < ingest.MostRecord-130; size += 130 {
		refused.Headers = append(refused.Headers, message.Header{Key: strings.Repeat("k", 64), Value: make([]byte, 64)})
	}
	problem := message.Problem{Code: message.CodeMalformed, Message: strings.Repeat("why", 1000)}
	letter := refused.AsDeadLetter(problem, 1)
	m, err := message.FromEntry(&storage.Entry{Body: letter.AppendBody(nil, storage.LevelTwo)})
	if err != nil {
		t.Fatal(err)
	}
	const frame = 100 // of batch and record
	size := frame + len(m.Value)
	for _, h := range m.Headers {
		for _, n := range []int{len(h.Key), len(h.Value)} {
			size += n + len(binary.AppendVarint(nil, int64(n)))
		}
	}
	if size <= ingest.MostRecord || size > mostDeadLetter {
		t.Errorf("dead letter of %d bytes, the topic takes %d", size, mostDeadLetter)
	}
}
