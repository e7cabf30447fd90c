package client

import (
	"errors"
	"strings"
	"testing"
)

func TestDeliverAt(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  int64
	}{
		{"1900000000123", 1900000000123},
		{"100000000000", 100000000000},
		{"253402300799999", 253402300799999},
		{"2030-03-17T17:46:40Z", 1900000000000},
		{"2030-03-17T17:46:40.5+00:00", 1900000000500},
		{"2030-03-17T23:16:40+05:30", 1900000000000},
		{"2030-03-17T17:46:40.1230001Z", 1900000000124},
		{"2030-03-17T17:46:40.123000000Z", 1900000000123},
		{"2030-03-17T17:46:40.1230000000000001Z", 1900000000124},
		{"2030-03-17T17:46:40.999999999Z", 1900000001000},
		{"1970-01-01T00:00:00Z", 0},
		{"1969-12-31T23:30:00-01:00", 1800000},
		{"9999-12-31T23:59:59.999Z", 253402300799999},
		{"+1900000000123", 1900000000123},
		{"2030-03-17t17:46:40z", 1900000000000},
		{"2030-03-17t17:46:40.5-00:00", 1900000000500},
		{"2030-03-18T17:45:40+23:59", 1900000000000},
		{"2030-03-16T17:47:40-23:59", 1900000000000},
		{"2096-02-29T00:00:00Z", 3981312000000},
	} {
		in, err := Parse(headers(HeaderAt, tt.value), -1)
		if err != nil || in.DueAt != tt.want {
			t.Errorf("deliver-at %q = %d, %v, want %d", tt.value, in.DueAt, err, tt.want)
		}
	}
}

func TestDeliverAfter(t *testing.T) {
	const day = 86_400_000
	for _, tt := range []struct {
		value string
		want  int64
	}{
		{"0", 0}, {"1500", 1500}, {"+1500", 1500}, {"+1", 1}, {"+90s", 90_000}, {"90s", 90_000}, {"1h30m", 5_400_000}, {"1.5ms", 2}, {"1ns", 1}, {"0s", 0},
		{"PT90S", 90_000}, {"+PT3S", 3000}, {"+P1D", day}, {"-PT0S", 0}, {"PT0.5S", 500}, {"PT0,25S", 250}, {"PT0.0001S", 1}, {"PT1.9999S", 2000}, {"PT0S", 0},
		{"P1D", day}, {"P1DT2H3M4.005S", day + 2*3_600_000 + 3*60_000 + 4005}, {"P2W", 14 * day}, {"PT36H", 36 * 3_600_000},
		{"PT876000H", 876_000 * 3_600_000}, {"P36500D", 36500 * day},
	} {
		in, err := Parse(headers(HeaderAfter, tt.value), stamped)
		if err != nil || in.DueAt != stamped+tt.want {
			t.Errorf("deliver-after %q = %d, %v, want %d", tt.value, in.DueAt-stamped, err, tt.want)
		}
	}
}

func TestDeliverAtWinsOverDeliverAfter(t *testing.T) {
	for _, hs := range [][]Header{
		headers(HeaderAt, "1900000000123", HeaderAfter, "1h"),
		headers(HeaderAfter, "1h", HeaderAt, "1900000000123"),
	} {
		in, err := Parse(hs, stamped)
		if err != nil || in.DueAt != 1900000000123 {
			t.Errorf("due at %d, %v, want 1900000000123", in.DueAt, err)
		}
	}
}

func TestDueTimeIsRefused(t *testing.T) {
	for _, tt := range []struct {
		field, value string
		timestamp    int64
		problem      string
		remedy       string
	}{
		{HeaderAt, "1900000000", stamped, "looks like seconds", "milliseconds"},
		{HeaderAt, "99999999999", stamped, "looks like seconds", "milliseconds"},
		{HeaderAt, "0", stamped, "is zero", "milliseconds"},
		{HeaderAt, "-1900000000000", stamped, "is negative", "milliseconds"},
		{HeaderAt, "-5", stamped, "is negative", "milliseconds"},
		{HeaderAt, "-99999999999999999999", stamped, "is negative", "milliseconds"},
		{HeaderAt, "1900000000000000", stamped, "is not between 1973 and 9999", "milliseconds"},
		{HeaderAt, "99999999999999999999", stamped, "is not between 1973 and 9999", "milliseconds"},
		{HeaderAt, "2030-03-17T17:46:40", stamped, "has no time zone", "append Z"},
		{HeaderAt, "2030-03-17T17:46:40.123", stamped, "has no time zone", "append Z"},
		{HeaderAt, "2030-03-17", stamped, "has no time of day", "2030-01-31T08:00:00Z"},
		{HeaderAt, "2030-03-17 17:46:40Z", stamped, "has a blank between date and time", "write T"},
		{HeaderAt, "2030-02-30T00:00:00Z", stamped, "has day 30 of February 2030", "use 01 to 28"},
		{HeaderAt, "2030-03-17T7:46:40Z", stamped, "is not a time", "RFC 3339"},
		{HeaderAt, "2030-03-17T17:46:40,5Z", stamped, "has a comma in its time", "point"},
		{HeaderAt, "2030-03-17T17:46:40+99:00", stamped, "has the zone offset +99:00, which does not exist", "-23:59 to +23:59"},
		{HeaderAt, " 1900000000000", stamped, "has blanks around it", "remove"},
		{HeaderAt, "2030-03-17T17:46:40+24:00", stamped, "has the zone offset +24:00, which does not exist", "-23:59 to +23:59"},
		{HeaderAt, "2030-03-17T17:46:40.5-05:60", stamped, "has the zone offset -05:60, which does not exist", "minutes 00 to 59"},
		{HeaderAt, "2030-03-17T17:46:40+0530", stamped, "has the zone offset \"+0530\"", "with a colon"},
		{HeaderAt, "2030-03-17T17:46:40+05", stamped, "has the zone offset \"+05\"", "with a colon"},
		{HeaderAt, "2030-03-17T18:46:40+01:00[Europe/Berlin]", stamped, "has \"[Europe/Berlin]\" behind its zone offset", "remove [Europe/Berlin]"},
		{HeaderAt, "2030-03-17T17:46:40Z[UTC]", stamped, "has \"[UTC]\" behind its zone offset", "remove [UTC]"},
		{HeaderAt, "2030-03-17T23:16:40+5:30", stamped, "has the zone offset \"+5:30\"", "two digits of hours"},
		{HeaderAt, "2030-03-17T17:46:40+00:00:00", stamped, "has the zone offset \"+00:00:00\"", "two digits of hours and two of minutes"},
		{HeaderAt, "2030-03-17T17:46:40 Z", stamped, "has \" Z\" in place of a time zone", "append Z"},
		{HeaderAt, "2030-03-17T17:46:40CET", stamped, "has \"CET\" in place of a time zone", "append Z"},
		{HeaderAt, "2030-03-17T17:46:40Zulu", stamped, "has \"Zulu\" in place of a time zone", "append Z"},
		{HeaderAt, "2030-03-17T17:46:40.Z", stamped, "has no digit behind its point", "point out"},
		{HeaderAt, "2030-03-17T17:46Z", stamped, "has no seconds", "2030-01-31T08:00:00Z"},
		{HeaderAt, "2030-00-17T17:46:40Z", stamped, "has month 00", "01 to 12"},
		{HeaderAt, "2030-13-17T17:46:40Z", stamped, "has month 13", "01 to 12"},
		{HeaderAt, "2030-04-00T17:46:40Z", stamped, "has day 00 of April 2030", "01 to 30"},
		{HeaderAt, "2100-02-29T17:46:40Z", stamped, "has day 29 of February 2100", "01 to 28"},
		{HeaderAt, "2030-03-17T24:00:00Z", stamped, "has hour 24", "midnight is 00:00:00 of the day after"},
		{HeaderAt, "2030-03-17T25:00:00Z", stamped, "has hour 25", "00 to 23"},
		{HeaderAt, "2030-03-17T17:60:40Z", stamped, "has minute 60", "00 to 59"},
		{HeaderAt, "2030-06-30T23:59:60Z", stamped, "has a leap second, which Kafka's time does not have", "use second 59"},
		{HeaderAt, "2030-03-17T17:46:61Z", stamped, "has second 61", "00 to 59"},
		{HeaderAt, "10000-01-01T00:00:00Z", stamped, "has a year of 5 digits", "9999"},
		{HeaderAt, "2030-03-17T17:46:40Z\n", stamped, "has blanks around it", "remove"},
		{HeaderAt, "+1", stamped, "looks like seconds", "milliseconds"},
		{HeaderAt, "+-1900000000000", stamped, "is not between 1973 and 9999", "milliseconds"},
		{HeaderAfter, " 5s", stamped, "has blanks around it", "remove"},
		{HeaderAt, "1.9e12", stamped, "is not a time", "RFC 3339"},
		{HeaderAt, "0001-01-01T00:00:00Z", stamped, "is before 1970", "time to come"},
		{HeaderAt, "9999-12-31T23:59:59.9999Z", stamped, "is beyond the year 9999 in UTC", "earlier"},
		{HeaderAt, "9999-12-31T23:59:59-01:00", stamped, "is beyond the year 9999 in UTC", "earlier"},
		{HeaderAfter, "-1", stamped, "is negative", "0 or more"},
		{HeaderAfter, "-5s", stamped, "is negative", "0 or more"},
		{HeaderAfter, "-1ns", stamped, "is negative", "0 or more"},
		{HeaderAfter, "PT-5S", stamped, "is not a delay", "PT90S"},
		{HeaderAfter, "-PT5S", stamped, "is negative", "0 or more"},
		{HeaderAfter, "-PT5", stamped, "is not a delay", "PT90S"},
		{HeaderAfter, "+-PT5S", stamped, "is not a delay", "PT90S"},
		{HeaderAfter, "++PT5S", stamped, "is not a delay", "PT90S"},
		{HeaderAfter, "soon", stamped, "is not a delay", "1h30m"},
		{HeaderAfter, "7d", stamped, "is not a delay", "days are written P7D"},
		{HeaderAfter, "1.5", stamped, "is not a delay", "1h30m"},
		{HeaderAfter, "5 s", stamped, "is not a delay", "1h30m"},
		{HeaderAfter, "P", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "PT", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "P1DT", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "PT5", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "PTS", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "P5S", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "PT1D", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "PT1M1H", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "PT1S1S", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "PT1.5H", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "PT5S ", stamped, "has blanks around it", "remove"},
		{HeaderAfter, "PT1ST1S", stamped, "is not a delay", "P1D"},
		{HeaderAfter, "P1M", stamped, "has years or months, whose length is not fixed", "P30D"},
		{HeaderAfter, "P1Y2DT3H", stamped, "has years or months, whose length is not fixed", "P30D"},
		{HeaderAfter, "999999999999999999999", stamped, "after the record's timestamp 1900000000000 is beyond the year 9999", "shorter"},
		{HeaderAfter, "-999999999999999999999", stamped, "is negative", "0 or more"},
		{HeaderAfter, "PT9999999999999999999S", stamped, "is too long", "shorter"},
		{HeaderAfter, "P9999999999999W", stamped, "is too long", "shorter"},
		{HeaderAfter, "PT2562047788015H12M55.8S", stamped, "is too long", "shorter"},
		{HeaderAfter, "9223372036854775807", stamped, "after the record's timestamp 1900000000000 is beyond the year 9999", "shorter"},
		{HeaderAfter, "1ms", 253402300799999, "after the record's timestamp 253402300799999 is beyond the year 9999", "shorter"},
		{HeaderAfter, "0", 1 << 62, "after the record's timestamp 4611686018427387904 is beyond the year 9999", "shorter"},
		{HeaderAfter, "5s", -1, "counts from the record's timestamp, but the record has none", "deliver-at"},
	} {
		_, err := Parse(headers(tt.field, tt.value), tt.timestamp)
		var got *HeaderError
		if !errors.As(err, &got) {
			t.Errorf("%s %q: error %v, want a *HeaderError", tt.field, tt.value, err)
			continue
		}
		if got.Field != tt.field || got.Value != tt.value || got.Problem != tt.problem || !strings.Contains(got.Remedy, tt.remedy) {
			t.Errorf("%s %q: %+v, want problem %q and remedy %q", tt.field, tt.value, got, tt.problem, tt.remedy)
		}
	}
}
