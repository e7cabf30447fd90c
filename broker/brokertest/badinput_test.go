package brokertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Whatever is wrong about ids, cancels, conditions and expiries becomes a dead letter that says which header,
// its value, and what to write instead. What waits stays as it is, and the records behind are taken in.
func TestBadInput_ofIDsHarmsNobodyElse(t *testing.T) {
	const after = "deliver-after: 1m"
	long := strings.Repeat("x", 257)
	tests := []struct {
		headers string // one a line
		says    string
	}{
		{after + "\ndeliver-id: ", `deliver-id is empty: give it a value or leave the header out`},
		{after + "\ndeliver-id: " + long, `deliver-id "` + long[:64] + `" and 193 bytes more, has 257 bytes: use at most 256`},
		{after + "\ndeliver-id: \xff", `deliver-id "\xff" is not UTF-8: write the value as UTF-8 text`},
		{after + "\ndeliver-id: orders.delay/0/7", `deliver-id "orders.delay/0/7" has the form topic/number/number, by which messages without an id are named: choose another id`},
		{after + "\ndeliver-id: a\ndeliver-id: b", `deliver-id "b" is given twice: write the header once`},
		{after + "\nDeliver-Id: a", `Deliver-Id "a" is not in lower case: write deliver-id`},
		{"deliver-cancel: true", `deliver-cancel "true" needs deliver-id: name the message to cancel with deliver-id`},
		{"deliver-cancel: yes\ndeliver-id: a", `deliver-cancel "yes" is not true: write true, or leave the header out to schedule the record`},
		{"deliver-cancel: \ndeliver-id: a", `deliver-cancel is empty: give it a value or leave the header out`},
		{"deliver-cancel: true\ndeliver-id: a\n" + after, `deliver-cancel "true" is given beside deliver-after: leave out deliver-after to cancel the message, or deliver-cancel to schedule the record`},
		{"deliver-cancel: true\ndeliver-id: a\ndeliver-at: 4102444800000", `deliver-cancel "true" is given beside deliver-at: leave out deliver-at`},
		{"deliver-cancel: true\ndeliver-id: a\ndeliver-expires-after: 1h", `deliver-cancel "true" is given beside deliver-expires-after: leave out`},
		{"deliver-cancel: true\ndeliver-id: a\ndeliver-if: absent", `deliver-if "absent" is given beside deliver-cancel, so nothing would ever be cancelled: leave one of the two out`},
		{after + "\ndeliver-expires-at: 946684800000", `deliver-expires-at "946684800000" is not after the due time, which is `},
		{after + "\ndeliver-expires-after: 0s", `deliver-expires-after "0s" is not after the due time, which is `},
		{after + "\ndeliver-expires-after: -1s", `deliver-expires-after "-1s" `},
		{after + "\ndeliver-expires-after: 1h\ndeliver-expires-at: 4102444800000", `deliver-expires-after "1h" is given beside deliver-expires-at: write one of the two`},
		{after + "\ndeliver-id: a\ndeliver-if: maybe", `deliver-if "maybe" is not a condition: use absent, present, or the seq of the message`},
		{after + "\ndeliver-id: a\ndeliver-if: 0", `deliver-if "0" is not a condition: use absent, present, or the seq of the message`},
		{after + "\ndeliver-if: absent", `deliver-if "absent" needs deliver-id: name the message that it is about with deliver-id`},
	}
	testIDs(t, storage.LevelThree, func(x *idTest) {
		x.send(options(client.After(time.Minute), client.ID("a")), "kept")
		user, _ := x.user()
		defer user.Close()
		want := []string{"kept"}
		for i, test := range tests {
			bad := &kgo.Record{Topic: "orders.delay", Value: fmt.Append(nil, i)}
			for line := range strings.SplitSeq(test.headers, "\n") {
				name, value, _ := strings.Cut(line, ": ")
				bad.Headers = append(bad.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
			}
			good := &kgo.Record{Topic: "orders.delay", Value: fmt.Appendf(nil, "after %d", i)}
			x.must(client.Stamp(good, client.After(time.Minute)))
			x.must(user.ProduceSync(x.t.Context(), bad, good).FirstErr())
			want = append(want, string(good.Value))
		}
		for kind, name := range map[string]string{client.PauseTopic: "nobody.reads", client.PauseTarget: "orders.delay"} {
			_, err := x.leader().broker.Pause(x.t.Context(), client.Pause{Kind: kind, Name: name, Why: "stock taking"})
			says := map[string]string{
				client.PauseTopic:  `topic "nobody.reads" is of no route, so no message comes by it: name one that routes[].from matches`,
				client.PauseTarget: `target "orders.delay" is a delay topic by routes[].from "*.delay", and no message goes there: pause it as a topic`,
			}[kind]
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("pause of %s %s: %v, want %q", kind, name, err, says)
			}
		}
		x.pause(2 * time.Minute)
		x.expectDelivered("orders", want...)
		x.expectLife("a", "delivered")
		letters := x.letters(len(tests))
		for i, test := range tests {
			r := letters[fmt.Sprint(i)]
			if r == nil {
				t.Errorf("%q became no dead letter", test.headers)
				continue
			}
			if says := header(r, client.HeaderErrorMessage); !strings.HasPrefix(says, test.says) || header(r, client.HeaderErrorCode) != string(client.CodeMalformed) {
				t.Errorf("%q: code %s, %s, want %s", test.headers, header(r, client.HeaderErrorCode), says, test.says)
			}
		}
	})
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// letters reads so many dead letters, by value.
func (x *idTest) letters(n int) map[string]*kgo.Record {
	reader, _ := x.user(kgo.ConsumeTopics(x.config.DeadLetter.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	all := make(map[string]*kgo.Record)
	for len(all) < n && ctx.Err() == nil {
		reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { all[string(r.Value)] = r })
	}
	return all
}
