package client

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseRFC3339 returns the epoch milliseconds, rounded up, of a date-time of RFC 3339, section 5.6,
// the value of the header field:
//
//	2030-01-31T08:00:00[.digits](Z | +hh:mm | -hh:mm)
//
// T and Z may be lower case. The error names the part that is wrong. time.Parse would not, and it
// takes what does not exist, such as the offset +24:00.
func parseRFC3339(field, value string) (int64, error) {
	const dateAndTime = "dddd-dd-ddTdd:dd:dd"
	if !hasShape(value, dateAndTime) {
		return 0, notATime(field, value)
	}
	second, err := civilSecond(field, value)
	if err != nil {
		return 0, err
	}
	rest, fraction := value[len(dateAndTime):], ""
	if strings.HasPrefix(rest, ".") {
		fraction = rest[1 : 1+digits(rest[1:])]
		rest = rest[1+len(fraction):]
		if fraction == "" {
			return 0, malformed(field, value, "has no digit behind its point", "write the fraction of the second, or leave the point out")
		}
	}
	offset, err := zoneOffset(field, value, rest)
	if err != nil {
		return 0, err
	}
	second -= offset
	ms := second*1000 + ceilFraction(fraction)
	switch {
	case second < 0:
		return 0, malformed(field, value, "is before 1970", "set a time to come")
	case ms > latestDue:
		return 0, malformed(field, value, "is beyond the year 9999 in UTC", "set an earlier time")
	}
	return ms, nil
}

// civilSecond returns the second since 1970 of the date and time at the front of value, which has
// their shape, as if they were UTC.
func civilSecond(field, value string) (int64, error) {
	wrong := func(problem, remedy string) (int64, error) { return 0, malformed(field, value, problem, remedy) }
	year, month, day := number(value[:4]), time.Month(number(value[5:7])), number(value[8:10])
	hour, minute, second := number(value[11:13]), number(value[14:16]), number(value[17:19])
	if month < time.January || month > time.December {
		return wrong(fmt.Sprintf("has month %02d", month), "use 01 to 12")
	}
	if last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day(); day < 1 || day > last {
		return wrong(fmt.Sprintf("has day %02d of %s %04d", day, month, year), fmt.Sprintf("use 01 to %d", last))
	}
	switch {
	case hour == 24:
		return wrong("has hour 24", "use 00 to 23; midnight is 00:00:00 of the day after")
	case hour > 24:
		return wrong(fmt.Sprintf("has hour %d", hour), "use 00 to 23")
	case minute > 59:
		return wrong(fmt.Sprintf("has minute %d", minute), "use 00 to 59")
	case second == 60:
		return wrong("has a leap second, which Kafka's time does not have", "use second 59, or 00 of the minute after")
	case second > 60:
		return wrong(fmt.Sprintf("has second %d", second), "use 00 to 59")
	}
	return time.Date(year, month, day, hour, minute, second, 0, time.UTC).Unix(), nil
}

// zoneOffset returns the seconds by which the zone, the last part of value, is ahead of UTC.
func zoneOffset(field, value, zone string) (int64, error) {
	const example = "append Z or an offset such as +01:00"
	if i := strings.IndexByte(zone, '['); i > 0 { // of Java's ZonedDateTime
		id := cut(zone[i:])
		return 0, malformed(field, value, fmt.Sprintf("has %q behind its zone offset", id), "remove "+id)
	}
	switch {
	case zone == "Z" || zone == "z":
		return 0, nil
	case zone == "":
		return 0, malformed(field, value, "has no time zone", example)
	case zone[0] == ',':
		return 0, malformed(field, value, "has a comma in its time", "write a point before the fraction of the second")
	case zone[0] != '+' && zone[0] != '-':
		return 0, malformed(field, value, fmt.Sprintf("has %q in place of a time zone", cut(zone)), example)
	case strings.Contains(zone, ":") && (len(zone) != len("+hh:mm") || !hasShape(zone[1:], "dd:dd")):
		return 0, malformed(field, value, fmt.Sprintf("has the zone offset %q", cut(zone)), "write two digits of hours and two of minutes, such as +05:30")
	case len(zone) != len("+hh:mm") || !hasShape(zone[1:], "dd:dd"):
		return 0, malformed(field, value, fmt.Sprintf("has the zone offset %q", cut(zone)), "write it with a colon, such as +01:00")
	}
	hours, minutes := number(zone[1:3]), number(zone[4:])
	if hours > 23 || minutes > 59 {
		return 0, malformed(field, value, "has the zone offset "+zone+", which does not exist", "use -23:59 to +23:59, minutes 00 to 59")
	}
	seconds := int64(hours*3600 + minutes*60)
	if zone[0] == '-' {
		return -seconds, nil
	}
	return seconds, nil
}

// notATime says what is wrong with a value that does not have the shape of a date and a time.
func notATime(field, value string) error {
	const remedy = "use RFC 3339 with zone, such as 2030-01-31T08:00:00Z, or epoch milliseconds"
	year := digits(value)
	switch {
	case year > 4 && hasShape(value[year:], "-dd-dd"):
		return malformed(field, value, fmt.Sprintf("has a year of %d digits", year), "use four, 9999 at most")
	case len(value) == len("yyyy-mm-dd") && hasShape(value, "dddd-dd-dd"):
		return malformed(field, value, "has no time of day", remedy)
	case hasShape(value, "dddd-dd-dd dd:dd"):
		return malformed(field, value, "has a blank between date and time", "write T in its place")
	case hasShape(value, "dddd-dd-ddTdd:dd") && !strings.HasPrefix(value[len("yyyy-mm-ddThh:mm"):], ":"):
		return malformed(field, value, "has no seconds", remedy)
	}
	return malformed(field, value, "is not a time", remedy)
}

// hasShape reports whether s begins as the layout says: d is a digit, T may be lower case, all else
// is itself.
func hasShape(s, layout string) bool {
	if len(s) < len(layout) {
		return false
	}
	for i, want := range []byte(layout) {
		switch c := s[i]; {
		case want == 'd' && '0' <= c && c <= '9', want == 'T' && c == 't', want == c && c != 'd':
		default:
			return false
		}
	}
	return true
}

// number returns the value of some decimal digits.
func number(digits string) (n int) {
	for _, c := range []byte(digits) {
		n = 10*n + int(c-'0')
	}
	return n
}

// parseISODuration returns the milliseconds, rounded up, of an ISO 8601 duration:
//
//	P [n W] [n D] [T [n H] [n M] [n[.fraction] S]]
//
// A day has 24 hours and a week seven days. rest is value, that of the header field, without
// its sign and its P.
func parseISODuration(field, value, rest string) (total int64, err error) {
	date, clock, hasClock := strings.Cut(rest, "T")
	if date == "" && clock == "" || hasClock && clock == "" {
		return 0, notADelay(field, value)
	}
	if total, err = addISOFields(field, value, date, dateUnit, 0); err != nil {
		return 0, err
	}
	return addISOFields(field, value, clock, clockUnit, total)
}

// addISOFields adds the fields of one half of a duration to total. unit returns the milliseconds of
// a designator, 0 when it is not one of this half; each must be shorter than the one before.
func addISOFields(field, value, fields string, unit func(designator byte) int64, total int64) (int64, error) {
	for longer := int64(math.MaxInt64); fields != ""; {
		count, fraction, designator, rest := cutISOField(fields)
		size := unit(designator)
		if size == notFixed {
			return 0, malformed(field, value, "has years or months, whose length is not fixed",
				"use days, such as P30D, or compute the time and use "+timeOf(field))
		}
		if count == "" || size == 0 || size >= longer || fraction != "" && designator != 'S' {
			return 0, notADelay(field, value)
		}
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || n > (math.MaxInt64-total-1000)/size {
			return 0, malformed(field, value, "is too long", "use a shorter delay")
		}
		total += n*size + ceilFraction(fraction)
		fields, longer = rest, size
	}
	return total, nil
}

// timeOf returns the header that says as a time what the field says as a delay.
func timeOf(field string) string {
	if field == HeaderExpiresAfter {
		return HeaderExpiresAt
	}
	return HeaderAt
}

// cutISOField splits "1.5S..." into "1", "5", 'S' and the rest. The designator is 0 when there is
// none.
func cutISOField(fields string) (count, fraction string, designator byte, rest string) {
	count, rest = fields[:digits(fields)], fields[digits(fields):]
	if rest != "" && (rest[0] == '.' || rest[0] == ',') {
		fraction = rest[1 : 1+digits(rest[1:])]
		rest = rest[1+len(fraction):]
	}
	if rest == "" {
		return count, fraction, 0, ""
	}
	return count, fraction, rest[0], rest[1:]
}

// notFixed is the size of a unit that has no fixed one.
const notFixed = -1

func dateUnit(designator byte) int64 {
	switch designator {
	case 'Y', 'M':
		return notFixed
	case 'W':
		return 7 * 24 * 3_600_000
	case 'D':
		return 24 * 3_600_000
	}
	return 0
}

func clockUnit(designator byte) int64 {
	switch designator {
	case 'H':
		return 3_600_000
	case 'M':
		return 60_000
	case 'S':
		return 1000
	}
	return 0
}
