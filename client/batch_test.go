package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// items answers a batch: a number is the seq of a message that was scheduled, and anything else the code of a problem.
func items(texts ...string) answer {
	var told BatchAnswer
	for _, text := range texts {
		item := BatchItem{Problem: &Problem{Status: Code(text).Status(), Code: Code(text), Detail: "because " + text}}
		if seq := strings.TrimLeft(text, "0123456789"); seq == "" {
			item = BatchItem{Answer: &Answer{Code: AnswerScheduled, Topic: "t", ID: text}}
			fmt.Sscan(text, &item.Answer.Seq)
		}
		told.Answers = append(told.Answers, item)
	}
	text, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	return says(string(text))
}

// Messages with keys are sent again for as long as nobody knows what came of them, and what is told of each in the end
// is true of all the times that it was sent.
func TestAdmin_sendsAgainWhatIsOpenOfABatch(t *testing.T) {
	const gone = "" // the answer is lost on the way
	for _, tt := range []struct {
		name  string
		keys  string     // of the messages; a dash: it has none
		ids   string     // of the messages
		tells [][]string // answer after answer, the last one for ever
		sent  []string   // the keys of each request
		want  string     // seqs and codes
	}{
		{"a leader goes", "abc", "xyz", [][]string{{"1", "in-doubt", "not-leader"}, {"unavailable", "3"}, {"2"}}, []string{"abc", "bc", "b"}, "1 2 3"},
		{"the second time is refused", "ab", "xy", [][]string{{"1", "in-doubt"}, {"bad-request"}}, []string{"ab", "b"}, "1 in-doubt"},
		{"the second time is too late", "ab", "xy", [][]string{{"1", "in-doubt"}, {"too-late"}}, []string{"ab", "b"}, "1 too-late"},
		{"nothing was done, and it is refused", "ab", "xy", [][]string{{"1", "unavailable"}, {"bad-request"}}, []string{"ab", "b"}, "1 bad-request"},
		{"each has its own doubt", "ab", "xy", [][]string{{"in-doubt", "unavailable"}, {"bad-request", "bad-request"}}, []string{"ab", "ab"}, "in-doubt bad-request"},
		{"the answer is lost, and it is refused", "abc", "xyz", [][]string{{gone}, {"bad-request", "conflict", "1"}}, []string{"abc", "abc"}, "in-doubt conflict 1"},
		{"the answer is lost, and nobody leads for a while", "ab", "xy", [][]string{{gone}, {"1", "unavailable"}, {"forbidden"}}, []string{"ab", "ab", "b"}, "1 in-doubt"},
		{"the second answer is lost, and it is refused", "ab", "xy", [][]string{{"1", "unavailable"}, {gone}, {"forbidden"}}, []string{"ab", "b", "b"}, "1 in-doubt"},
		{"one has no key", "a-", "xy", [][]string{{"1", "unavailable"}}, []string{"a-"}, "1 unavailable"},
		{"another has taken its place", "ab", "xx", [][]string{{"in-doubt", "1"}}, []string{"ab"}, "in-doubt 1"},
		{"both of one id are open", "ab", "xx", [][]string{{"in-doubt", "unavailable"}, {"1", "2"}}, []string{"ab", "ab"}, "1 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
				delete(admin.nodes.http.Transport.(bubbled), "b:1")
				var sent []string
				answers := tt.tells
				a.answers = []answer{func(w http.ResponseWriter, r *http.Request) {
					var batch BatchRequest
					asked := a.requests()
					_, text, _ := strings.Cut(asked[len(asked)-1], " {")
					if err := json.Unmarshal([]byte("{"+text), &batch); err != nil {
						t.Error(err)
					}
					keys := ""
					for _, m := range batch.Messages {
						keys += (m.IdempotencyKey + "-")[:1]
					}
					sent = append(sent, keys)
					tell := answers[0]
					answers = answers[min(1, len(answers)-1):]
					if tell[0] == gone {
						panic(http.ErrAbortHandler)
					}
					items(tell...)(w, r)
				}}
				var requests []ScheduleRequest
				for i := range tt.keys {
					requests = append(requests, ScheduleRequest{Topic: "t", ID: tt.ids[i : i+1], DeliverAfter: "1h", IdempotencyKey: strings.Trim(tt.keys[i:i+1], "-")})
				}
				told, err := admin.ScheduleBatch(t.Context(), requests)
				var got []string
				for _, item := range told {
					if item.Answer != nil {
						got = append(got, fmt.Sprint(item.Answer.Seq))
					} else {
						got = append(got, string(item.Problem.Code))
					}
				}
				if err != nil || strings.Join(got, " ") != tt.want || strings.Join(sent, " ") != strings.Join(tt.sent, " ") {
					t.Errorf("told %v, %v, want %s; sent %v, want %v", got, err, tt.want, sent, tt.sent)
				}
			})
		})
	}
}

func TestAdmin_sendsABatchAgainUntilItsTimeIsUp(t *testing.T) {
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{items("unavailable")}
		b.answers = a.answers
		began := time.Now()
		told, err := admin.ScheduleBatch(t.Context(), []ScheduleRequest{{Topic: "t", IdempotencyKey: "a"}})
		if took := time.Since(began); err != nil || !errors.Is(told[0].Problem, ErrUnavailable) || took > usualTimeout || len(a.requests()) < 10 {
			t.Errorf("told %+v, %v after %v and %d requests", told, err, took, len(a.requests()))
		}
	})
	inBubble(t, func(t *testing.T, admin *Admin, a, b *fakeNode) {
		a.answers = []answer{says(`{"answers":[{},{}]}`)}
		if _, err := admin.ScheduleBatch(t.Context(), []ScheduleRequest{{Topic: "t"}, {Topic: "t"}}); !errors.Is(err, ErrInDoubt) {
			t.Errorf("%v of items that say nothing", err)
		}
	})
}
