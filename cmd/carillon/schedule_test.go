package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/carillonmq/carillon/client"
)

// What the configuration takes as a duration is one here too, and reaches the
// header in the units that the broker reads there.
func TestSchedule_takesDaysAndYears(t *testing.T) {
	for in, want := range map[string]string{"1d": "24h0m0s", "2y": "17520h0m0s", "1h30m": "1h30m0s", "0": "0s"} {
		var s schedule
		flags := s.flags()
		if err := flags.Parse([]string{"--to", "orders", "--in", in}); err != nil {
			t.Fatal(err)
		}
		record, err := s.record(flags, nil, strings.NewReader(""))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		var got string
		for _, header := range record.Headers {
			if header.Key == client.HeaderAfter {
				got = string(header.Value)
			}
		}
		if got != want {
			t.Errorf("%s becomes %s %q, want %q", in, client.HeaderAfter, got, want)
		}
	}
}

func TestSchedule_takesKeysOfBytes(t *testing.T) {
	for arguments, want := range map[string]string{"--key AAD/": "AAD/", "--key-base64 AAD/": "\x00\x00\xff", "": ""} {
		var s schedule
		flags := s.flags()
		if err := flags.Parse(append(strings.Fields(arguments), "--to", "orders", "--in", "1s")); err != nil {
			t.Fatal(err)
		}
		record, err := s.record(flags, nil, strings.NewReader(""))
		if err != nil || string(record.Key) != want {
			t.Errorf("%q: %v, %v, want key %q", arguments, record, err, want)
		}
	}
}

func TestSchedule_warnsOfWhatTheNodeWouldNotDeliver(t *testing.T) {
	const targets = `"targets": {"allow": ["*"], "deny": ["__*", "secret"]}, "dead_letter_topics": ["dead", "bills.dead"]`
	const reads = `{"node": "n1", "routes": ["payments", "*.delay"], "max_delay": {"payments": 3600000, "*.delay": 60000}, ` + targets + `}`
	for _, tt := range []struct {
		name, status, to, in string
		warning              string // a part of it; "": none
	}{
		{"is at an older level", strings.Replace(reads, "{", `{"feature_level": {"in_force": 2, "understood": 3}, `, 1), "orders", "1m --id i --if-absent",
			"the cluster of node n1 at HOST is at feature level 2 and would dead-letter the message: deliver-if is known from level 3 on"},
		{"is at that level", strings.Replace(reads, "{", `{"feature_level": {"in_force": 3, "understood": 3}, `, 1), "orders", "1m --id i --if-absent", ""},
		{"reads it", reads, "orders", "1m", ""},
		{"reads others", `{"node": "n1", "routes": ["payments"], "max_delay": {"payments": 3600000}, ` + targets + `}`, "orders", "1s",
			`no route of node n1 at HOST reads topic "orders.delay", the message stays there until one does (routes[].from: payments)`},
		{"denies the target", reads, "secret", "1s", `node n1 at HOST would dead-letter the message: --to: topic "secret" is not among the targets`},
		{"allows others", `{"node": "n1", "routes": ["*.delay"], "max_delay": {"*.delay": 60000}, "targets": {"allow": ["bills"], "deny": []}}`, "orders", "1s",
			`node n1 at HOST would dead-letter the message: --to: topic "orders" is not among the targets`},
		{"reads the target", reads, "payments", "1s",
			`node n1 at HOST would dead-letter the message: --to: topic "payments" is a delay topic`},
		{"keeps dead letters there", reads, "dead", "1s",
			`node n1 at HOST would dead-letter the message: --to: topic "dead" is for dead letters`},
		{"keeps dead letters of a route there", reads, "bills.dead", "1s",
			`node n1 at HOST would dead-letter the message: --to: topic "bills.dead" is for dead letters`},
		{"waits no longer", reads, "orders", "2m", "later than routes[].max_delay 1m allows"},
		{"tells no targets and delays", `{"node": "n1", "routes": ["*.delay"]}`, "orders", "1s", ""},
		{"reads others and tells no targets and delays", `{"node": "n1", "routes": ["payments"]}`, "orders", "1s",
			`no route of node n1 at HOST reads topic "orders.delay"`},
		{"does not tell", `{"node": "n1"}`, "orders", "1s", ""},
		{"is no node", `hello`, "orders", "1s", ""},
	} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, tt.status) }))
		address := strings.TrimPrefix(node.URL, "http://")
		var s schedule
		flags := s.flags()
		if err := flags.Parse(strings.Fields("--to " + tt.to + " --in " + tt.in)); err != nil {
			t.Fatal(err)
		}
		record, err := s.record(flags, nil, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		got := objection(t.Context(), nodes{addresses: []string{address}}, record)
		if want := strings.ReplaceAll(tt.warning, "HOST", address); !strings.Contains(got, want) || (got != "") != (want != "") {
			t.Errorf("%s: warning %q, want %q", tt.name, got, want)
		}
		node.Close()
	}
}

func TestSchedule_stampsIDsConditionsAndExpiry(t *testing.T) {
	for arguments, want := range map[string][]string{
		"--id i":                             {"deliver-id=i"},
		"--id i --replace":                   {"deliver-id=i", "deliver-if=present"},
		"--id i --if-absent":                 {"deliver-id=i", "deliver-if=absent"},
		"--expires-in 1d":                    {"deliver-expires-after=24h0m0s"},
		"--id i --if-absent --expires-in 5s": {"deliver-id=i", "deliver-if=absent", "deliver-expires-after=5s"},
	} {
		var s schedule
		flags := s.flags()
		if err := flags.Parse(strings.Fields("--to orders --in 1s " + arguments)); err != nil {
			t.Fatal(err)
		}
		record, err := s.record(flags, nil, strings.NewReader(""))
		if err != nil {
			t.Errorf("%s: %v", arguments, err)
			continue
		}
		var got []string
		for _, h := range record.Headers[2:] { // behind deliver-to and deliver-after
			got = append(got, h.Key+"="+string(h.Value))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", arguments, got, want)
		}
	}
}

// A node of `carillon dev` on this machine has no part in another Kafka.
func TestSchedule_asksOnlyANodeOfTheSameKafka(t *testing.T) {
	for args, want := range map[string]bool{
		"":                               true,
		"--kafka.brokers=127.0.0.1:9092": true,
		"--kafka.brokers=prod:9092":      false,
		"--kafka.brokers=prod:9092 --api=n1:7401": true,
	} {
		cmd := &cobra.Command{}
		var node nodeFlags
		node.add(cmd)
		addConfigFlags(cmd.Flags(), keysOf("kafka."))
		if err := cmd.Flags().Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		s, err := load(cmd.Flags(), keysOf("kafka."))
		if err != nil {
			t.Fatal(err)
		}
		to, err := node.reach()
		if err != nil {
			t.Fatal(err)
		}
		if got := to.belongTo(s.Config.Kafka.Brokers); got != want {
			t.Errorf("with %q the node is asked: %v, want %v", args, got, want)
		}
	}
}

// A cancel goes where it was told to, or to the partition of its id; it creates no topic, and warns of one that
// nobody reads.
func TestCancel_meetsTheMessage(t *testing.T) {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(7, "orders.delay"), kfake.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"node": "n1", "routes": ["orders.delay"]}`)
	}))
	defer node.Close()
	run := func(args ...string) (out, warned string, err error) {
		var stdout, stderr strings.Builder
		cmd := rootCommand()
		cmd.SetArgs(append(args, "--kafka.brokers", kafka.ListenAddrs()[0], "--api", strings.TrimPrefix(node.URL, "http://")))
		cmd.SetOut(&stdout)
		cmd.SetErr(&stderr)
		err = cmd.ExecuteContext(t.Context())
		return stdout.String(), stderr.String(), err
	}
	place := func(out string) string {
		_, rest, _ := strings.Cut(out, "orders.delay/")
		partition, _, _ := strings.Cut(rest, "/")
		return partition
	}
	used := make(map[string]bool)
	for i := range 5 {
		id := fmt.Sprint("reminder-", i)
		scheduled, _, err := run("schedule", "--to", "orders", "--in", "1h", "--id", id)
		if err != nil {
			t.Fatal(err)
		}
		cancelled, warned, err := run("cancel", "--topic", "orders.delay", id)
		if err != nil || place(cancelled) != place(scheduled) || warned != "" {
			t.Errorf("scheduled %q, cancelled %q, warned %q, %v", scheduled, cancelled, warned, err)
		}
		used[place(scheduled)] = true
	}
	if len(used) < 2 {
		t.Errorf("all ids are in %v", used)
	}
	for _, verb := range [][]string{{"cancel", "--topic", "orders.delay", "x"}, {"schedule", "--to", "orders", "--in", "1h"}} {
		if out, _, err := run(append(verb, "--partition", "5")...); err != nil || place(out) != "5" {
			t.Errorf("%s: %q, %v", verb, out, err)
		}
		if _, _, err := run(append(verb, "--partition", "7")...); err == nil {
			t.Errorf("%s: there is no partition 7", verb)
		}
		if _, _, err := run(append(verb, "--partition", "-1")...); err == nil || !strings.Contains(err.Error(), `--partition is "-1": write the number`) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	_, warned, err := run("cancel", "--topic", "bills.delay", "reminder-1")
	if !errors.Is(err, client.ErrTopicMissing) || !strings.Contains(warned, `reads topic "bills.delay", so no message waits by it and nothing is cancelled`) {
		t.Errorf("warned %q, %v", warned, err)
	}
}
