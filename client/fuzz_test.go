package client

import (
	"errors"
	"testing"
	"time"
	"unicode/utf8"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []struct {
		at, after, to, key, partition, id, otherName string
		timestamp                                    int64
	}{
		{at: "2030-01-31T08:00:00.0015+01:00", to: "orders", key: "k", partition: "7", id: "i", timestamp: stamped},
		{at: "1900000000123", after: "1h30m", timestamp: stamped},
		{at: "1900000000", timestamp: -1},
		{at: "2030-01-31T08:00:00.99999999999999Z", otherName: "deliver-cancel"},
		{at: "9999-12-31T23:59:59.9999Z", otherName: "deliver-at"},
		{after: "PT90S", id: "\xff", timestamp: stamped},
		{after: "P1W2DT3H4M5.678901S", otherName: "trace", timestamp: stamped},
		{after: "P1Y", to: ".."},
		{after: "9223372036854775807", partition: "-1", timestamp: 1<<63 - 1},
		{after: "-1ns", otherName: "deliver-\xff"},
	} {
		f.Add(seed.at, seed.after, seed.to, seed.key, seed.partition, seed.id, seed.otherName, seed.timestamp)
	}
	f.Fuzz(func(t *testing.T, at, after, to, key, partition, id, otherName string, timestamp int64) {
		hs := []Header{{Key: otherName}}
		for _, h := range headers(HeaderAt, at, HeaderAfter, after, HeaderTo, to, HeaderKey, key,
			HeaderPartition, partition, HeaderID, id) {
			if len(h.Value) > 0 {
				hs = append(hs, h)
			}
		}
		in, err := Parse(hs, timestamp)
		if err != nil {
			var wrong *HeaderError
			if !errors.As(err, &wrong) || wrong.Field == "" || wrong.Problem == "" || wrong.Remedy == "" {
				t.Fatalf("error %#v does not name field, problem and remedy", err)
			}
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("message %q is not UTF-8", err)
			}
			return
		}
		if in.DueAt < 0 || in.DueAt > latestDue {
			t.Fatalf("due at %d", in.DueAt)
		}
		r := &Record{}
		if err := Stamp(r, restamp(in, At(time.UnixMilli(in.DueAt)))...); err != nil {
			t.Fatalf("stamp %+v: %v", in, err)
		}
		if again, err := Parse(r.Headers, -1); err != nil || again != in {
			t.Fatalf("stamped and parsed again: %+v, %v, want %+v", again, err, in)
		}
	})
}
