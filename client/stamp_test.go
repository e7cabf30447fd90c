package client

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestStampWritesWhatAPersonWouldType(t *testing.T) {
	r := &Record{Topic: "orders.delay", Headers: []Header{{Key: "trace"}}}
	err := Stamp(r, At(time.Date(2030, 1, 31, 8, 0, 0, 1_500_000, time.FixedZone("", 3600))), After(90*time.Minute),
		To("orders"), Key("k"), Partition(7), ID("i"))
	if err != nil {
		t.Fatal(err)
	}
	want := append([]Header{{Key: "trace"}}, headers("deliver-at", "2030-01-31T07:00:00.0015Z", "deliver-after", "1h30m0s",
		"deliver-to", "orders", "deliver-key", "k", "deliver-partition", "7", "deliver-id", "i")...)
	if diff := cmp.Diff(want, r.Headers); diff != "" {
		t.Error(diff)
	}
}

func TestStampRefusesWhatTheBrokerWouldRefuse(t *testing.T) {
	for name, options := range map[string][]Option{
		"no time":              {To("orders")},
		"time that is not set": {At(time.Time{})},
		"year 10000":           {At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
		"year -1":              {At(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC))},
		"negative delay":       {After(-time.Nanosecond)},
		"two times":            {After(0), After(0)},
		"empty target":         {After(0), To("")},
		"bad target":           {After(0), To("a b")},
		"empty key":            {After(0), Key("")},
		"no key of bytes":      {After(0), KeyBytes(nil)},
		"two keys":             {After(0), Key("k"), KeyBytes([]byte("k"))},
		"negative partition":   {After(0), Partition(-1)},
		"empty id":             {After(0), ID("")},
		"binary id":            {After(0), ID("\xff")},
		"id of a record":       {After(0), ID("orders.delay/0/1")},
		"cancel and a time":    {After(0), Cancel("i")},
		"cancel of no id":      {Cancel("")},
		"two ids":              {Cancel("i"), ID("i")},
		"condition, no id":     {After(0), IfAbsent()},
		"two conditions":       {After(0), ID("i"), IfAbsent(), IfPresent()},
		"no seq":               {After(0), ID("i"), IfSeq("first")},
		"expires when due":     {After(0), ExpiresAfter(0)},
		"expires never":        {After(0), ExpiresAt(time.Time{})},
	} {
		backing := make([]Header, 1, 8)
		r := &Record{Headers: backing}
		err := Stamp(r, options...)
		var wrong *HeaderError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: error %v, want a *HeaderError", name, err)
		}
		if len(r.Headers) != 1 || backing[:2][1].Key != "" {
			t.Errorf("%s: the refused record was changed", name)
		}
	}
}

func TestStampTakesAnEmptyKeyOfBytes(t *testing.T) {
	r := &Record{}
	if err := Stamp(r, After(0), KeyBytes([]byte{})); err != nil {
		t.Fatal(err)
	}
	if in, err := Parse(r.Headers, stamped); err != nil || !in.HasKey || in.Key != "" {
		t.Errorf("%+v, %v, want the empty key", in, err)
	}
}

func TestStampTwiceIsRefused(t *testing.T) {
	r := &Record{}
	if err := Stamp(r, After(time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := Stamp(r, After(time.Second)); !errors.Is(err, ErrMalformed) {
		t.Errorf("second stamp: %v, want ErrMalformed", err)
	}
}

func TestStampedIsParsedBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Instruction{
			To:        rapid.StringMatching(`([a-zA-Z0-9._-]{3,249})?`).Draw(t, "to"),
			Key:       rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "key"),
			Partition: rapid.Int32Range(-1, math.MaxInt32).Draw(t, "partition"),
			ID:        rapid.StringN(0, 64, MaxIDBytes).Filter(func(id string) bool { return id != "/" }).Draw(t, "id"), // which no message can have
		}
		if want.HasKey = rapid.Bool().Draw(t, "has a key"); !want.HasKey {
			want.Key = ""
		}
		base := rapid.Int64Range(0, latestDue/2).Draw(t, "timestamp")
		r := &Record{Timestamp: time.UnixMilli(base), Headers: []Header{{Key: "own"}}}
		var when Option
		if rapid.Bool().Draw(t, "relative") {
			delay := time.Duration(rapid.Int64Min(0).Draw(t, "delay"))
			want.DueAt = base + int64((delay+999_999)/time.Millisecond)
			if delay > math.MaxInt64-999_999 {
				want.DueAt = base + math.MaxInt64/1_000_000 + 1
			}
			when = After(delay)
		} else {
			want.DueAt = rapid.Int64Range(0, latestDue).Draw(t, "due")
			early := time.Duration(rapid.Int64Range(0, 999_999).Draw(t, "early"))
			when = At(time.UnixMilli(want.DueAt).Add(-min(early, time.Duration(min(want.DueAt, 1))*time.Millisecond)))
		}
		if want.ID != "" {
			want.If = Condition(rapid.Uint8Range(0, uint8(Exactly)).Draw(t, "condition"))
		}
		if want.If == Exactly {
			want.Seq = rapid.Uint64Min(1).Draw(t, "seq")
			want.Cluster = rapid.StringMatching(`([0-9a-f]{32})?`).Draw(t, "cluster")
		}
		if rapid.Bool().Draw(t, "expires") && want.DueAt < latestDue {
			want.Expires = rapid.Int64Range(max(want.DueAt+1, secondsBelow), latestDue).Draw(t, "expiry")
		}
		if err := Stamp(r, restamp(want, when)...); err != nil {
			t.Fatal(err)
		}
		got, err := Parse(r.Headers, base)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// restamp returns the options that say what the instruction says, with its time given apart.
func restamp(in Instruction, when Option) []Option {
	var options []Option
	if in.Verb == VerbCancel {
		options = append(options, Cancel(in.ID))
		in.ID = ""
	} else {
		options = append(options, when)
	}
	if in.To != "" {
		options = append(options, To(in.To))
	}
	switch {
	case !in.HasKey:
	case in.Key != "" && utf8.ValidString(in.Key):
		options = append(options, Key(in.Key))
	default:
		options = append(options, KeyBytes([]byte(in.Key)))
	}
	if in.Partition >= 0 {
		options = append(options, Partition(in.Partition))
	}
	if in.ID != "" {
		options = append(options, ID(in.ID))
	}
	switch in.If {
	case Absent:
		options = append(options, IfAbsent())
	case Present:
		options = append(options, IfPresent())
	case Exactly:
		seq := strconv.FormatUint(in.Seq, 10)
		if in.Cluster != "" {
			seq = in.Cluster + "/" + seq
		}
		options = append(options, IfSeq(seq))
	}
	if in.Expires != 0 {
		options = append(options, ExpiresAt(time.UnixMilli(in.Expires)))
	}
	return options
}
