package deadletter

import (
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
)

// A Record is one of a dead-letter topic as Kafka has it.
type Record struct {
	Offset     int64
	Time       int64 // epoch milliseconds
	Key, Value []byte
	Headers    []message.Header
}

// Size returns about what the record takes, in bytes.
func (r *Record) Size() int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += h.Size()
	}
	return n
}

// last returns the value of the last header of the name, which is the one that counts: a dead letter
// that somebody has produced again has those of before.
func (r *Record) last(name string) (value string, found bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value), true
		}
	}
	return "", false
}

// origin returns where the record came from; false: it is no dead letter.
func (r *Record) origin() (o message.Origin, isLetter bool) {
	topic, _ := r.last(client.HeaderErrorTopic)
	partition, _ := r.last(client.HeaderErrorPartition)
	offset, _ := r.last(client.HeaderErrorOffset)
	code, _ := r.last(client.HeaderErrorCode)
	p, err1 := strconv.ParseInt(partition, 10, 32)
	at, err2 := strconv.ParseInt(offset, 10, 64)
	return message.Origin{Topic: topic, Partition: int32(p), Offset: at}, topic != "" && code != "" && err1 == nil && err2 == nil
}

// mostDetail bounds the words of a dead letter in a list, in bytes: the topic is anybody's who may write
// to it.
const mostDetail = 4 << 10

// tell returns what is told of a record without its payload. The target is the one of deliver-to, or
// else what targetOf says of the delay topic.
func tell(p *Partition, r *Record, targetOf func(topic string) string) client.DeadLetter {
	told := client.DeadLetter{Topic: p.Topic, Partition: p.Number, Offset: r.Offset, Time: r.Time, Size: r.Size()}
	origin, isLetter := r.origin()
	if !isLetter {
		told.Foreign = true
		return told
	}
	told.Origin, told.DelayTopic = cut(origin.String()), cut(origin.Topic)
	told.Code, _ = r.last(client.HeaderErrorCode)
	told.Detail, _ = r.last(client.HeaderErrorMessage)
	told.Code, told.Detail = cut(told.Code), cut(told.Detail)
	told.ID, _ = r.last(client.HeaderID)
	told.ID = cut(told.ID)
	var found bool
	if told.Target, found = r.last(client.HeaderTo); !found {
		told.Target = targetOf(origin.Topic)
	}
	told.Target = cut(told.Target)
	return told
}

func cut(text string) string {
	if len(text) > mostDetail {
		text = text[:mostDetail] + "..."
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// payload returns the record as it is.
func payload(r *Record) *client.Payload {
	p := &client.Payload{Key: r.Key, Value: r.Value, Headers: make([]client.PayloadHeader, len(r.Headers))}
	for i, h := range r.Headers {
		p.Headers[i] = client.PayloadHeader{Key: h.Key, Value: h.Value}
	}
	return p
}
