package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// What the API has told so far is read by programs that are out there. A text here never changes; what is
// new is a line more.
func TestWire_isAsItAlwaysWas(t *testing.T) {
	partition, offset, from := int32(3), int64(17), int64(5)
	message := Message{Topic: "orders.delay", ID: "order-7", Chosen: true, Seq: 1<<64 - 1, Due: 1900000000000, Target: "orders", State: StateWaiting, From: "orders.delay/1/9", Size: 70}
	whole := message
	whole.Expires, whole.Unreadable = 1900000001000, true
	whole.Payload = &Payload{Value: []byte("a parcel"), Headers: []PayloadHeader{{Key: "lang", Value: []byte("de")}, {Key: "null"}}}
	const told = `{"topic":"orders.delay","id":"order-7","chosen":true,"seq":"18446744073709551615","due":"1900000000000","target":"orders","state":"waiting","from":"orders.delay/1/9","size":70}`
	for _, tt := range []struct {
		value any
		text  string
	}{
		{message, told},
		{whole, `{"topic":"orders.delay","id":"order-7","chosen":true,"seq":"18446744073709551615","due":"1900000000000","expires":"1900000001000","target":"orders","state":"waiting","from":"orders.delay/1/9","size":70,"unreadable":true,"payload":{"key":null,"value":"YSBwYXJjZWw=","headers":[{"key":"lang","value":"ZGU="},{"key":"null","value":null}]}}`},
		{Page{Index: 12, Pending: 1, Messages: []Message{}}, `{"index":"12","pending":"1","messages":[]}`},
		{Page{Index: 12, Pending: 1, Messages: []Message{message}, Next: "AQ"}, `{"index":"12","pending":"1","messages":[` + told + `],"next":"AQ"}`},
		{Life{Index: 12, Outcomes: []Outcome{}}, `{"index":"12","outcomes":[],"since":"0"}`},
		{Life{Index: 12, Message: &message, Since: 5, Outcomes: []Outcome{
			{Kind: OutcomeDelivered, Seq: 4, Due: 6, At: 7, Target: "orders", Partition: &partition, Offset: &offset},
			{Kind: OutcomeReplaced, Seq: 5, By: 6, Due: 6, At: 7, Target: "orders"}, {Kind: OutcomeRefused, Due: 1, At: 2},
		}}, `{"index":"12","message":` + told + `,"outcomes":[{"kind":"delivered","seq":"4","due":"6","at":"7","target":"orders","partition":3,"offset":"17"},{"kind":"replaced","seq":"5","by":"6","due":"6","at":"7","target":"orders"},{"kind":"refused","due":"1","at":"2","target":""}],"since":"5"}`},
		{Finding{Index: 12, Message: &message}, `{"index":"12","message":` + told + `}`},
		{Finding{Index: 12, Next: "AQ"}, `{"index":"12","next":"AQ"}`},
		{Histogram{Index: 12, Pending: 10, Buckets: []Bucket{{From: &from, Target: "orders", Count: 9, Within: 2}, {To: &from}}, Unseen: 3, LeftOut: 1, Untold: &Bucket{Count: 1}},
			`{"index":"12","pending":"10","exact":false,"buckets":[{"from":"5","target":"orders","count":"9","within":"2"},{"to":"5","count":"0","within":"0"}],"unseen":"3","left_out":1,"untold":{"count":"1","within":"0"}}`},
		{Pause{Kind: PauseTarget, Name: "orders", Who: "anna", Why: "stock-taking", Since: 7}, `{"kind":"target","name":"orders","who":"anna","why":"stock-taking","since":7}`},
		{PauseChange{Changed: true}, `{"changed":true}`},
		{Explanation{Topic: "t", ID: "i", Node: "n1", AppliedIndex: 1<<64 - 1, Cluster: "c", Events: []ExplainedEvent{}}, `{"topic":"t","id":"i","node":"n1","applied_index":"18446744073709551615","cluster":"c","events":[],"known_since":"0","words":null}`},
		{ExplainedMessage{Seq: 1<<64 - 1, Due: 6, Target: "orders", Expires: 7, State: StateWaiting}, `{"seq":"18446744073709551615","due":"6","target":"orders","expires":"7","state":"waiting"}`},
		{ExplainedEvent{What: OutcomeDelivered, Seq: 4, Due: 6, At: 7, Target: "orders", Partition: &partition, Offset: &offset, Late: &from}, `{"what":"delivered","seq":"4","due":"6","at":"7","target":"orders","partition":3,"offset":"17","late_ms":"5"}`},
		{ExplainedEvent{What: OutcomeReplaced, Seq: 5, By: 6, Due: 6, At: 7, Target: "orders"}, `{"what":"replaced","seq":"5","by":"6","due":"6","at":"7","target":"orders"}`},
		// From feature level 4 on:
		{Filter{}, `{}`},
		{Filter{Topic: "a", Prefix: "b", Target: "c", From: 1, To: 2, States: []string{StateParked}, Code: "d"}, `{"topic":"a","prefix":"b","target":"c","from":"1","to":"2","states":["parked"],"code":"d"}`},
		{ScheduleRequest{}, `{}`},
		{ScheduleRequest{Topic: "orders.delay", ID: "7", DeliverAt: "1900000000000", DeliverAfter: "90s", DeliverTo: "orders", Partition: &partition, ExpiresAt: "1900000000001", ExpiresAfter: "1h",
			Key: Bytes([]byte{0, 42}), Value: Data{JSON: json.RawMessage(`{"a":"<parcel> & co"}`)}, Headers: []DataHeader{{Key: "lang", Value: Text("de")}, {Key: "null"}}, If: ConditionAbsent, IdempotencyKey: "k"},
			`{"topic":"orders.delay","id":"7","deliver_at":"1900000000000","deliver_after":"90s","deliver_to":"orders","partition":3,"expires_at":"1900000000001","expires_after":"1h","key":{"base64":"ACo="},"value":{"json":{"a":"<parcel> & co"}},"headers":[{"key":"lang","value":{"text":"de"}},{"key":"null"}],"if":"absent","idempotency_key":"k"}`},
		{ChangeRequest{}, `{}`},
		{ChangeRequest{Value: Data{Null: true}, Headers: []DataHeader{}, Reason: "r"}, `{"value":null,"headers":[],"reason":"r"}`},
		{BatchAnswer{Answers: []BatchItem{{Answer: &Answer{Code: AnswerScheduled, Topic: "orders.delay", ID: "7", Seq: 9}}, {Problem: &Problem{Title: "Conflict", Status: 409, Code: CodeTooLate, Detail: "d", Seq: 8}}}},
			`{"answers":[{"answer":{"code":"scheduled","topic":"orders.delay","id":"7","seq":"9"}},{"problem":{"title":"Conflict","status":409,"code":"too-late","detail":"d","seq":"8"}}]}`},
		{Answer{Code: AnswerReplaced, Topic: "orders.delay", ID: "7", Seq: 9, Before: 8, Again: true}, `{"code":"replaced","topic":"orders.delay","id":"7","seq":"9","before":"8","again":true}`},
		{Count{Index: 12, Count: 5, Within: 1}, `{"index":"12","count":"5","exact":false,"within":"1"}`},
		{OperationRequest{Verb: OperationCancel, Filter: Filter{Topic: "a"}, DryRun: true, Reason: "r", Rate: 100}, `{"verb":"cancel","filter":{"topic":"a"},"dry_run":true,"reason":"r","rate":100}`},
		{OperationRequest{Verb: OperationChange, All: true, Change: &BulkChange{Shift: "-1h"}}, `{"verb":"change","all":true,"change":{"shift":"-1h"}}`},
		{Operation{ID: "7", Verb: OperationNow, State: OperationRunning, UpperSeq: 1, Started: 2, Matched: 3, Within: 4, Done: 5, TooLate: 6, NotFound: 7, Failed: 8},
			`{"id":"7","verb":"now","state":"running","filter":{},"upper_seq":"1","started":"2","matched":"3","within":"4","done":"5","too_late":"6","not_found":"7","failed":"8"}`},
		{DeadLetter{Topic: "carillon.dead-letter", Partition: 1, Offset: 2, Code: "malformed", Detail: "d", Origin: "orders.delay/1/9", Time: 3, Size: 4}, `{"topic":"carillon.dead-letter","partition":1,"offset":"2","code":"malformed","detail":"d","origin":"orders.delay/1/9","time":"3","size":4}`},
		{Places{Index: 12, Places: []Place{{Name: "orders", Pending: 1}}}, `{"index":"12","places":[{"name":"orders","pending":"1","within":"0"}]}`},
	} {
		var text bytes.Buffer
		out := json.NewEncoder(&text)
		out.SetEscapeHTML(false)
		if err := out.Encode(tt.value); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(text.String()); got != tt.text {
			t.Errorf("%T\n got %s\nwant %s", tt.value, got, tt.text)
		}
		back := reflect.New(reflect.TypeOf(tt.value))
		in := json.NewDecoder(strings.NewReader(tt.text))
		in.DisallowUnknownFields()
		if err := in.Decode(back.Interface()); err != nil || !reflect.DeepEqual(back.Elem().Interface(), tt.value) {
			t.Errorf("%T read from %s: %+v, %v", tt.value, tt.text, back.Elem(), err)
		}
	}
}

func TestData_isOneOfItsKinds(t *testing.T) {
	for text, want := range map[string]string{
		`{"text":"a parcel"}`: `"a parcel"`, `{"text":""}`: `""`, `{"base64":"AAAAKg=="}`: `"\x00\x00\x00*"`, `{"base64":""}`: `""`,
		`{"json":{"b": 1, "a":12345678901234567890.10}}`: `"{\"b\": 1, \"a\":12345678901234567890.10}"`, `{"json":null}`: `"null"`, `{"json":"x"}`: `"\"x\""`,
	} {
		var d Data
		err := json.Unmarshal([]byte(text), &d)
		b, err2 := d.Bytes()
		if got := fmt.Sprintf("%q", b); err != nil || err2 != nil || b == nil || got != want {
			t.Errorf("%s: %s, %v, %v, want %s", text, got, err, err2, want)
		}
	}
	for text, want := range map[string]string{
		`{}`: "data without any", `{"text":"a","json":1}`: "data of 2 kinds", `{"text":null}`: "data without any",
		`"a"`: `"a" is not data: write {"text": "..."}`, `{"texts":"a"}`: "is not data", `{"text":7}`: "is not data",
		`{"base64":"AAAAKg"}`: `"AAAAKg" is not base64`, `{"base64":"AAAA\nKg=="}`: "is not base64", `[]`: "is not data",
	} {
		var d Data
		if err := json.Unmarshal([]byte(text), &d); !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	var r ChangeRequest
	if err := json.Unmarshal([]byte(`{"value":null}`), &r); err != nil || !r.Value.Null || !r.Key.IsZero() {
		t.Errorf("null in a change: %+v, %v", r, err)
	}
	for _, none := range []Data{{}, {Null: true}, Bytes(nil)} {
		if b, err := none.Bytes(); b != nil || err != nil {
			t.Errorf("%+v is %q, %v, want null", none, b, err)
		}
	}
	if b, err := Bytes([]byte{}).Bytes(); b == nil || len(b) != 0 || err != nil {
		t.Errorf("empty bytes are %v, %v", b, err)
	}
	if d, err := JSON(map[string]int{"parcel": 7}); err != nil || string(d.JSON) != `{"parcel":7}` {
		t.Errorf("%s, %v", d.JSON, err)
	}
	if _, err := JSON(func() {}); err == nil {
		t.Error("a function became JSON")
	}
}

func TestProblem_isTheErrorOfItsCode(t *testing.T) {
	sentinels := []error{ErrTooLate, ErrNotFound, ErrConflict, ErrKeyReused, ErrReplayed, ErrBadRequest, ErrMalformed, ErrUnauthenticated, ErrForbidden, ErrUnavailable, ErrInDoubt, ErrTooLarge, ErrUnsupported, ErrRefused}
	for code, want := range map[Code]error{
		CodeTooLate: ErrTooLate, CodeConflict: ErrConflict, CodeNotFound: ErrNotFound, CodeKeyReused: ErrKeyReused, CodeReplayed: ErrReplayed,
		CodeBadRequest: ErrBadRequest, CodeTargetNotAllowed: ErrBadRequest, CodeMalformed: ErrMalformed, CodeTooLarge: ErrTooLarge, CodeForbidden: ErrForbidden,
		CodeTokenMissing: ErrUnauthenticated, CodeTokenMalformed: ErrUnauthenticated, CodeTokenUnknown: ErrUnauthenticated,
		"token-expired": ErrUnauthenticated, "token-signature": ErrUnauthenticated, "token-of-tomorrow": ErrUnauthenticated, CodeRefused: ErrRefused,
		CodeNotLeader: ErrUnavailable, CodeUnavailable: ErrUnavailable, CodeRateLimited: ErrUnavailable, CodeInDoubt: ErrInDoubt,
		CodeIDsClosed: ErrUnsupported, CodeLevelTooLow: ErrUnsupported, CodeUnsupported: ErrUnsupported, CodeInternal: nil, "of tomorrow": nil,
	} {
		var err error = &Problem{Code: code, Detail: "words"}
		for _, sentinel := range sentinels {
			if errors.Is(err, sentinel) != (sentinel == want) {
				t.Errorf("%s is %v: %v", code, sentinel, sentinel != want)
			}
		}
		if err.Error() != "words" {
			t.Errorf("%s says %q", code, err)
		}
	}
}
