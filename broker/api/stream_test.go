package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// A longStore has so many messages, and after some pages of them nothing but errors.
type longStore struct {
	oneMessage
	messages, pages int
	asked           *int
}

func (longStore) ClusterID() [16]byte { return [16]byte{1} }

func (s longStore) List(_ context.Context, q storage.ListQuery) (storage.Page, error) {
	if *s.asked++; s.pages > 0 && *s.asked > s.pages {
		return storage.Page{}, fmt.Errorf("read: the disk is gone")
	}
	page := storage.Page{Moment: storage.Moment{Index: 12, Pending: uint64(s.messages)}}
	first := max(q.From.Due, 1)
	for due := first; due <= int64(s.messages); due++ {
		if len(page.Items) == q.Limit {
			page.Next = storage.Ref{Due: due}
			return page, nil
		}
		m := message.Message{ID: fmt.Sprint("m-", due), Origin: message.Origin{Topic: "orders.delay"}, Value: []byte("a parcel")}
		e := m.Entry(due, "orders", storage.LevelFour)
		page.Items = append(page.Items, storage.Listed{Item: storage.Item{Ref: storage.Ref{Due: due, Seq: uint64(due)}, Target: e.Target, Topic: e.Topic, ID: e.ID, Size: len(e.Body)}, Standing: storage.Waiting, Body: e.Body})
	}
	page.Done = true
	return page, nil
}

// streamed returns the ids that came, and the last line.
func streamed(t *testing.T, s longStore, path string) (ids []string, last lastLine) {
	t.Helper()
	s.asked = new(int)
	n := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}, desk: query.New(s, leads{})}
	request := httptest.NewRequest("GET", path, nil)
	request.Header.Set("Accept", "application/x-ndjson, application/json;q=0.5")
	answer := &streamRecorder{ResponseRecorder: httptest.NewRecorder()}
	handlerOf(n).ServeHTTP(answer, request)
	if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != ndjsonType {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	lines := strings.Split(strings.TrimSuffix(answer.Body.String(), "\n"), "\n")
	for _, line := range lines[:len(lines)-1] {
		var m client.Message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	in := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	in.DisallowUnknownFields()
	if err := in.Decode(&last); err != nil {
		t.Fatal(err)
	}
	return ids, last
}

func TestStream_tellsAllPages(t *testing.T) {
	for _, test := range []struct {
		path         string
		messages     int
		first, count int
		end          bool
	}{
		{"/v1/messages", 0, 1, 0, true},
		{"/v1/messages", 1000, 1, 1000, true},
		{"/v1/messages", 2500, 1, 2500, true},
		{"/v1/messages?limit=1200", 2500, 1, 1200, false},
		{"/v1/messages?limit=2500", 2500, 1, 2500, true},
	} {
		ids, last := streamed(t, longStore{messages: test.messages}, test.path)
		if len(ids) != test.count || last.End != test.end || (last.Cursor == "") != test.end || last.Problem != nil {
			t.Errorf("%s of %d: %d messages and %+v", test.path, test.messages, len(ids), last)
		}
		for i, id := range ids {
			if id != fmt.Sprint("m-", test.first+i) {
				t.Fatalf("%s: message %d is %s", test.path, i, id)
			}
		}
		if !test.end { // it goes on where it stopped
			rest, last := streamed(t, longStore{messages: test.messages}, "/v1/messages?cursor="+last.Cursor)
			if !last.End || len(rest) != test.messages-test.count || rest[0] != fmt.Sprint("m-", test.count+1) {
				t.Errorf("%s: %d more from %s, %+v", test.path, len(rest), rest[0], last)
			}
		}
	}
}

// What breaks on the way says where to go on, and why.
func TestStream_saysWhereItBroke(t *testing.T) {
	ids, last := streamed(t, longStore{messages: 2500, pages: 2}, "/v1/messages")
	if len(ids) != 2000 || last.End || last.Cursor == "" || last.Problem == nil || last.Problem.Code != client.CodeInternal || !strings.Contains(last.Problem.Detail, "the disk is gone") {
		t.Errorf("%d messages and %+v", len(ids), last)
	}
	n := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}, desk: query.New(longStore{messages: 5, asked: new(int)}, leads{})}
	for _, query := range []string{"limit=0", "limit=-3", "cursor=x", "limit=x", "from=7&to=5"} {
		if answer := send(handlerOf(n), "GET", "/v1/messages?"+query, "", "Accept", ndjsonType); answer.Code != http.StatusBadRequest || answer.Header().Get("Content-Type") != problemType {
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
}

// A client that is gone costs nothing more.
func TestStream_endsWithItsClient(t *testing.T) {
	asked := 0
	n := &fakeNode{status: broker.Status{Node: "n1", Leader: "n1"}, desk: query.New(longStore{messages: 1 << 40, asked: &asked}, leads{})}
	ctx, cancel := context.WithCancel(t.Context())
	request := httptest.NewRequestWithContext(ctx, "GET", "/v1/messages", nil)
	request.Header.Set("Accept", ndjsonType)
	answer := &streamRecorder{httptest.NewRecorder(), cancel}
	handlerOf(n).ServeHTTP(answer, request)
	if asked > 3 {
		t.Errorf("%d pages were read", asked)
	}
}

// A streamRecorder is a client, which may go when the first page is there.
type streamRecorder struct {
	*httptest.ResponseRecorder
	hangUp func() // nil: it stays
}

// FlushError is for http.ResponseController.
func (r *streamRecorder) FlushError() error {
	if r.hangUp != nil {
		r.hangUp()
	}
	return nil
}

// SetWriteDeadline likewise.
func (r *streamRecorder) SetWriteDeadline(time.Time) error { return nil }
