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

// CheckMillis returns what is wrong with a time of a [Filter], or nil: one before March 1973 is seconds by
// mistake, and with it a filter would mean everything, or nothing. 0 is none.
func CheckMillis(field string, at int64) *Problem {
	if at == 0 || at >= secondsBelow {
		return nil
	}
	return BadField(field, strconv.FormatInt(at, 10), fmt.Sprintf("is before March 1973: write epoch milliseconds, from %d on, not seconds", secondsBelow))
}

// readTimes reads when the message is due and when it expires. deliver-at wins over deliver-after,
// but both are read, so that a wrong value never goes unnoticed.
func (t *instructionText) readTimes(in *Instruction, timestamp int64) (err error) {
	if t.at == nil && t.after == nil {
		return malformed(HeaderAt, "", "is missing", "say when to deliver with "+HeaderAt+
			", RFC 3339 or epoch milliseconds, or with "+HeaderAfter+", such as 90s")
	}
	if t.after != nil {
		if in.DueAt, err = delayed(HeaderAfter, string(t.after), timestamp, "the record's timestamp"); err != nil {
			return err
		}
	}
	if t.at != nil {
		if in.DueAt, err = parseAt(HeaderAt, string(t.at)); err != nil {
			return err
		}
	}
	if t.expiresAt != nil || t.expiresAfter != nil {
		in.Expires, err = t.expires(in.DueAt)
	}
	return err
}

// expires returns the time in epoch milliseconds from which a message that is due then is not
// delivered any more. One of the two headers is there.
func (t *instructionText) expires(due int64) (expires int64, err error) {
	at, after := string(t.expiresAt), string(t.expiresAfter)
	field, value := HeaderExpiresAt, at
	switch {
	case t.expiresAt == nil:
		field, value = HeaderExpiresAfter, after
		expires, err = delayed(field, value, due, "the due time")
	case t.expiresAfter == nil:
		expires, err = parseAt(field, value)
	default:
		err = malformed(HeaderExpiresAfter, after, "is given beside "+HeaderExpiresAt, "write one of the two")
	}
	if err == nil && expires <= due {
		err = malformed(field, value, fmt.Sprintf("is not after the due time, which is %d", due),
			"let it expire at a later time than it is due at, so that it can be delivered between the two")
	}
	return expires, err
}

// parseAt reads a time, the value of the header field, in epoch milliseconds, rounded up.
func parseAt(field, value string) (int64, error) {
	if err := checkBlanks(field, value); err != nil {
		return 0, err
	}
	if unsigned := strings.TrimLeft(value, "+-"); digits(unsigned) == len(unsigned) {
		return parseEpoch(field, value)
	}
	return parseRFC3339(field, value)
}

// checkBlanks refuses white space around a value: its producer may have cut it from the wrong
// place. The error names the blanks, since they may not show where it is read.
func checkBlanks(field, value string) error {
	if strings.TrimSpace(value) == value {
		return nil
	}
	return malformed(field, value, "has blanks around it", "remove them")
}

func parseEpoch(field, value string) (int64, error) {
	const remedy = "use epoch milliseconds, 13 digits for today"
	ms, err := strconv.ParseInt(value, 10, 64)
	switch {
	case ms < 0: // also when it does not fit
		return 0, malformed(field, value, "is negative", remedy)
	case err == nil && ms == 0:
		return 0, malformed(field, value, "is zero", remedy)
	case err == nil && ms < secondsBelow:
		return 0, malformed(field, value, "looks like seconds", remedy)
	case err != nil || ms > latestDue:
		return 0, malformed(field, value, "is not between 1973 and 9999", remedy)
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

// delayed returns the time that lies the delay, the value of the header field, behind the time from,
// both in epoch milliseconds; what names that time. A negative one is none.
func delayed(field, value string, from int64, what string) (int64, error) {
	delay, err := parseDelay(field, value)
	switch {
	case err != nil:
		return 0, err
	case from < 0:
		return 0, malformed(field, value, "counts from "+what+", but the record has none", "use "+timeOf(field))
	case from > latestDue || delay > latestDue-from:
		return 0, malformed(field, value, fmt.Sprintf("after %s %d is beyond the year 9999", what, from), "use a shorter delay")
	}
	return from + delay, nil
}

// parseDelay returns milliseconds, 0 or more, rounded up.
func parseDelay(field, value string) (int64, error) {
	delay, err := signedDelay(field, value)
	if err == nil && delay < 0 {
		err = malformed(field, value, "is negative", "use a delay of 0 or more")
	}
	return delay, err
}

// signedDelay returns milliseconds, rounded up; any negative number for a negative delay.
func signedDelay(field, value string) (int64, error) {
	if err := checkBlanks(field, value); err != nil {
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
	if rest, ok := strings.CutPrefix(unsigned, "P"); ok {
		ms, err := parseISODuration(field, value, rest)
		if negative {
			return -ms, err
		}
		return ms, err
	}
	return 0, notADelay(field, value)
}

func notADelay(field, value string) error {
	return malformed(field, value, "is not a delay",
		"use milliseconds, a duration such as 1h30m, or ISO 8601 such as PT90S or P1D; days are written P7D, not 7d")
}
