package draw

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// A script is the lines that have been drawn.
type script struct {
	settings []string
	timed    []line
	armed    []string
}

type line struct {
	at   time.Duration
	text string
}

func (s *script) setting(format string, args ...any) {
	s.settings = append(s.settings, fmt.Sprintf(format, args...))
}

// at has something happen at a time.
func (s *script) at(at time.Duration, format string, args ...any) {
	s.timed = append(s.timed, line{at.Round(time.Millisecond), fmt.Sprintf(format, args...)})
}

// between has something happen in that millisecond, and not with its beginning, as what is due does.
func (r *run) between(at time.Duration, format string, args ...any) {
	at = at.Truncate(time.Millisecond) + time.Duration(r.IntN(1000))*time.Microsecond
	r.timed = append(r.timed, line{at, fmt.Sprintf(format, args...)})
}

// on has something happen when the event has happened for the nth time after a time.
func (s *script) on(event string, nth int, after time.Duration, text string) {
	s.armed = append(s.armed, fmt.Sprintf("on %s nth=%d after=%s %s", event, nth, span(after.Round(time.Millisecond)), text))
}

// leaveOut leaves out lines.
func (s *script) leaveOut(which func(text string) bool) {
	s.timed = slices.DeleteFunc(s.timed, func(l line) bool { return which(l.text) })
	s.armed = slices.DeleteFunc(s.armed, which)
}

// stopsTime reports whether what a line does needs a Kafka of one broker, since a client of several
// that do not answer can wait under a lock, which is no waiting in a bubble. One of several that cannot be connected to is
// no such wait.
func stopsTime(text string) bool {
	mute := strings.Contains(text, "silence ") || strings.Contains(text, "cut ")
	toKafka := strings.HasSuffix(text, "from=kafka") || strings.Contains(text, "from=kafka ") || !strings.Contains(text, "from=")
	return strings.Contains(text, "freeze ") || mute && toKafka || strings.Contains(text, "InitProducerID err=NO_ANSWER")
}

// last returns when the last thing happens.
func (s *script) last() time.Duration {
	latest := func(a, b line) int { return cmp.Compare(a.at, b.at) }
	return slices.MaxFunc(s.timed, latest).at
}

func (s *script) text() string {
	slices.SortStableFunc(s.timed, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	s.timed = slices.Compact(s.timed)
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s\n", strings.Join(s.settings, " "))
	for _, line := range s.armed {
		b.WriteString(line + "\n")
	}
	for _, line := range s.timed {
		fmt.Fprintf(&b, "at %s %s\n", span(line.at), line.text)
	}
	return b.String()
}

// span writes a duration as scripts have it, with days in front.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	text := ""
	if d >= day {
		text = fmt.Sprintf("%dd", d/day)
		d %= day
	}
	if d == 0 && text != "" {
		return text
	}
	rest := d.String()
	if strings.HasSuffix(rest, "m0s") {
		rest = strings.TrimSuffix(rest, "0s")
	}
	if strings.HasSuffix(rest, "h0m") {
		rest = strings.TrimSuffix(rest, "0m")
	}
	return text + rest
}

// birth is when the bubble of a script begins.
func birth() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func (r *run) chance(p float64) bool { return r.Float64() < p }

// size draws a number between two above 0, each order of magnitude as likely as the others.
func (r *run) size(least, most float64) float64 {
	return least * math.Exp(r.Float64()*math.Log(most/least))
}

// span draws a duration between two, in the same way.
func (r *run) span(least, most time.Duration) time.Duration {
	return time.Duration(r.size(float64(least), float64(max(least, most)))).Round(time.Millisecond)
}

// fine draws a duration to the microsecond: what takes that long ends between two ticks.
func (r *run) fine(least, most time.Duration) time.Duration {
	return time.Duration(r.size(float64(least), float64(most))).Round(time.Microsecond)
}

// pick draws one; it is as likely as it stands there often.
func pick[T any](r *run, of ...T) T { return of[r.IntN(len(of))] }

// some draws between least and most of them, each at most once.
func some[T any](r *run, of []T, least, most int) []T {
	most = min(most, len(of))
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:least+r.IntN(most-least+1)]
}

// ScaleOf returns whether a drawn script is at true scale or stretched.
func ScaleOf(script string) Profile {
	settings, _, _ := strings.Cut(script, "\n")
	if strings.Contains(settings, "heartbeat=300ms") {
		return TrueScale
	}
	return Stretched
}
