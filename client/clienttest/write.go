package clienttest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/body"
	"github.com/carillonmq/carillon/client/head"
)

// kept is the answer that an idempotency key has.
type kept struct {
	content string
	answer  client.Answer
	problem *client.Problem
}

// schedule does what a request asks for, once for each idempotency key.
func (s *Server) schedule(r client.ScheduleRequest) (client.Answer, *client.Problem) {
	key := name{r.Topic, r.IdempotencyKey}
	if len(key.id) > client.MostKey {
		return client.Answer{}, client.BadField("idempotency_key", key.id, fmt.Sprintf("has %d bytes: use %d at most", len(key.id), client.MostKey))
	}
	r.IdempotencyKey = ""
	op, p := s.asked(r)
	if p != nil {
		return client.Answer{}, p
	}
	content, err := json.Marshal(r)
	if err != nil {
		return client.Answer{}, client.BadField("value", "", err.Error())
	}
	before, isKnown := s.answers[key]
	switch {
	case key.id == "":
		return s.carryOut(op)
	case isKnown && before.content != string(content):
		return client.Answer{}, &client.Problem{Code: client.CodeKeyReused, Field: "idempotency_key", Detail: "the idempotency key came before with another request: choose a new key for what is new, nothing was done"}
	case isKnown:
		before.answer.Again = true
		return before.answer, before.problem
	}
	answer, p := s.carryOut(op)
	s.answers[key] = kept{string(content), answer, p}
	return answer, p
}

// asked returns the operation that a request comes to.
func (s *Server) asked(r client.ScheduleRequest) (op operation, p *client.Problem) {
	if p := checkTopic(r.Topic); p != nil {
		return op, p
	}
	if !isDelayTopic(r.Topic) {
		return op, client.BadField("topic", r.Topic, "is no delay topic: those of clienttest end in "+delaySuffix)
	}
	own, p := headersOf(r.Headers)
	if p != nil {
		return op, p
	}
	headers := r.Instructions()
	in, p := parse(headers, s.now)
	if p != nil {
		return op, p
	}
	op = operation{verb: schedule, condition: in.If, seq: in.Seq, message: message{
		topic: r.Topic, id: in.ID, chosen: true, due: in.DueAt, planned: in.DueAt, expires: in.Expires, target: routed(r.Topic), partition: in.Partition,
		record: client.Record{Topic: r.Topic, Partition: -1, Headers: append(headers, own...)},
	}}
	if in.Cluster != "" && in.Cluster != Cluster {
		op.seq = 0 // of no message: it never holds
	}
	if in.To != "" {
		op.target = in.To
	}
	if op.id == "" {
		op.id = fmt.Sprintf("%s%026d", client.OwnPrefix, s.seq+1)
	}
	if p := setData(&op.message, r.Key, r.Value); p != nil {
		return op, p
	}
	if p := s.check(&op.message); p != nil {
		return op, p.asked(&r)
	}
	return op, nil
}

// setData gives the message what is there of the two.
func setData(m *message, key, value client.Data) *client.Problem {
	for _, d := range []struct {
		field string
		from  client.Data
		to    *[]byte
	}{{"key", key, &m.record.Key}, {"value", value, &m.record.Value}} {
		if d.from.IsZero() {
			continue
		}
		b, err := d.from.Bytes()
		if err != nil {
			return client.BadField(d.field, "", "is wrong: "+err.Error())
		}
		*d.to = b
	}
	if !key.IsZero() {
		m.key = nil
	}
	return nil
}

func headersOf(given []client.DataHeader) (headers []client.Header, p *client.Problem) {
	for i, h := range given {
		value, err := h.Value.Bytes()
		switch {
		case err != nil:
			return nil, client.BadField(fmt.Sprintf("headers[%d].value", i), "", "is wrong: "+err.Error())
		case strings.HasPrefix(strings.ToLower(h.Key), client.InstructionPrefix):
			return nil, client.BadField(fmt.Sprintf("headers[%d].key", i), h.Key, "is an instruction: leave it out, and write what it says as a field of the request")
		}
		headers = append(headers, client.Header{Key: h.Key, Value: value})
	}
	return headers, nil
}

// change puts a message into the place of the one that waits, which may be asked for by its seq.
func (s *Server) change(n name, condition client.Condition, seq uint64, r client.ChangeRequest) (client.Answer, *client.Problem) {
	if p := checkTopic(n.topic); p != nil {
		return client.Answer{}, p
	}
	op := operation{verb: change, condition: condition, seq: seq, message: message{topic: n.topic, id: n.id, chosen: !isOrigin(n)}}
	if was := s.standing(n); was.waits != nil && was.holds(op) {
		changed, p := s.changed(was.waits, r)
		if p != nil {
			return client.Answer{}, p
		}
		op.message = changed
	}
	return s.carryOut(op)
}

// changed returns the message as the request wants it.
func (s *Server) changed(m *message, r client.ChangeRequest) (message, *client.Problem) {
	full := client.ScheduleRequest{DeliverAt: r.DeliverAt, DeliverAfter: r.DeliverAfter, DeliverTo: r.DeliverTo, Partition: r.Partition, ExpiresAt: r.ExpiresAt, ExpiresAfter: r.ExpiresAfter}
	if r.DeliverAt == "" && r.DeliverAfter == "" {
		full.DeliverAt = rfc3339(m.planned)
	}
	if r.ExpiresAt == "" && r.ExpiresAfter == "" && m.expires != 0 {
		full.ExpiresAt = rfc3339(m.expires)
	}
	in, p := parse(full.Instructions(), s.now)
	if p != nil {
		return message{}, p
	}
	own, p := headersOf(r.Headers)
	if p != nil {
		return message{}, p
	}
	changed := *m
	changed.due, changed.planned, changed.expires = in.DueAt, in.DueAt, in.Expires
	if r.Partition != nil || in.To != "" && in.To != m.target { // a partition goes with the target it was chosen for
		changed.partition = in.Partition
	}
	if in.To != "" {
		changed.target = in.To
	}
	if r.Headers != nil {
		changed.record.Headers = own
	}
	if p := setData(&changed, r.Key, r.Value); p != nil {
		return message{}, p
	}
	if p := s.check(&changed); p != nil {
		return message{}, p.asked(&full)
	}
	return changed, nil
}

// deliverNow has the one that waits be due at once.
func (s *Server) deliverNow(n name, condition client.Condition, seq uint64) (client.Answer, *client.Problem) {
	due := s.now
	if was := s.standing(n); was.waits != nil {
		due = min(due, was.waits.due)
	}
	return s.change(n, condition, seq, client.ChangeRequest{DeliverAt: rfc3339(due)})
}

// parse reads instructions; what is wrong is told in the names of the fields that they were made of.
func parse(headers []client.Header, now int64) (client.Instruction, *client.Problem) {
	in, err := client.Parse(headers, now)
	if wrong, ok := errors.AsType[*client.HeaderError](err); ok {
		return in, wrong.OfField()
	}
	return in, nil
}

// asked is the problem of a record as one of a request, which said this.
func (p *problem) asked(said *client.ScheduleRequest) *client.Problem {
	told := &client.Problem{Code: client.CodeBadRequest, Field: "deliver_to", Value: said.DeliverTo, Detail: p.detail}
	switch {
	case p.code != codeBeyondMaxDelay:
	case said.DeliverAt != "":
		told.Field, told.Value = "deliver_at", said.DeliverAt
	default:
		told.Field, told.Value = "deliver_after", said.DeliverAfter
	}
	return told
}

// read decodes the body of a request, which may be left out where that is allowed.
func read(r *http.Request, into any, optional bool) *client.Problem {
	text, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return &client.Problem{Code: client.CodeTooLarge, Field: body.Whole, Detail: "the body is too large, send less at a time: " + err.Error()}
	case len(text) == 0 && optional:
		return nil
	case len(text) == 0:
		return &client.Problem{Code: client.CodeBadRequest, Field: body.Whole, Detail: "request body is required"}
	}
	if wrong, ok := errors.AsType[*body.Fault](body.Read(text, into)); ok {
		return &client.Problem{Code: client.CodeBadRequest, Field: wrong.Field, Value: wrong.Value, Detail: wrong.Words}
	}
	return nil
}

// check refuses a request that could be taken for another one, or says what counts for nothing. Parameters of a
// question are looked at where it is answered.
func check(r *http.Request) *client.Problem {
	asked, p := head.Query(r.URL)
	if p = cmp.Or(p, head.CheckConditions(r.Header), head.Unused(r, func(name string) bool { return takes(r.Pattern, name) })); p != nil || r.Method == http.MethodGet {
		return p
	}
	hasReason := r.Method == http.MethodDelete || strings.HasSuffix(r.Pattern, "/now") || strings.HasSuffix(r.Pattern, "/stop")
	for name, values := range asked {
		if name != "reason" || !hasReason {
			return client.BadField(name, values[0], "is no parameter of this: leave it out, or correct its name")
		}
	}
	return nil
}

// checkBody refuses one where none is taken, and one of another kind.
func checkBody(r *http.Request, taken bool) *client.Problem {
	if taken {
		return head.CheckKind(r.Header)
	}
	text, _ := io.ReadAll(r.Body) // of one that is cut short a part tells as much
	if len(text) == 0 {
		return nil
	}
	return head.Unread(string(text))
}

// takes reports whether a request depends on a condition that it is given with.
func takes(pattern, condition string) bool {
	method, path, _ := strings.Cut(pattern, " ")
	schedules := method == http.MethodPut || pattern == "POST /v1/messages"
	switch condition {
	case "If-Match":
		return method != http.MethodGet && strings.HasPrefix(path, "/v1/messages")
	case "If-None-Match":
		return schedules
	}
	return schedules || pattern == "POST /v1/operations"
}

// condition reads If-Match and If-None-Match.
func condition(r *http.Request) (client.Condition, uint64, *client.Problem) {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case match == "" && none == "":
		return client.Always, 0, nil
	case match == "" && none == "*":
		return client.Absent, 0, nil
	case none != "":
		return 0, 0, client.BadField("If-None-Match", none, "is not *, or stands beside If-Match")
	case match == "*":
		return client.Present, 0, nil
	}
	text, err := strconv.Unquote(match)
	seq, err2 := strconv.ParseUint(text, 10, 64)
	if err != nil || err2 != nil || seq == 0 {
		return 0, 0, client.BadField("If-Match", match, `is no ETag of a message: give one, such as "42" with its quotes, or *`)
	}
	return client.Exactly, seq, nil
}
