package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
)

// carillon runs the program against all nodes, and returns what it printed.
func (c *carillonCluster) carillon(arguments ...string) string {
	c.t.Helper()
	var nodes []string
	for _, n := range c.nodes {
		nodes = append(nodes, n.API)
	}
	return run(c.t, ".", nil, append([]string{c.binary}, append(arguments, "--api", strings.Join(nodes, ","))...)...)
}

// Hundreds of dead letters, since their records are malformed or their target does not exist, are listed and
// shown by the command line, one is replayed alone, and the others in bulk while the leader is killed: each is
// delivered, and becomes one message.
func TestDeadLetters_areReplayedOnceThoughTheLeaderIsKilled(t *testing.T) {
	const malformed, missing = 200, 100
	t.Parallel()
	k := startKafka(t, freeAddrs(t, 1)...)
	k.create(3, delayTopic, targetTopic, "nowhere.delay")
	c := startCarillon(t, k.addrs(), dirs(t, 3)...)
	var records []*kgo.Record
	want := map[string][]string{}
	for i := range malformed + missing {
		r := &kgo.Record{Topic: delayTopic, Key: fmt.Append(nil, i), Value: fmt.Append(nil, "malformed ", i), Headers: []kgo.RecordHeader{{Key: client.HeaderAfter, Value: []byte("soon")}}}
		if i >= malformed {
			r.Topic, r.Value, r.Headers[0].Value = "nowhere.delay", fmt.Append(nil, "missing ", i), []byte("1s")
		}
		target := strings.TrimSuffix(r.Topic, ".delay")
		want[target] = append(want[target], string(r.Value))
		records = append(records, r)
	}
	if err := k.client().ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	await(t, patience, "all are dead letters", func() bool {
		n, known := k.written(deadLetterTopic)
		pending, told := c.pending()
		return known && n == malformed+missing && told && pending == 0
	})

	letters := map[string][]client.DeadLetter{}
	for line := range strings.Lines(c.carillon("dead-letters", "list", "--limit", "0", "--json")) {
		var d client.DeadLetter
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		letters[d.Code] = append(letters[d.Code], d)
	}
	if len(letters["malformed"]) != malformed || len(letters["target-missing"]) != missing || len(letters) != 2 {
		t.Fatalf("%d malformed, %d without a target, %d codes", len(letters["malformed"]), len(letters["target-missing"]), len(letters))
	}
	place := func(d client.DeadLetter) string { return fmt.Sprintf("%s/%d/%d", d.Topic, d.Partition, d.Offset) }
	for code, says := range map[string]string{"malformed": "malformed ", "target-missing": "missing "} {
		d := letters[code][0]
		var told client.DeadLetter
		if err := json.Unmarshal([]byte(c.carillon("dead-letters", "get", place(d), "--json")), &told); err != nil {
			t.Fatal(err)
		}
		if told.Payload == nil || !strings.HasPrefix(string(told.Payload.Value), says) || told.Detail == "" || told.Replayed || told.DelayTopic != told.Target+".delay" {
			t.Errorf("%s is told as %+v", place(d), told)
		}
	}

	alone := letters["malformed"][7]
	c.carillon("dead-letters", "replay", place(alone), "--reason", "by hand")
	k.create(3, "nowhere")
	var o client.Operation
	started := c.carillon("bulk", "replay", "--all", "--rate", "30", "--reason", "mended", "--yes", "--json")
	if err := json.Unmarshal([]byte(started), &o); err != nil || o.Matched != malformed+missing-1 {
		t.Fatalf("%s: %v", started, err)
	}
	killed := c.leader()
	await(t, patience, "a part is done", func() bool {
		progress, err := killed.get("/v1/operations/" + o.ID)
		return err == nil && json.Unmarshal(progress, &o) == nil && o.Done >= 60
	})
	killed.process.kill()
	c.leader()
	c.start()
	ended := c.carillon("operations", "get", o.ID, "--wait", "--json")
	at := o.Done
	if err := json.Unmarshal([]byte(ended), &o); err != nil || o.State != client.OperationFinished || o.Done != malformed+missing-1 || o.TooLate != 1 || o.NotFound+o.Failed != 0 {
		t.Errorf("%s: %v", ended, err)
	}
	t.Logf("the leader was killed when %d of %d were done, which took %d ms in all", at, o.Matched, o.Ended-o.Started)
	if at >= o.Done {
		t.Errorf("it was over before the leader was killed")
	}
	c.awaitPending(patience, 0)
	for target, values := range want {
		came := k.seqs(target)
		for _, value := range values {
			if len(came[value]) != 1 {
				t.Errorf("%q was delivered as %v, want one message", value, came[value])
			}
			delete(came, value)
		}
		if len(came) > 0 {
			t.Errorf("%s also got %v", target, came)
		}
	}
	if got := c.carillon("bulk", "replay", "--all", "--dry-run"); got != "0 dead letters to replay: nothing was done\n" {
		t.Errorf("left are %s", got)
	}
}

// seqs returns the messages that a topic has got, by their values: a copy has the seq of the first.
func (k *kafkaCluster) seqs(topic string) map[string][]string {
	k.t.Helper()
	came := map[string][]string{}
	left, known := k.written(topic)
	if !known {
		k.t.Fatalf("Kafka does not tell of %s", topic)
	}
	reader := k.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for left > 0 {
		fetches := reader.PollFetches(k.t.Context())
		if err := fetches.Err(); err != nil {
			k.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			if value, seq := string(r.Value), header(r, client.HeaderDeliveredSeq); !slices.Contains(came[value], seq) {
				came[value] = append(came[value], seq)
			}
		})
	}
	return came
}
