package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

const (
	// highest and lowest are the lines that bars may take.
	highest = 10
	lowest  = 3
	// ofNotes is how many notes are shown where there is no room for all.
	ofNotes = 5
)

// Render returns the lines of a screen of that size, none of them wider than it, in runes. A height of 0 is
// as much as it takes. Where there is little room, notes are cut, then members left out, then the chart.
func Render(s State, width, height int) []string {
	head, notes, members := s.head(width), s.notes(), s.members()
	rest := height - len(head)
	if height == 0 {
		rest = len(notes) + len(members) + highest + chartFrame
	}
	if most := max(rest-len(members)-lowest-chartFrame, ofNotes); len(notes) > most {
		notes = append(notes[:most-1], fmt.Sprintf("and %d more: carillon status has them", len(notes)-most+1))
	}
	rest -= len(notes)
	var chart []string
	if bars := min(rest-len(members)-chartFrame, highest); bars >= lowest {
		chart = s.chart(width, bars)
	} else if bars := min(rest-chartFrame, highest); bars >= lowest {
		members, chart = nil, s.chart(width, bars)
	} else if rest < len(members) {
		members = nil
	}
	lines := slices.Concat(head, notes, chart, members)
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	for i, line := range lines {
		lines[i] = cut(table.Text(line), width)
	}
	return lines
}

// head is what is always there: who, when, how much and how fast.
func (s *State) head(width int) []string {
	title := s.Name
	switch {
	case s.At.IsZero():
	case s.Status.Leader == "":
		title += ": no leader"
	default:
		title += fmt.Sprintf(": %s leads, term %d", s.Status.Leader, s.Status.Term)
	}
	lines := []string{apart(title, s.Now.UTC().Format("2006-01-02 15:04:05 UTC"), width)}
	if s.Trouble != "" {
		lines = append(lines, "! "+s.Trouble)
		if s.At.IsZero() {
			return lines
		}
		lines = append(lines, "  all else is of "+round(s.Now.Sub(s.At))+" ago")
	}
	oldest, lag := "none", "unknown"
	if at := s.Status.OldestDue; at != 0 {
		oldest = distance(time.UnixMilli(at).Sub(s.Now))
	}
	if s.Status.Lag != nil {
		lag = grouped(uint64(max(*s.Status.Lag, 0))) + " records"
	}
	unknown := "unknown"
	if s.RatesTrouble == "" {
		unknown = "..."
	}
	in, out, expired, dead, late := unknown, unknown, unknown, unknown, unknown
	if r := s.Rates; r.Over > 0 {
		in, out, expired, dead, late = rate(r.In), rate(r.Out), rate(r.Expired), rate(r.DeadLetters), "nothing was delivered"
		if r.Delivered > 0 {
			late = fmt.Sprintf("half %s, 99 %% %s, all %s, of %s in %s", bound(r.Late50), bound(r.Late99), bound(r.LateMost), grouped(uint64(r.Delivered)), round(r.Over))
		}
	}
	return append(lines, "",
		columns("pending", grouped(s.Status.Pending), "oldest due", oldest, "lag", lag),
		columns("in", in, "out", out),
		columns("expired", expired, "dead letters", dead),
		"lateness  "+late,
	)
}

// columns are names with their values.
func columns(cells ...string) string {
	line := ""
	for i, width := range []int{8, 14, 12, 14, 4, 0}[:len(cells)] {
		line += fmt.Sprintf("%-*s  ", width, cells[i])
	}
	return strings.TrimRight(line, " ")
}

// notes are what somebody should know of, the worst first.
func (s *State) notes() []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if s.Status.NotReady != "" {
		add("not ready  %s", s.Status.NotReady)
	}
	for _, problem := range s.Status.Problems {
		add("problem    %s", problem)
	}
	for _, target := range s.Status.Parked {
		add("parked     target %s", target)
	}
	for _, p := range s.Status.Paused {
		add("paused     %s %s, %s, by %s: %s", p.Kind, p.Name, distance(time.UnixMilli(p.Since).Sub(s.Now)), p.Who, p.Why)
	}
	for _, trouble := range slices.Compact([]string{s.RatesTrouble, s.DueTrouble}) {
		if trouble != "" && s.Trouble == "" {
			add("unknown    %s", trouble)
		}
	}
	if len(notes) > 0 {
		notes = append([]string{""}, notes...)
	}
	return notes
}

// members are a table of the nodes.
func (s *State) members() []string {
	if len(s.Status.Members) == 0 {
		return nil
	}
	var text strings.Builder
	t := table.New(&text, "member", "votes", "heard", "api")
	for _, m := range s.Status.Members {
		votes := "unknown"
		if m.Voter != nil {
			votes = strconv.FormatBool(*m.Voter)
		}
		t.Row(m.ID, votes, s.heard(m), m.API)
	}
	_ = t.Flush() // into memory
	return append([]string{""}, strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
}

// heard says when the leader has heard of the member.
func (s *State) heard(m broker.MemberStatus) string {
	switch {
	case m.ID == s.Status.Leader:
		return "leads"
	case m.LastContact != 0:
		return distance(time.UnixMilli(m.LastContact).Sub(s.Now))
	case s.Status.Node != s.Status.Leader:
		return "unknown"
	}
	return "never"
}

// apart puts right at the end of a line of the width, if there is room.
func apart(left, right string, width int) string {
	space := width - utf8.RuneCountInString(left) - utf8.RuneCountInString(right)
	if space < 1 {
		return left
	}
	return left + strings.Repeat(" ", space) + right
}

// cut shortens a line to the width; three dots say that it was longer.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	runes := []rune(line)
	if width < 3 {
		return string(runes[:max(width, 0)])
	}
	return string(runes[:width-3]) + "..."
}

// grouped writes a number with commas between thousands.
func grouped(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// rate says messages a second: of few, whether there are any at all.
func rate(each float64) string {
	if each > 0 && each < 9.95 {
		return strconv.FormatFloat(each, 'f', 1, 64) + "/s"
	}
	return grouped(uint64(each+.5)) + "/s"
}

// bound says a bound of lateness.
func bound(d time.Duration) string {
	if d < 0 {
		return "over 1 h"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return "≤ " + text
}

// distance says how far away a moment is.
func distance(d time.Duration) string {
	if d < 0 {
		return round(-d) + " ago"
	}
	return "in " + round(d)
}

// round says a time in a precision that people read.
func round(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return fmt.Sprintf("%ds", d/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
