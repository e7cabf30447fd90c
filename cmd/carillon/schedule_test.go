package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/client"
)

// What the configuration takes as a duration is one here too, and reaches the
// header in the units that the broker reads there.
func TestSchedule_takesDaysAndYears(t *testing.T) {
	for in, want := range map[string]string{"1d": "24h0m0s", "2y": "17520h0m0s", "1h30m": "1h30m0s", "0": "0s"} {
		flags := scheduleCommand().Flags()
		if err := flags.Parse([]string{"--in", in}); err != nil {
			t.Fatal(err)
		}
		s := schedule{to: "orders", in: in}
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

func TestSchedule_warnsOfATopicThatTheNodeDoesNotRead(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		warns        bool
	}{
		{"reads it", `{"node": "n1", "routes": ["payments", "*.delay"]}`, false},
		{"reads others", `{"node": "n1", "routes": ["payments"]}`, true},
		{"does not tell", `{"node": "n1"}`, false},
		{"is no node", `hello`, false},
	} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, tt.status) }))
		if got := unread(t.Context(), strings.TrimPrefix(node.URL, "http://"), "orders.delay"); (got != "") != tt.warns {
			t.Errorf("%s: warning %q, want one: %v", tt.name, got, tt.warns)
		}
		node.Close()
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
		cmd := scheduleCommand()
		if err := cmd.Flags().Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		s, err := load(cmd.Flags(), kafkaKeys())
		if err != nil {
			t.Fatal(err)
		}
		if got := belongs(cmd.Flags(), s.config.Kafka.Brokers); got != want {
			t.Errorf("with %q the node is asked: %v, want %v", args, got, want)
		}
	}
}
