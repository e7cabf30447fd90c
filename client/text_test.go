package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAdmin_sendsNothingThatWouldBecomeAnotherRequest(t *testing.T) {
	node := &fakeNode{answers: []answer{says(`{"answers":[{}]}`)}}
	server := httptest.NewServer(node)
	defer server.Close()
	admin, err := NewAdmin([]string{server.URL}, AdminOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx := t.Context()
	const no = "order-\xe9"
	for field, send := range map[string]func() error{
		"id":       func() error { _, err := admin.Schedule(ctx, ScheduleRequest{Topic: "a", ID: no}); return err },
		"key.text": func() error { _, err := admin.Schedule(ctx, ScheduleRequest{Topic: "a", Key: Text(no)}); return err },
		"messages[0].headers[0].value.text": func() error {
			_, err := admin.ScheduleBatch(ctx, []ScheduleRequest{{Headers: []DataHeader{{Key: "a", Value: Text(no)}}}})
			return err
		},
		"filter.prefix": func() error {
			_, err := admin.StartOperation(ctx, OperationRequest{Verb: OperationCancel, Filter: Filter{Prefix: no}})
			return err
		},
		"change.deliver_to": func() error {
			_, err := admin.StartOperation(ctx, OperationRequest{Verb: OperationChange, Change: &BulkChange{DeliverTo: no}})
			return err
		},
		"why":    func() error { _, err := admin.Pause(ctx, Pause{Kind: PauseTopic, Name: "a", Why: no}); return err },
		"path":   func() error { _, err := admin.Get(ctx, "a", no); return err },
		"reason": func() error { _, err := admin.Cancel(ctx, Name{Topic: "a", ID: "b"}, no); return err },
		"prefix": func() error { _, err := admin.Count(ctx, Filter{Prefix: no}); return err },
		"topic": func() (err error) {
			for _, err = range admin.Messages(ctx, Filter{Topic: no}) {
			}
			return err
		},
	} {
		err := send()
		p, isProblem := errors.AsType[*Problem](err)
		if !isProblem || !errors.Is(err, ErrBadRequest) || p.Field != field || !strings.Contains(p.Detail, `order-\xe9" is not UTF-8`) || p.Status != http.StatusBadRequest {
			t.Errorf("%s: %v (%+v)", field, err, p)
		}
	}
	if asked := node.requests(); len(asked) > 0 {
		t.Errorf("the node was asked %q", asked)
	}
}
