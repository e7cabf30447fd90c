package client

import (
	"math"
	"strconv"
	"strings"
)

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
