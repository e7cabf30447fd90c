package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// in2030 is a time, in epoch milliseconds.
const in2030 = 1_900_000_000_000

func TestAdmin_listsWhateverBreaks(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{
			streams(pending(in2030+10, 1), pending(in2030+20, 2), `{"cursor":"AQ"}`),
			breaks(pending(in2030+20, 5) + "\n" + pending(in2030+30, 4) + "\n" + `{"topic":"t"`),
		}
		b.answers = []answer{
			refuses(503, CodeUnavailable),
			streams(pending(in2030+30, 3), pending(in2030+30, 4), pending(in2030+30, 6), `{"cursor":"Ag"}`),
			says(`{"index":"1","pending":"1","messages":[` + pending(in2030+40, 7) + `],"next":"Aw"}`),
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
		if want := "topic=t cursor=AQ&topic=t from=1900000000030&topic=t from=1900000000030&topic=t from=1900000000030&topic=t cursor=Ag&from=1900000000030&topic=t cursor=Aw&from=1900000000030&topic=t"; strings.Join(asked, " ") != want {
			t.Errorf("asked %s, want %s", strings.Join(asked, " "), want)
		}
	})
}

// Nodes refuse a time before March 1973 as seconds, but a message may be due then: the list goes on from before it.
func TestAdmin_listsWhatWasDueLongAgo(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{breaks(pending(10, 1) + "\n" + pending(20, 2) + "\n")}
		b.answers = []answer{streams(pending(10, 1), pending(20, 2), pending(in2030, 3), `{"end":true}`)}
		var got []uint64
		for m, err := range admin.Messages(t.Context(), Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m.Seq)
		}
		if asked := b.requests()[0]; fmt.Sprint(got) != "[1 2 3]" || strings.Contains(asked, "from") {
			t.Errorf("listed %v, asked %s", got, asked)
		}
	})
}

// A node that gives the same cursors again and again has nothing to tell.
func TestAdmin_endsWhatGoesRoundInACircle(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer string
		ask    func(*Admin) error
	}{
		{"a list", `{"cursor":"x"}`, func(a *Admin) error {
			for _, err := range a.Messages(context.Background(), Filter{}) {
				return err
			}
			return nil
		}},
		{"dead letters", `{"dead_letters":[],"next":"x"}`, func(a *Admin) error {
			for _, err := range a.DeadLetters(context.Background(), Filter{}) {
				return err
			}
			return nil
		}},
		{"a search", `{"index":"1","next":"x"}`, func(a *Admin) error { _, err := a.Get(context.Background(), "t", "t/1/5"); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
				tell := says(tt.answer)
				if tt.name == "a list" {
					tell = streams(tt.answer)
				}
				a.answers = append(slices.Repeat([]answer{tell}, 50), refuses(401, CodeTokenMissing)) // so that it ends
				if err := tt.ask(admin); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), `the cursor "x" again`) {
					t.Error(err)
				}
			})
		})
	}
}

// A node that comes no further for a while is asked until it does.
func TestTrail_leadsOnOrInACircle(t *testing.T) {
	for _, circle := range []int{0, 1, 2, 3, 7} { // 0: none
		synctest.Test(t, func(t *testing.T) {
			leads := trail{timeout: usualTimeout, pause: leastPause}
			var err error
			for i := 0; i < 2000 && err == nil; i++ {
				at := i
				if circle > 0 && i > 4 { // it comes into the circle from elsewhere
					at = 5 + i%circle
				}
				err = leads.follow(t.Context(), fmt.Sprint(at))
			}
			if (err != nil) != (circle > 0) {
				t.Errorf("circle of %d: %v", circle, err)
			}
		})
	}
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = append(slices.Repeat([]answer{says(`{"dead_letters":[],"next":"x"}`)}, 5), says(`{"dead_letters":[{"offset":"1"}]}`))
		for d, err := range admin.DeadLetters(t.Context(), Filter{}) {
			if err != nil || d.Offset != 1 {
				t.Errorf("%+v, %v", d, err)
			}
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
		a.answers = []answer{says(`{"index":"1","next":"AQ"}`), says(`{"index":"2","next":"Ag"}`), says(`{"index":"3","message":` + strings.Replace(pending(10, 1), `"id":"1"`, `"id":"t/1/5"`, 1) + `}`)}
		life, err := admin.Get(t.Context(), "t", "t/1/5")
		if err != nil || life.Index != 3 || life.Message == nil || life.Message.Seq != 1 {
			t.Errorf("%+v, %v", life, err)
		}
		if asked := strings.Join(a.requests(), " "); asked != "GET /v1/messages/t/t%2F1%2F5 GET /v1/messages/t/t%2F1%2F5?cursor=AQ GET /v1/messages/t/t%2F1%2F5?cursor=Ag" {
			t.Errorf("asked %s", asked)
		}
	})
}

// The timeout bounds each page of a search, and not the search.
func TestAdmin_searchesForAsLongAsItComesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		for page := range 10 {
			a.answers = append(a.answers, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(3 * time.Second)
				says(fmt.Sprintf(`{"index":"1","next":"%d"}`, page))(w, r)
			})
		}
		a.answers = append(a.answers, says(`{"index":"1","message":`+pending(10, 1)+`}`))
		b.answers = []answer{refuses(503, CodeUnavailable)}
		if life, err := admin.Get(t.Context(), "t", "1"); err != nil || life.Message == nil {
			t.Errorf("%+v, %v", life, err)
		}
	})
}

// A proxy that decodes paths makes another message of the one that is meant.
func TestAdmin_saysSoWhenAnotherMessageIsAnsweredOf(t *testing.T) {
	meant := Name{Topic: "orders.delay", ID: "../payments.delay/order-7"}
	done := says(`{"code":"cancelled","topic":"payments.delay","id":"order-7","seq":"7"}`)
	read := says(`{"index":"1","message":` + strings.NewReplacer(`"topic":"t"`, `"topic":"payments.delay"`, `"id":"1"`, `"id":"order-7"`).Replace(pending(10, 1)) + `}`)
	for _, tt := range []struct {
		node answer
		ask  func(*Admin) error
	}{
		{done, func(a *Admin) error { _, err := a.Cancel(context.Background(), meant, ""); return err }},
		{done, func(a *Admin) error { _, err := a.Change(context.Background(), meant, ChangeRequest{}); return err }},
		{done, func(a *Admin) error { _, err := a.Now(context.Background(), meant, ""); return err }},
		{read, func(a *Admin) error { _, err := a.Get(context.Background(), meant.Topic, meant.ID); return err }},
	} {
		inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
			a.answers = []answer{tt.node}
			if err := tt.ask(admin); err == nil || !strings.Contains(err.Error(), meant.String()) || !strings.Contains(err.Error(), `"order-7" of payments.delay`) {
				t.Error(err)
			}
		})
	}
}

// A name that is empty, as of a variable that was not set, is of nothing: it is refused before it is sent.
func TestAdmin_refusesEmptyNames(t *testing.T) {
	for what, ask := range map[string]func(*Admin) error{
		"cancel no id": func(a *Admin) error { _, err := a.Cancel(context.Background(), Name{Topic: "t"}, ""); return err },
		"change of no topic": func(a *Admin) error {
			_, err := a.Change(context.Background(), Name{ID: "i"}, ChangeRequest{})
			return err
		},
		"now no id":         func(a *Admin) error { _, err := a.Now(context.Background(), Name{Topic: "t"}, ""); return err },
		"get no id":         func(a *Admin) error { _, err := a.Get(context.Background(), "t", ""); return err },
		"no operation":      func(a *Admin) error { _, err := a.Operation(context.Background(), ""); return err },
		"stop no operation": func(a *Admin) error { _, err := a.StopOperation(context.Background(), "", ""); return err },
		"no letter":         func(a *Admin) error { _, err := a.DeadLetter(context.Background(), Position{}); return err },
		"pause nothing":     func(a *Admin) error { _, err := a.Pause(context.Background(), Pause{Kind: PauseTopic}); return err },
	} {
		inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
			a.answers = []answer{refuses(404, CodeNotFound)}
			if err := ask(admin); !errors.Is(err, ErrBadRequest) || len(a.requests()) != 0 {
				t.Errorf("%s: %v after %d requests", what, err, len(a.requests()))
			}
		})
	}
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
