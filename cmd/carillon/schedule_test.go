package main

import (
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
