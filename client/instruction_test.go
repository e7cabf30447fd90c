package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stamped is the timestamp of the records in these tests.
const stamped = int64(1_900_000_000_000)

func headers(pairs ...string) (hs []Header) {
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return hs
}

func TestParseReadsEveryHeader(t *testing.T) {
	got, err := Parse(headers(
		"trace", "\xff", "deliver-at", "2030-01-31T08:00:00+01:00", "deliver-to", "orders.v2",
		"deliver-key", "k ä", "deliver-partition", "2147483647", "deliver-id", strings.Repeat("i", 256),
		"trace", "", "delivered-id", "from an earlier journey"), stamped)
	if err != nil {
		t.Fatal(err)
	}
	want := Instruction{DueAt: 1896073200000, To: "orders.v2", HasKey: true, Key: "k ä", Partition: 2147483647,
		ID: strings.Repeat("i", 256)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseReadsAKeyOfBytes(t *testing.T) {
	for value, want := range map[string]string{"AAAAAAAAACo=": "\x00\x00\x00\x00\x00\x00\x00*", "/+8=": "\xff\xef", "aw==": "k", "": ""} {
		got, err := Parse(headers("deliver-key-base64", value, "deliver-after", "0"), stamped)
		if err != nil || !got.HasKey || got.Key != want {
			t.Errorf("%q: key %q, %v, want %q", value, got.Key, err, want)
		}
	}
}

func TestParseReadsAPartition(t *testing.T) {
	for value, want := range map[string]int32{"0": 0, "1": 1, "+1": 1, "2147483647": 2147483647} {
		in, err := Parse(headers("deliver-partition", value, "deliver-after", "0"), stamped)
		if err != nil || in.Partition != want {
			t.Errorf("%q: partition %d, %v, want %d", value, in.Partition, err, want)
		}
	}
	for _, value := range []string{"+", "++1", "+-1", "-0"} {
		if _, err := Parse(headers("deliver-partition", value, "deliver-after", "0"), stamped); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, want that it is malformed", value, err)
		}
	}
}

func TestParseLeavesHeadersOfTheApplicationAlone(t *testing.T) {
	got, err := Parse(headers("Deliver-By", "mail", "Deliver-", "x", "DELIVERED-ID", "y", "deliver", "z", "Deliver_To", "w",
		"deliver-at", "1900000000123"), stamped)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Instruction{DueAt: 1900000000123, Partition: -1}, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseLeavesAbsentHeadersUnset(t *testing.T) {
	got, err := Parse(headers("deliver-after", "0"), stamped)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Instruction{DueAt: stamped, Partition: -1}, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	at := Header{Key: "deliver-at", Value: []byte("2030-01-31T08:00:00Z")}
	for _, tt := range []struct {
		name    string
		headers []Header
		want    HeaderError // Remedy: a part of it
	}{
		{"no time header", headers("x", "y", "deliver-to", "t"),
			HeaderError{CodeMalformed, "deliver-at", "", "is missing", "deliver-after", 0}},
		{"no header at all", nil,
			HeaderError{CodeMalformed, "deliver-at", "", "is missing", "RFC 3339 or epoch milliseconds", 0}},
		{"time header in another case", headers("Deliver-After", "1s"),
			HeaderError{CodeMalformed, "Deliver-After", "1s", "is not in lower case", "write deliver-after", 0}},
		{"header in another case beside a good time", append(headers("Deliver-To", "t"), at),
			HeaderError{CodeMalformed, "Deliver-To", "t", "is not in lower case", "write deliver-to", 0}},
		{"header with a capital after the prefix", append(headers("deliver-Key", "k"), at),
			HeaderError{CodeMalformed, "deliver-Key", "k", "is not in lower case", "write deliver-key", 0}},
		{"header in another case beside the right one", append(headers("DELIVER-AT", "2031-01-31T08:00:00Z"), at),
			HeaderError{CodeMalformed, "DELIVER-AT", "2031-01-31T08:00:00Z", "is not in lower case", "write deliver-at", 0}},
		{"cancel in another case", append(headers("Deliver-Cancel", "true"), at),
			HeaderError{CodeMalformed, "Deliver-Cancel", "true", "is not in lower case", "write deliver-cancel", 0}},
		{"null in another case", []Header{at, {Key: "Deliver-Id"}},
			HeaderError{CodeMalformed, "Deliver-Id", "", "is not in lower case", "write deliver-id", 0}},
		{"duplicate", []Header{at, at},
			HeaderError{CodeMalformed, "deliver-at", "2030-01-31T08:00:00Z", "is given twice", "once", 0}},
		{"contradiction", append(headers("deliver-id", "a", "deliver-id", "b"), at),
			HeaderError{CodeMalformed, "deliver-id", "b", "is given twice", "once", 0}},
		{"null value", []Header{at, {Key: "deliver-to"}},
			HeaderError{CodeMalformed, "deliver-to", "", "is null", "leave the header out", 0}},
		{"empty value", []Header{at, {Key: "deliver-key", Value: []byte{}}},
			HeaderError{CodeMalformed, "deliver-key", "", "is empty", "leave the header out", 0}},
		{"key twice, as text and bytes", append(headers("deliver-key-base64", "aw==", "deliver-key", "k"), at),
			HeaderError{CodeMalformed, "deliver-key-base64", "aw==", "is given beside deliver-key", "one of the two", 0}},
		{"empty key beside another", append(headers("deliver-key-base64", "", "deliver-key", "k"), at),
			HeaderError{CodeMalformed, "deliver-key-base64", "", "is given beside deliver-key", "one of the two", 0}},
		{"empty key twice", append(headers("deliver-key-base64", "", "deliver-key-base64", ""), at),
			HeaderError{CodeMalformed, "deliver-key-base64", "", "is given twice", "once", 0}},
		{"null key", []Header{at, {Key: "deliver-key-base64"}},
			HeaderError{CodeMalformed, "deliver-key-base64", "", "is null", "leave the header out", 0}},
		{"key without padding", append(headers("deliver-key-base64", "aw"), at),
			HeaderError{CodeMalformed, "deliver-key-base64", "aw", "is not base64", "padding", 0}},
		{"key of another base64", append(headers("deliver-key-base64", "_-8="), at),
			HeaderError{CodeMalformed, "deliver-key-base64", "_-8=", "is not base64", "+ /", 0}},
		{"key in two lines", append(headers("deliver-key-base64", "aw=\n="), at),
			HeaderError{CodeMalformed, "deliver-key-base64", "aw=\n=", "is not base64", "one line", 0}},
		{"key with bits that do not count", append(headers("deliver-key-base64", "ax=="), at),
			HeaderError{CodeMalformed, "deliver-key-base64", "ax==", "is not base64", "padding", 0}},
		{"null time", []Header{{Key: "deliver-at"}, at},
			HeaderError{CodeMalformed, "deliver-at", "", "is null", "leave the header out", 0}},
		{"not UTF-8", append(headers("deliver-id", "a\xff"), at),
			HeaderError{CodeMalformed, "deliver-id", "a\xff", "is not UTF-8", "UTF-8", 0}},
		{"unknown header", append(headers("deliver-too", "t"), at),
			HeaderError{CodeMalformed, "deliver-too", "t", "is not a header Carillon knows",
				"deliver-at, deliver-after, deliver-to, deliver-key, deliver-key-base64, deliver-partition, deliver-id", 0}},
		{"header with a slip of the finger", append(headers("deliver-partiton", "1"), at),
			HeaderError{CodeMalformed, "deliver-partiton", "1", "is not a header Carillon knows", "did you mean deliver-partition? The known ones are deliver-at,", 0}},
		{"header cut short", append(headers("deliver-expire", "1"), at),
			HeaderError{CodeMalformed, "deliver-expire", "1", "is not a header Carillon knows", "did you mean deliver-expires-at, which this version does not serve yet? The known ones are deliver-at,", 0}},
		{"header unlike all others", append(headers("deliver-when", "1"), at),
			HeaderError{CodeMalformed, "deliver-when", "1", "is not a header Carillon knows", "the known ones are", 0}},
		{"header with a name of 2000 bytes", append(headers("deliver-"+strings.Repeat("x", 1992), "1"), at),
			HeaderError{CodeMalformed, "deliver-" + strings.Repeat("x", 56) + "...", "1", "is not a header Carillon knows", "the known ones are", 0}},
		{"only the prefix", append(headers("deliver-", "t"), at),
			HeaderError{CodeMalformed, "deliver-", "t", "is not a header Carillon knows", "deliver-at", 0}},
		{"cancel", headers("deliver-cancel", "true", "deliver-id", "a"),
			HeaderError{CodeUnsupported, "deliver-cancel", "true", "is not supported by this version", "without", 0}},
		{"expiry", append(headers("deliver-expires-at", "9"), at),
			HeaderError{CodeUnsupported, "deliver-expires-at", "9", "is not supported by this version", "without", 0}},
		{"recurrence", headers("deliver-cron", "@daily"),
			HeaderError{CodeUnsupported, "deliver-cron", "@daily", "is not supported by this version", "without", 0}},
		{"id of 257 bytes", append(headers("deliver-id", strings.Repeat("é", 128)+"x"), at),
			HeaderError{CodeMalformed, "deliver-id", strings.Repeat("é", 32), "has 257 bytes", "at most 256", 193}},
		{"topic with a slash", append(headers("deliver-to", "a/b"), at),
			HeaderError{CodeMalformed, "deliver-to", "a/b", "is not a topic name", "a-z", 0}},
		{"topic of two dots", append(headers("deliver-to", ".."), at),
			HeaderError{CodeMalformed, "deliver-to", "..", "is not a topic name", "a-z A-Z 0-9 . _ -, but not . or ..", 0}},
		{"topic of 250 bytes", append(headers("deliver-to", strings.Repeat("t", 250)), at),
			HeaderError{CodeMalformed, "deliver-to", strings.Repeat("t", 64), "has 250 characters", "249", 186}},
		{"negative partition", append(headers("deliver-partition", "-1"), at),
			HeaderError{CodeMalformed, "deliver-partition", "-1", "is not a partition", "from 0", 0}},
		{"partition beyond int32", append(headers("deliver-partition", "2147483648"), at),
			HeaderError{CodeMalformed, "deliver-partition", "2147483648", "is not a partition", "2147483647", 0}},
		{"a wrong deliver-after beside deliver-at", append(headers("deliver-after", "soon"), at),
			HeaderError{CodeMalformed, "deliver-after", "soon", "is not a delay", "PT90S", 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.headers, stamped)
			var got *HeaderError
			if !errors.As(err, &got) {
				t.Fatalf("Parse = %v, want a *HeaderError", err)
			}
			if !strings.Contains(got.Remedy, tt.want.Remedy) {
				t.Errorf("remedy %q does not say %q", got.Remedy, tt.want.Remedy)
			}
			tt.want.Remedy = got.Remedy
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(err.Error(), got.Field) || !strings.Contains(err.Error(), got.Remedy) {
				t.Errorf("message %q lacks field or remedy", err)
			}
		})
	}
}

func TestHeaderErrorWrapsTheSentinelOfItsCode(t *testing.T) {
	_, err := Parse(headers("deliver-count", "3"), stamped)
	if !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrMalformed) {
		t.Errorf("deliver-count: %v", err)
	}
	_, err = Parse(nil, stamped)
	if !errors.Is(err, ErrMalformed) || errors.Is(err, ErrUnsupported) {
		t.Errorf("no header: %v", err)
	}
}

func TestHeaderErrorShowsThatItsQuoteIsCut(t *testing.T) {
	for value, want := range map[string]string{
		strings.Repeat("x", 64):                `deliver-id "` + strings.Repeat("x", 64) + `" is`,
		strings.Repeat("x", 1<<20):             `deliver-id "` + strings.Repeat("x", 64) + `" and 1048512 bytes more, is`,
		strings.Repeat("x", 63) + "é" + "more": `deliver-id "` + strings.Repeat("x", 63) + `" and 6 bytes more, is`,
	} {
		if got := malformed(HeaderID, value, "is", "change it").Error(); !strings.HasPrefix(got, want) {
			t.Errorf("message %q, want %q first", got, want)
		}
	}
}
