package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Units that time.ParseDuration lacks; a year is 365 days, so that it means the
// same on every date.
const (
	day  = 24 * time.Hour
	year = 365 * day
)

// ParseDuration reads a Go duration such as 300ms or 1h30m, or a whole number of
// days or years such as 36500d or 100y. It takes nothing negative.
func ParseDuration(text string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": day, "y": year} {
		digits, ok := strings.CutSuffix(text, suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > int64(math.MaxInt64/unit) {
			return 0, fmt.Errorf("duration %q is not 0 to %d%s: give a whole number in this range", text, math.MaxInt64/unit, suffix)
		}
		return time.Duration(n) * unit, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("duration %q cannot be read: write 300ms, 5s, 1h30m, 7d or 100y", text)
	}
	return d, nil
}

// FormatDuration writes what ParseDuration reads, in years or days when these
// divide it and without units that are zero.
func FormatDuration(d time.Duration) string {
	switch {
	case d > 0 && d%year == 0:
		return strconv.FormatInt(int64(d/year), 10) + "y"
	case d > 0 && d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
