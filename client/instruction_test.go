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

func TestParseReadsACancel(t *testing.T) {
	for name, tt := range map[string]struct {
		headers []Header
		want    Instruction
	}{
		"bare":                {headers("deliver-id", "a", "deliver-cancel", "true"), Instruction{Verb: VerbCancel, Partition: -1, ID: "a"}},
		"that names a target": {headers("deliver-cancel", "true", "deliver-id", "a", "deliver-to", "t"), Instruction{Verb: VerbCancel, Partition: -1, ID: "a", To: "t"}},
		"of one message":      {headers("deliver-cancel", "true", "deliver-id", "a", "deliver-if", "7"), Instruction{Verb: VerbCancel, Partition: -1, ID: "a", If: Exactly, Seq: 7}},
		"of what is there":    {headers("deliver-cancel", "true", "deliver-id", "a", "deliver-if", "present"), Instruction{Verb: VerbCancel, Partition: -1, ID: "a", If: Present}},
	} {
		got, err := Parse(tt.headers, -1)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, tt.want)
		}
	}
}

func TestParseReadsAConditionAndAnExpiry(t *testing.T) {
	due := headers("deliver-id", "a", "deliver-after", "1s")
	want := Instruction{DueAt: stamped + 1000, Partition: -1, ID: "a"}
	const cluster = "000102030405060708090a0b0c0d0e0f"
	for name, tt := range map[string]struct {
		headers []Header
		change  func(in *Instruction)
	}{
		"absent":        {headers("deliver-if", "absent"), func(in *Instruction) { in.If = Absent }},
		"present":       {headers("deliver-if", "present"), func(in *Instruction) { in.If = Present }},
		"a number":      {headers("deliver-if", "18446744073709551615"), func(in *Instruction) { in.If, in.Seq = Exactly, 1<<64-1 }},
		"a signed one":  {headers("deliver-if", "+7"), func(in *Instruction) { in.If, in.Seq = Exactly, 7 }},
		"all of it":     {headers("deliver-if", cluster+"/7"), func(in *Instruction) { in.If, in.Seq, in.Cluster = Exactly, 7, cluster }},
		"all, capital":  {headers("deliver-if", strings.ToUpper(cluster)+"/7"), func(in *Instruction) { in.If, in.Seq, in.Cluster = Exactly, 7, cluster }},
		"expiry":        {headers("deliver-expires-at", "2030-03-17T17:46:41.000001Z"), func(in *Instruction) { in.Expires = stamped + 1001 }},
		"expiry, delay": {headers("deliver-expires-after", "PT1M"), func(in *Instruction) { in.Expires = stamped + 61_000 }},
	} {
		want := want
		tt.change(&want)
		if got, err := Parse(append(tt.headers, due...), stamped); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestParseTakesIDsThatAreNoOrigin(t *testing.T) {
	for _, id := range []string{"orders.delay/0/", "orders.delay//1", "/0/1", "orders.delay/0", "a/0/1/2", "a b/0/1", "order/0x1/2", "a/-1/2", "7"} {
		if in, err := Parse(headers("deliver-id", id, "deliver-after", "0"), stamped); err != nil || in.ID != id {
			t.Errorf("%q: %q, %v", id, in.ID, err)
		}
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
			HeaderError{CodeMalformed, "deliver-expire", "1", "is not a header Carillon knows", "did you mean deliver-expires-at? The known ones are deliver-at,", 0}},
		{"header unlike all others", append(headers("deliver-when", "1"), at),
			HeaderError{CodeMalformed, "deliver-when", "1", "is not a header Carillon knows", "the known ones are", 0}},
		{"header with a name of 2000 bytes", append(headers("deliver-"+strings.Repeat("x", 1992), "1"), at),
			HeaderError{CodeMalformed, "deliver-" + strings.Repeat("x", 56) + "...", "1", "is not a header Carillon knows", "the known ones are", 0}},
		{"only the prefix", append(headers("deliver-", "t"), at),
			HeaderError{CodeMalformed, "deliver-", "t", "is not a header Carillon knows", "deliver-at", 0}},
		{"header that is to come, cut short", append(headers("deliver-coun", "1"), at),
			HeaderError{CodeMalformed, "deliver-coun", "1", "is not a header Carillon knows", "did you mean deliver-count, which this version does not serve yet? The known ones are deliver-at,", 0}},
		{"cancel with a slip of the finger", append(headers("deliver-cancle", "true"), at),
			HeaderError{CodeMalformed, "deliver-cancle", "true", "is not a header Carillon knows", "did you mean deliver-cancel?", 0}},
		{"cancel without id", headers("deliver-cancel", "true"),
			HeaderError{CodeMalformed, "deliver-cancel", "true", "needs deliver-id", "deliver-id", 0}},
		{"cancel that says no", headers("deliver-cancel", "false", "deliver-id", "a"),
			HeaderError{CodeMalformed, "deliver-cancel", "false", "is not true", "write true, or leave the header out", 0}},
		{"cancel and a time", append(headers("deliver-cancel", "true", "deliver-id", "a"), at),
			HeaderError{CodeMalformed, "deliver-cancel", "true", "is given beside deliver-at", "leave out deliver-at to cancel", 0}},
		{"cancel and a delay", headers("deliver-after", "soon", "deliver-cancel", "true", "deliver-id", "a"),
			HeaderError{CodeMalformed, "deliver-cancel", "true", "is given beside deliver-after", "leave out deliver-after", 0}},
		{"cancel and an expiry", headers("deliver-expires-at", "1900000000123", "deliver-cancel", "true", "deliver-id", "a"),
			HeaderError{CodeMalformed, "deliver-cancel", "true", "is given beside deliver-expires-at", "leave out deliver-expires-at", 0}},
		{"cancel and a wrong target", headers("deliver-to", "a/b", "deliver-cancel", "true", "deliver-id", "a"),
			HeaderError{CodeMalformed, "deliver-to", "a/b", "is not a topic name", "a-z", 0}},
		{"cancel of what is absent", headers("deliver-if", "absent", "deliver-cancel", "true", "deliver-id", "a"),
			HeaderError{CodeMalformed, "deliver-if", "absent", "is given beside deliver-cancel, so nothing would ever be cancelled", "leave one", 0}},
		{"null cancel", []Header{at, {Key: "deliver-cancel"}},
			HeaderError{CodeMalformed, "deliver-cancel", "", "is null", "leave the header out", 0}},
		{"condition without id", append(headers("deliver-if", "absent"), at),
			HeaderError{CodeMalformed, "deliver-if", "absent", "needs deliver-id", "deliver-id", 0}},
		{"unknown condition", append(headers("deliver-if", "Absent", "deliver-id", "a"), at),
			HeaderError{CodeMalformed, "deliver-if", "Absent", "is not a condition", "use absent, present, or the seq", 0}},
		{"seq 0", append(headers("deliver-if", "0", "deliver-id", "a"), at),
			HeaderError{CodeMalformed, "deliver-if", "0", "is not a condition", "a number from 1 on", 0}},
		{"seq beyond uint64", append(headers("deliver-if", "18446744073709551616", "deliver-id", "a"), at),
			HeaderError{CodeMalformed, "deliver-if", "18446744073709551616", "is not a condition", "a number", 0}},
		{"seq of a cluster's id cut short", append(headers("deliver-if", "0123456789abcdef/7", "deliver-id", "a"), at),
			HeaderError{CodeMalformed, "deliver-if", "0123456789abcdef/7", "is not a condition", "all of its delivered-seq", 0}},
		{"two seqs", append(headers("deliver-if", "000102030405060708090a0b0c0d0e0f/7/8", "deliver-id", "a"), at),
			HeaderError{CodeMalformed, "deliver-if", "000102030405060708090a0b0c0d0e0f/7/8", "is not a condition", "delivered-seq", 0}},
		{"cluster without a seq", append(headers("deliver-if", "000102030405060708090a0b0c0d0e0f/", "deliver-id", "a"), at),
			HeaderError{CodeMalformed, "deliver-if", "000102030405060708090a0b0c0d0e0f/", "is not a condition", "delivered-seq", 0}},
		{"expiry in seconds", append(headers("deliver-expires-at", "1900000000"), at),
			HeaderError{CodeMalformed, "deliver-expires-at", "1900000000", "looks like seconds", "milliseconds", 0}},
		{"expiry without zone", append(headers("deliver-expires-at", "2030-03-17T17:46:40"), at),
			HeaderError{CodeMalformed, "deliver-expires-at", "2030-03-17T17:46:40", "has no time zone", "append Z", 0}},
		{"expiry at the due time", append(headers("deliver-expires-at", "2030-01-31T08:00:00Z"), at),
			HeaderError{CodeMalformed, "deliver-expires-at", "2030-01-31T08:00:00Z", "is not after the due time, which is 1896076800000", "a later time", 0}},
		{"expiry before the due time", append(headers("deliver-expires-at", "2030-01-31T07:59:59.999Z"), at),
			HeaderError{CodeMalformed, "deliver-expires-at", "2030-01-31T07:59:59.999Z", "is not after the due time, which is 1896076800000", "a later time", 0}},
		{"expiry after nothing", append(headers("deliver-expires-after", "0s"), at),
			HeaderError{CodeMalformed, "deliver-expires-after", "0s", "is not after the due time, which is 1896076800000", "a later time", 0}},
		{"negative expiry", append(headers("deliver-expires-after", "-1s"), at),
			HeaderError{CodeMalformed, "deliver-expires-after", "-1s", "is negative", "0 or more", 0}},
		{"expiry after years", append(headers("deliver-expires-after", "P1Y"), at),
			HeaderError{CodeMalformed, "deliver-expires-after", "P1Y", "has years or months, whose length is not fixed", "use deliver-expires-at", 0}},
		{"expiry beyond all times", append(headers("deliver-expires-after", "P4000000D"), at),
			HeaderError{CodeMalformed, "deliver-expires-after", "P4000000D", "after the due time 1896076800000 is beyond the year 9999", "a shorter delay", 0}},
		{"two expiries", append(headers("deliver-expires-after", "1s", "deliver-expires-at", "2031-01-31T08:00:00Z"), at),
			HeaderError{CodeMalformed, "deliver-expires-after", "1s", "is given beside deliver-expires-at", "one of the two", 0}},
		{"a wrong expiry beside nothing", headers("deliver-expires-after", "1s"),
			HeaderError{CodeMalformed, "deliver-at", "", "is missing", "deliver-after", 0}},
		{"id like that of a message without one", append(headers("deliver-id", "orders.delay/0/42"), at),
			HeaderError{CodeMalformed, "deliver-id", "orders.delay/0/42", "has the form topic/number/number, by which messages without an id are named", "choose another id", 0}},
		{"id like those that Carillon makes", append(headers("deliver-id", "api/42"), at),
			HeaderError{CodeMalformed, "deliver-id", "api/42", "begins with api/, as the ids do that Carillon makes", "choose another id", 0}},
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

func TestHeaderErrorQuotesANameThatCannotBePrinted(t *testing.T) {
	for name, want := range map[string]string{
		"deliver-soon":                `deliver-soon "1" is not a header`,
		"deliver-größe":               `deliver-größe "1" is not a header`,
		"deliver-\x1b]0;owned\x07":    `"deliver-\x1b]0;owned\a" "1" is not a header`,
		"deliver-two\nlines":          `"deliver-two\nlines" "1" is not a header`,
		"deliver-\u202eback to front": `"deliver-\u202eback to front" "1" is not a header`,
	} {
		if _, err := Parse(headers(name, "1"), stamped); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: message %q, want %q first", name, err, want)
		}
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
