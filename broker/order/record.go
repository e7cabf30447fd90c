package order

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/ingest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// What is asked for is made into the record that a producer would have sent, and goes through the very
// decision that such a record meets: so both ways have the same limits, and the same words.

// crockford is base32 without letters that are taken for others.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// newID returns an id that no other message has. The same request with the same idempotency key always gets
// the same one: a repetition tells it, and replaces the message that waits, should the key be forgotten by
// then. Another request with that key gets another id: it must not replace a message that it does not mean,
// and that its caller perhaps may not touch.
func newID(topic, key string, once raftfsm.Once) string {
	var random [16]byte
	if key != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%016x/%s", topic, once.Content, key)) // a topic has no slash
		copy(random[:], sum[:])
	} else {
		rand.Read(random[:]) // never fails
	}
	return message.OwnPrefix + crockford.EncodeToString(random[:])
}

// scheduled returns the operation that a request comes to, or the problem with it.
func (d *Desk) scheduled(r *client.ScheduleRequest, may Scope, now int64) (op raftfsm.Operation, problem *client.Problem) {
	route, problem := d.routeOf(r.Topic)
	if problem != nil {
		return op, problem
	}
	if route.Partitioner == message.SamePartition && r.Partition == nil {
		return op, client.BadField("partition", "", fmt.Sprintf("is missing, and no record tells it: routes[].partitioner of %q is source: name a partition of the target", route.From))
	}
	own, problem := headersOf(r.Headers)
	if problem != nil {
		return op, problem
	}
	a, problem := arrival(append(r.Instructions(), own...), r.Key, r.Value, now)
	if problem != nil {
		return op, problem
	}
	keyed, problem := once(r)
	if problem != nil {
		return op, problem
	}
	if a.Instruction.ID == "" {
		a.Instruction.ID = newID(r.Topic, r.IdempotencyKey, keyed)
	}
	op, problem = d.judged(route, message.Origin{Topic: r.Topic, Partition: message.NoPartition}, a, now, r)
	if keyed != (raftfsm.Once{}) {
		op.Once = &keyed
	}
	if problem == nil && may != nil {
		problem = may(r, op.Entry.Target)
	}
	return op, problem
}

func (d *Desk) routeOf(topic string) (config.Route, *client.Problem) {
	if err := config.CheckTopicName(topic); err != nil {
		return config.Route{}, badTopic(topic, err)
	}
	route, ok := d.config.Route(topic)
	if !ok {
		return route, client.BadField("topic", topic, "is no delay topic: name one that routes[].from of the configuration matches")
	}
	return route, nil
}

// badTopic is the problem of a request with such a topic; the error, of config.CheckTopicName, names it.
func badTopic(topic string, err error) *client.Problem {
	p := client.BadField("topic", topic, "")
	p.Detail = err.Error()
	return p
}

// headersOf returns those that the delivered record has.
func headersOf(given []client.DataHeader) (headers []client.Header, problem *client.Problem) {
	for i, h := range given {
		value, err := h.Value.Bytes()
		switch {
		case err != nil:
			return nil, client.BadField(fmt.Sprintf("headers[%d].value", i), "", dataError(err))
		case strings.HasPrefix(strings.ToLower(h.Key), client.InstructionPrefix):
			return nil, client.BadField(fmt.Sprintf("headers[%d].key", i), h.Key, "is an instruction: leave it out, and write what it says as a field of the request")
		}
		headers = append(headers, client.Header{Key: h.Key, Value: value})
	}
	return headers, nil
}

// arrival returns the record as if it had been read from Kafka, with the time as its timestamp.
func arrival(headers []client.Header, key, value client.Data, now int64) (*ingest.Arrival, *client.Problem) {
	in, err := client.Parse(headers, now)
	if wrong, ok := errors.AsType[*client.HeaderError](err); ok {
		return nil, wrong.OfField()
	}
	a := &ingest.Arrival{Instruction: ingest.Instruction{
		DueAt: in.DueAt, Expires: in.Expires, To: in.To, Partition: in.Partition, ID: in.ID,
		If: ingest.Condition(in.If), Seq: in.Seq, Cluster: in.Cluster,
	}}
	if a.Key, err = key.Bytes(); err != nil {
		return nil, client.BadField("key", "", dataError(err))
	}
	if a.Value, err = value.Bytes(); err != nil {
		return nil, client.BadField("value", "", dataError(err))
	}
	for _, h := range headers {
		a.Headers = append(a.Headers, message.Header(h))
	}
	return a, nil
}

// judged returns what the decision of intake makes of what was said.
func (d *Desk) judged(route config.Route, origin message.Origin, a *ingest.Arrival, now int64, said *client.ScheduleRequest) (raftfsm.Operation, *client.Problem) {
	op, problem := d.judge().Operation(route, origin, a, d.store.Level(), now)
	if problem == nil {
		return op, nil
	}
	return raftfsm.Operation{}, refused(problem, a.Instruction.To, said)
}

// refused tells a problem of intake to who has asked for this, with that target.
func refused(problem *message.Problem, to string, said *client.ScheduleRequest) *client.Problem {
	told := &client.Problem{Code: client.CodeBadRequest, Detail: problem.Message}
	switch problem.Code {
	case message.CodeTargetDenied:
		told.Code, told.Field, told.Value = client.CodeTargetNotAllowed, "deliver_to", to
	case message.CodeTargetInvalid:
		told.Field, told.Value = "deliver_to", to
	case message.CodeBeyondMaxDelay:
		told.Field, told.Value = "deliver_at", said.DeliverAt
		if said.DeliverAt == "" {
			told.Field, told.Value = "deliver_after", said.DeliverAfter
		}
	case message.CodeTooLarge:
		told.Code = client.CodeTooLarge
	}
	return told
}

// dataError is what is wrong with data, behind the name of its field.
func dataError(err error) string {
	return "is wrong: " + strings.TrimPrefix(err.Error(), client.ErrBadRequest.Error()+": ")
}

// levelOf returns the problem that keeps ids from being asked for, or nil. What a node says of the level that has not
// applied its log is not the cluster's.
func (d *Desk) levelOf(needs storage.Level) *client.Problem {
	if err := d.begun(); err != nil {
		return problemOf(err)
	}
	level := d.store.Level()
	switch {
	case level < needs:
		return &client.Problem{Code: client.CodeLevelTooLow, Detail: fmt.Sprintf("the feature level is %d, this takes %d: run `carillon cluster raise` when all nodes run a program that understands it", level, needs)}
	case !d.store.IDsOpen():
		return &client.Problem{Code: client.CodeIDsClosed, Detail: "the cluster has come to feature level 3 a moment ago, and still reads the ids of messages that wait: ask again in some minutes"}
	}
	return nil
}
