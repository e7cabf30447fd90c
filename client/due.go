package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// secondsBelow: 10^11 ms is March 1973, 10^11 s the year 5138. A smaller number is seconds by
	// mistake.
	secondsBelow = 100_000_000_000
	// latestDue is the last millisecond of the year 9999, the last that RFC 3339 can write. A
	// larger number is microseconds or nanoseconds by mistake.
	latestDue = 253_402_300_799_999
)

// dueAt returns epoch milliseconds. deliver-at wins, but deliver-after is read as well, so that a
// wrong value never goes unnoticed. One of the two must not be "".
func dueAt(at, after string, timestamp int64) (due int64, err error) {
	if after != "" {
		if due, err = parseAfter(after, timestamp); err != nil {
			return 0, err
		}
	}
	if at != "" {
		return parseAt(at)
	}
	return due, nil
}

func parseAt(value string) (int64, error) {
	if err := checkBlanks(HeaderAt, value); err != nil {
		return 0, err
	}
	if unsigned := strings.TrimLeft(value, "+-"); digits(unsigned) == len(unsigned) {
		return parseEpoch(value)
	}
	return parseRFC3339(value)
}

// checkBlanks refuses white space around a value: its producer may have cut it from the wrong
// place. The error names the blanks, since they may not show where it is read.
func checkBlanks(field, value string) error {
	if strings.TrimSpace(value) == value {
		return nil
	}
	return malformed(field, value, "has blanks around it", "remove them")
}

func parseEpoch(value string) (int64, error) {
	const remedy = "use epoch milliseconds, 13 digits for today"
	ms, err := strconv.ParseInt(value, 10, 64)
	switch {
	case ms < 0: // also when it does not fit
		return 0, malformed(HeaderAt, value, "is negative", remedy)
	case err == nil && ms == 0:
		return 0, malformed(HeaderAt, value, "is zero", remedy)
	case err == nil && ms < secondsBelow:
		return 0, malformed(HeaderAt, value, "looks like seconds", remedy)
	case err != nil || ms > latestDue:
		return 0, malformed(HeaderAt, value, "is not between 1973 and 9999", remedy)
	}
	return ms, nil
}

// ceilFraction turns the digits after a second's point into milliseconds. It rounds up, since no
// message may be early, not by a fraction of a millisecond either.
func ceilFraction(fraction string) (ms int64) {
	for i, unit := range []int64{100, 10, 1} {
		if i < len(fraction) {
			ms += int64(fraction[i]-'0') * unit
		}
	}
	if len(fraction) > 3 && strings.Trim(fraction[3:], "0") != "" {
		ms++
	}
	return ms
}

// digits returns how many decimal digits s begins with.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

func parseAfter(value string, timestamp int64) (int64, error) {
	delay, err := parseDelay(value)
	switch {
	case err != nil:
		return 0, err
	case delay < 0:
		return 0, malformed(HeaderAfter, value, "is negative", "use a delay of 0 or more")
	case timestamp < 0:
		return 0, malformed(HeaderAfter, value, "counts from the record's timestamp, but the record has none",
			"use "+HeaderAt)
	case timestamp > latestDue || delay > latestDue-timestamp:
		return 0, malformed(HeaderAfter, value,
			fmt.Sprintf("after the record's timestamp %d is beyond the year 9999", timestamp), "use a shorter delay")
	}
	return timestamp + delay, nil
}

// parseDelay returns milliseconds, rounded up; any negative number for a negative delay.
func parseDelay(value string) (int64, error) {
	if err := checkBlanks(HeaderAfter, value); err != nil {
		return 0, err
	}
	if ms, err := strconv.ParseInt(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return ms, nil // what does not fit becomes the nearest number, which is refused as well
	}
	if d, err := time.ParseDuration(value); err == nil {
		if d < 0 {
			return -1, nil
		}
		ms := d.Milliseconds()
		if d > time.Duration(ms)*time.Millisecond {
			ms++
		}
		return ms, nil
	}
	unsigned, negative := strings.CutPrefix(value, "-")
	if !negative {
		unsigned = strings.TrimPrefix(value, "+")
	}
	rest, ok := strings.CutPrefix(unsigned, "P")
	if !ok {
		return 0, notADelay(value)
	}
	ms, err := parseISODuration(value, rest)
	if negative {
		return -ms, err
	}
	return ms, err
}

func notADelay(value string) error {
	return malformed(HeaderAfter, value, "is not a delay",
		"use milliseconds, a duration such as 1h30m, or ISO 8601 such as PT90S or P1D; days are written P7D, not 7d")
}
