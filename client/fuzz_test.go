package client

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []struct {
		at, after, to, key, partition, id, cancel, condition, expiresAt, expiresAfter, otherName string

		timestamp int64
	}{
		{at: "2030-01-31T08:00:00.0015+01:00", to: "orders", key: "k", partition: "7", id: "i", timestamp: stamped},
		{at: "1900000000123", after: "1h30m", timestamp: stamped},
		{at: "1900000000", timestamp: -1},
		{at: "2030-01-31T08:00:00.99999999999999Z", otherName: "deliver-cancle"},
		{at: "9999-12-31T23:59:59.9999Z", otherName: "deliver-at"},
		{after: "PT90S", id: "\xff", timestamp: stamped},
		{after: "P1W2DT3H4M5.678901S", otherName: "trace", timestamp: stamped},
		{after: "P1Y", to: ".."},
		{after: "9223372036854775807", partition: "-1", timestamp: 1<<63 - 1},
		{after: "-1ns", otherName: "deliver-\xff"},
		{at: "2030-03-17t17:46:40.5z", otherName: "deliver-expire"},
		{at: "2030-02-30T24:00:60+05:60", otherName: "deliver-"},
		{id: "i", cancel: "true"},
		{id: "i", cancel: "true", condition: "present", at: "1900000000123"},
		{id: "i", cancel: "true", condition: "000102030405060708090A0B0C0D0E0F/7", to: "orders"},
		{id: "orders.delay/0/7", after: "0", condition: "absent"},
		{id: "i", after: "0", condition: "+7", expiresAfter: "1ns", timestamp: stamped},
		{after: "1h", expiresAt: "2030-03-17T17:46:40Z", timestamp: stamped},
		{after: "1h", expiresAfter: "P4000000D", timestamp: stamped},
	} {
		f.Add(seed.at, seed.after, seed.to, seed.key, seed.partition, seed.id, seed.cancel, seed.condition, seed.expiresAt, seed.expiresAfter, seed.otherName, seed.timestamp)
	}
	f.Fuzz(func(t *testing.T, at, after, to, key, partition, id, cancel, condition, expiresAt, expiresAfter, otherName string, timestamp int64) {
		hs := []Header{{Key: otherName}}
		for _, h := range headers(HeaderAt, at, HeaderAfter, after, HeaderTo, to, HeaderKey, key, HeaderPartition, partition, HeaderID, id,
			HeaderCancel, cancel, HeaderIf, condition, HeaderExpiresAt, expiresAt, HeaderExpiresAfter, expiresAfter) {
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
		if in.Expires != 0 && (in.Expires <= in.DueAt || in.Expires > latestDue) {
			t.Fatalf("due at %d, expires at %d", in.DueAt, in.Expires)
		}
		if in.ID == "" && (in.Verb == VerbCancel || in.If != Always) || isOrigin(in.ID) || in.Verb != VerbCancel && strings.HasPrefix(in.ID, OwnPrefix) {
			t.Fatalf("%+v of id %q", in, in.ID)
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

// FuzzTime holds the reader of times against that of the standard library, which takes less than RFC 3339
// here and more there.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{"2030-01-31T08:00:00.0015+01:00", "2030-02-29t23:59:59z", "2028-02-29T00:00:00-23:59",
		"2030-03-17T17:46:40+24:00", "0000-01-01T00:00:00Z", "2030-03-17T7:46:40Z", "2030-03-17T17:46:40,5Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		want, err := time.Parse(time.RFC3339Nano, strings.ToUpper(value))
		got, refused := parseRFC3339(HeaderAt, value)
		switch {
		case refused == nil && err != nil:
			t.Fatalf("%q is taken as %d, the standard library says %v", value, got, err)
		case refused == nil && !want.Truncate(time.Millisecond).Equal(time.UnixMilli(got)) && !want.Add(time.Millisecond).Truncate(time.Millisecond).Equal(time.UnixMilli(got)):
			t.Fatalf("%q is taken as %v, want %v", value, time.UnixMilli(got).UTC(), want)
		case refused == nil && time.UnixMilli(got).Before(want):
			t.Fatalf("%q is taken as %v, which is early", value, time.UnixMilli(got).UTC())
		case refused != nil && err == nil && value == want.Format(time.RFC3339Nano) && want.Unix() >= 0 && want.UTC().Year() < 10000 && !strings.Contains(refused.Error(), "does not exist"):
			t.Fatalf("%q is refused: %v", value, refused)
		}
	})
}
