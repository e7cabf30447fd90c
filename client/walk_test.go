package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs the test with two nodes, a and b, and an Admin that asks a first.
func inBubble(t *testing.T, test func(t *testing.T, admin *Admin, a, b *fakeNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var a, b fakeNode
		admin, err := NewAdmin([]string{"a:1", "http://b:1/"}, AdminOptions{Transport: bubbled{"a:1": &a, "b:1": &b}})
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		test(t, admin, &a, &b)
	})
}

// pending is a message as a line.
func pending(due int64, seq uint64) string {
	text, err := json.Marshal(Message{Topic: "t", ID: fmt.Sprint(seq), Chosen: true, Due: due, Seq: seq, Target: "o", State: StateWaiting})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestAdmin_listsWhateverBreaks(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{
			streams(pending(10, 1), pending(20, 2), `{"cursor":"AQ"}`),
			breaks(pending(20, 5) + "\n" + pending(30, 4) + "\n" + `{"topic":"t"`),
		}
		b.answers = []answer{
			refuses(503, CodeUnavailable),
			streams(pending(30, 3), pending(30, 4), pending(30, 6), `{"cursor":"Ag"}`),
			says(`{"index":"1","pending":"1","messages":[` + pending(40, 7) + `],"next":"Aw"}`),
			streams(`{"end":true}`),
		}
		a.answers = append(a.answers, breaks(""))
		var got []string
		for m, err := range admin.Messages(t.Context(), Filter{Topic: "t"}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m.ID)
		}
		// 3 was written with an earlier due time after 4 was told: in the order it is before what came.
		if want := "1 2 5 4 6 7"; strings.Join(got, " ") != want {
			t.Errorf("listed %s, want %s", got, want)
		}
		const accept = " Accept: application/x-ndjson, application/json;q=0.5"
		var asked []string
		for _, line := range append(a.requests(), b.requests()...) {
			asked = append(asked, strings.TrimSuffix(strings.TrimPrefix(line, "GET /v1/messages?"), accept))
		}
		if want := "topic=t cursor=AQ&topic=t from=30&topic=t from=30&topic=t from=30&topic=t cursor=Ag&from=30&topic=t cursor=Aw&from=30&topic=t"; strings.Join(asked, " ") != want {
			t.Errorf("asked %s, want %s", strings.Join(asked, " "), want)
		}
	})
}

func TestAdmin_endsLists(t *testing.T) {
	first := func(admin *Admin) (m Message, err error) {
		for m, err = range admin.Messages(context.Background(), Filter{}) {
			break
		}
		return m, err
	}
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{streams(pending(10, 1), pending(20, 2), `{"end":true}`)}
		if m, err := first(admin); err != nil || m.Seq != 1 {
			t.Errorf("%+v, %v", m, err)
		}
	})
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{refuses(403, CodeForbidden)}
		if _, err := first(admin); !errors.Is(err, ErrForbidden) {
			t.Errorf("%v", err)
		}
	})
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{streams(`{"problem":{"code":"bad-request","detail":"d"}}`)}
		if _, err := first(admin); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%v", err)
		}
	})
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers, b.answers = []answer{breaks("")}, []answer{streams("")}
		began := time.Now()
		if _, err := first(admin); !errors.Is(err, ErrUnavailable) || time.Since(began) > usualTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	for _, foreign := range []answer{says(`{"status":"ok"}`), streams(`{"status":"ok"}`, `{"end":true}`)} {
		inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
			a.answers, b.answers = []answer{foreign}, []answer{streams(pending(10, 1), `{"end":true}`)}
			if m, err := first(admin); err != nil || m.Seq != 1 {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) { // nothing comes any more
		a.answers = []answer{func(w http.ResponseWriter, r *http.Request) {
			streams(pending(10, 1))(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}}
		b.answers = []answer{streams(pending(10, 1), pending(20, 2), `{"end":true}`)}
		count := 0
		for _, err := range admin.Messages(t.Context(), Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // of the caller's own
			count++
		}
		if count != 2 {
			t.Errorf("%d messages", count)
		}
	})
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{says(`{"dead_letters":[{"offset":"1"},{"offset":"2"}],"next":"AQ"}`), says(`{"dead_letters":[{"offset":"3"}]}`), refuses(400, CodeBadRequest)}
		var got []int64
		for d, err := range admin.DeadLetters(t.Context(), Filter{Code: "malformed"}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, d.Offset)
		}
		if asked := strings.Join(a.requests(), " "); fmt.Sprint(got) != "[1 2 3]" || asked != "GET /v1/dead-letters?code=malformed GET /v1/dead-letters?code=malformed&cursor=AQ" && asked != "GET /v1/dead-letters?code=malformed GET /v1/dead-letters?cursor=AQ&code=malformed" {
			t.Errorf("%v, asked %s", got, asked)
		}
		for _, err := range admin.DeadLetters(t.Context(), Filter{}) {
			if !errors.Is(err, ErrBadRequest) {
				t.Errorf("%v", err)
			}
		}
	})
}

// A message that nobody chose an id for is searched until it is found.
func TestAdmin_searches(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{says(`{"index":"1","next":"AQ"}`), says(`{"index":"2","next":"Ag"}`), says(`{"index":"3","message":` + pending(10, 1) + `}`)}
		life, err := admin.Get(t.Context(), "t", "t/1/5")
		if err != nil || life.Index != 3 || life.Message == nil || life.Message.Seq != 1 {
			t.Errorf("%+v, %v", life, err)
		}
		if asked := strings.Join(a.requests(), " "); asked != "GET /v1/messages/t/t%2F1%2F5 GET /v1/messages/t/t%2F1%2F5?cursor=AQ GET /v1/messages/t/t%2F1%2F5?cursor=Ag" {
			t.Errorf("asked %s", asked)
		}
	})
}

func TestAdmin_waitsForOperations(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{says(`{"id":"7","verb":"now","state":"running","done":"1"}`), says(`{"id":"7","verb":"now","state":"running","done":"2"}`), says(`{"id":"7","verb":"now","state":"finished","done":"3"}`)}
		var seen []uint64
		o, err := admin.WaitOperation(t.Context(), "7", func(o Operation) { seen = append(seen, o.Done) })
		if err != nil || o.State != OperationFinished || fmt.Sprint(seen) != "[1 2 3]" {
			t.Errorf("%+v, %v, saw %v", o, err, seen)
		}
	})
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{says(`{"id":"7","verb":"now","state":"running"}`)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := admin.WaitOperation(ctx, "7", nil); !errors.Is(err, context.DeadlineExceeded) || len(a.requests()) > 40 {
			t.Errorf("%v after %d looks", err, len(a.requests()))
		}
	})
}
