package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/client/body"
)

// A ScheduleRequest is a message to deliver later. It belongs to a delay topic, whose route decides
// limits, target and partitioner as for a record, and which need not exist in Kafka. Texts are written as
// the values of the headers of the same name: see the package.
type ScheduleRequest struct {
	Topic        string `json:"topic,omitempty"`         // the delay topic
	ID           string `json:"id,omitempty"`            // as HeaderID; "": the cluster makes one, which begins with api/
	DeliverAt    string `json:"deliver_at,omitempty"`    // as HeaderAt; wins over DeliverAfter
	DeliverAfter string `json:"deliver_after,omitempty"` // as HeaderAfter, counted from when the cluster takes the request
	DeliverTo    string `json:"deliver_to,omitempty"`    // as HeaderTo
	Partition    *int32 `json:"partition,omitempty"`     // as HeaderPartition; nil: by the key
	ExpiresAt    string `json:"expires_at,omitempty"`    // as HeaderExpiresAt
	ExpiresAfter string `json:"expires_after,omitempty"` // as HeaderExpiresAfter

	Key     Data         `json:"key,omitzero"`   // of the delivered record; absent: Kafka's null
	Value   Data         `json:"value,omitzero"` // likewise
	Headers []DataHeader `json:"headers,omitempty"`

	// If is what must hold for it to take effect, as HeaderIf has it: ConditionAbsent, ConditionPresent, a seq, or "".
	// Over HTTP a request for one message may say it with If-Match and If-None-Match instead.
	If string `json:"if,omitempty"`
	// IdempotencyKey, 1 to 256 bytes, makes a repetition harmless: the same content with the same key takes
	// effect once, other content is refused. It is known as long as outcomes are. Over HTTP a request for
	// one message may give it as the header Idempotency-Key instead. It needs feature level 4.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Instructions returns the headers that have a record say what the fields of the request do, but for its key,
// value and own headers.
func (r *ScheduleRequest) Instructions() (headers []Header) {
	add := func(name, value string) {
		if value != "" {
			headers = append(headers, Header{Key: name, Value: []byte(value)})
		}
	}
	add(HeaderAt, r.DeliverAt)
	add(HeaderAfter, r.DeliverAfter)
	add(HeaderTo, r.DeliverTo)
	if r.Partition != nil {
		add(HeaderPartition, strconv.Itoa(int(*r.Partition)))
	}
	add(HeaderID, r.ID)
	add(HeaderIf, r.If)
	add(HeaderExpiresAt, r.ExpiresAt)
	add(HeaderExpiresAfter, r.ExpiresAfter)
	return headers
}

// Values of the field If of requests, beside a seq.
const (
	ConditionAbsent  = ifAbsent  // no message waits under the id
	ConditionPresent = ifPresent // one does
)

// A BatchRequest schedules many messages, 1,000 at most, each for itself.
type BatchRequest struct {
	Messages []ScheduleRequest `json:"messages"`
}

// A BatchAnswer has what came of each message of a [BatchRequest], in its order.
type BatchAnswer struct {
	Answers []BatchItem `json:"answers"`
}

// A BatchItem is what came of one message: one of the two is there.
type BatchItem struct {
	Answer  *Answer  `json:"answer,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
}

// MostKey is the length of the longest idempotency key, in bytes.
const MostKey = 256

// A ChangeRequest says what is to be different of a message that waits. What is left out stays as it is,
// but the partition where DeliverTo names another target.
type ChangeRequest struct {
	DeliverAt    string `json:"deliver_at,omitempty"`
	DeliverAfter string `json:"deliver_after,omitempty"` // from when the cluster takes the request
	DeliverTo    string `json:"deliver_to,omitempty"`
	Partition    *int32 `json:"partition,omitempty"`
	ExpiresAt    string `json:"expires_at,omitempty"`
	ExpiresAfter string `json:"expires_after,omitempty"`

	Key     Data         `json:"key,omitzero"`     // null in JSON, or Null: Kafka's null
	Value   Data         `json:"value,omitzero"`   // likewise
	Headers []DataHeader `json:"headers,omitzero"` // all of them; nil: they stay; empty: there are none any more

	Reason string `json:"reason,omitempty"` // why, for the log of the cluster
}

// Check returns what is wrong with a request that leaves everything as it is, or nil. A reason changes nothing.
func (r *ChangeRequest) Check() *Problem {
	times := r.DeliverAt + r.DeliverAfter + r.ExpiresAt + r.ExpiresAfter
	if times+r.DeliverTo != "" || r.Partition != nil || !r.Key.IsZero() || !r.Value.IsZero() || r.Headers != nil {
		return nil
	}
	return BadField("body", "", "is missing what is to be different: give deliver_at or deliver_after, deliver_to, partition, expires_at or expires_after, key, value or headers")
}

// Data is a key or a value as JSON carries it: one of Text, Base64 and JSON is there, or Null is set. The
// zero value is absent: in a [ScheduleRequest] that is Kafka's null, in a [ChangeRequest] it leaves what
// there is.
//
//	{"text": "a parcel"}   {"base64": "AAAAAAAAACo="}   {"json": {"parcel": 7}}   null
type Data struct {
	Text   *string         `json:"text,omitempty"`
	Base64 *string         `json:"base64,omitempty"` // RFC 4648, with padding
	JSON   json.RawMessage `json:"json,omitempty"`   // delivered as it is written in the request, blanks and all; Go sends none
	Null   bool            `json:"-"`                // Kafka's null, said in words
}

// A DataHeader is a header of the delivered record. An absent value is Kafka's null.
type DataHeader struct {
	Key   string `json:"key"`
	Value Data   `json:"value,omitzero"`
}

// Text returns data that is text, UTF-8. A request with any other is refused, [ErrBadRequest], and not sent:
// [Bytes] is for what may be no text.
func Text(text string) Data { return Data{Text: &text} }

// Bytes returns data that is any bytes; nil is Kafka's null.
func Bytes(b []byte) Data {
	if b == nil {
		return Data{Null: true}
	}
	text := base64.StdEncoding.EncodeToString(b)
	return Data{Base64: &text}
}

// JSON returns data that is the value in JSON, as json.Marshal writes it, with U+FFFD in the place of bytes
// that are not UTF-8.
func JSON(value any) (Data, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return Data{}, fmt.Errorf("write data as JSON: %w", err)
	}
	return Data{JSON: text}, nil
}

// IsZero reports whether the data is absent.
func (d Data) IsZero() bool { return d.Text == nil && d.Base64 == nil && d.JSON == nil && !d.Null }

// Bytes returns what the record has; nil is Kafka's null, also of what is absent. The error, which says
// what to write instead, is for data of more than one kind and for base64 that is none.
func (d Data) Bytes() ([]byte, error) {
	kinds := 0
	for _, there := range []bool{d.Text != nil, d.Base64 != nil, d.JSON != nil, d.Null} {
		if there {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return nil, fmt.Errorf("%w: data of %d kinds: give one of text, base64 and json, or null", ErrBadRequest, kinds)
	case d.Text != nil:
		return append([]byte{}, *d.Text...), nil
	case d.JSON != nil:
		return d.JSON, nil
	case d.Base64 == nil:
		return nil, nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(*d.Base64)
	if err != nil || strings.ContainsAny(*d.Base64, "\r\n") { // which the decoder passes over
		return nil, fmt.Errorf("%w: %q is not base64: use A-Z a-z 0-9 + / with padding, such as AAAAKg==, in one line", ErrBadRequest, cut(*d.Base64))
	}
	return b, nil
}

// MarshalJSON writes null for data that is absent, too: leave it out with omitzero.
func (d Data) MarshalJSON() ([]byte, error) {
	if d.Null || d.IsZero() {
		return []byte("null"), nil
	}
	type plain Data
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false) // JSON in it stays as it is
	err := out.Encode(plain(d))
	return text.Bytes(), err
}

// UnmarshalJSON reads an object with one of the three kinds, and null. Whatever else there is in it is an
// error that wraps ErrBadRequest.
func (d *Data) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*d = Data{Null: true}
		return nil
	}
	type plain Data
	var read plain
	if err := body.Read(text, &read); err != nil {
		return fmt.Errorf(`%w: %s is not data: write {"text": "..."}, {"base64": "..."}, {"json": ...} or null: %w`, ErrBadRequest, cut(string(text)), err)
	}
	*d = Data(read)
	if d.IsZero() {
		return fmt.Errorf(`%w: data without any: write {"text": "..."}, {"base64": "..."}, {"json": ...} or null`, ErrBadRequest)
	}
	_, err := d.Bytes()
	return err
}

// An Answer is what came of a request that took effect, or that had taken effect before. What took none
// is a [Problem].
type Answer struct {
	Code  string `json:"code"` // AnswerScheduled and so on
	Topic string `json:"topic"`
	ID    string `json:"id"` // the one given, or the one the cluster made
	// Seq is the number of the message: of the new one, or of the one that was cancelled. The ETag has it, too.
	Seq uint64 `json:"seq,string"`
	// Before is the message that had the id until then, which gave way or is on its way still; 0: none.
	Before  uint64   `json:"before,omitempty,string"`
	Outcome *Outcome `json:"outcome,omitempty"` // of the message that was cancelled before
	// Again: a request with this IdempotencyKey was answered before, and this is that answer.
	Again bool `json:"again,omitempty"`
}

// The codes of an [Answer].
const (
	AnswerScheduled        = "scheduled"         // the message waits; Before, if there is one, is on its way still
	AnswerReplaced         = "replaced"          // the message waits in the place of Before, which is never delivered
	AnswerCancelled        = "cancelled"         // the message that waited is never delivered
	AnswerAlreadyCancelled = "already-cancelled" // it was cancelled before; Outcome tells when
)
