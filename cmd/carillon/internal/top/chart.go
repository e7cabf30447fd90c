package top

import (
	"fmt"
	"strconv"
	"strings"
)

// chartFrame is how many lines the chart takes beside its bars: an empty one, its title, and the axis.
const chartFrame = 3

// scaleWidth is the room for the number beside the highest bar.
const scaleWidth = 7

// eighths fill a cell from below, by how many of its eighths a bar takes.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// chart shows what is due in the next hour: a bar a minute, as many as fit, so many lines high.
func (s *State) chart(width, lines int) []string {
	if s.DueTrouble != "" || len(s.Bounds) == 0 {
		return nil
	}
	d := dueOf(s.Due, s.Bounds)
	fit := min(minutes, max(width-scaleWidth-1, 0))
	wide := max((width-scaleWidth-1)/minutes, 1) // columns of a bar
	about := ""
	if !s.Due.Exact {
		about = "~"
	}
	const title = "due next, by the minute"
	counts := about + grouped(d.overdue) + " overdue"
	if more := fmt.Sprintf("%s, %s%s in the next hour, %s%s later", counts, about, grouped(d.hour), about, grouped(d.later)); len(title)+len(more) < width {
		counts = more
	}
	out := []string{"", apart(title, counts, width)}
	shown := d.bars[:fit]
	most := uint64(1)
	for _, n := range shown {
		most = max(most, n)
	}
	for line := range lines {
		scale := ""
		if line == 0 {
			scale = short(most)
		}
		row := fmt.Sprintf("%*s ", scaleWidth, scale)
		for _, n := range shown {
			row += strings.Repeat(string(cell(n, most, lines, lines-1-line)), wide)
		}
		out = append(out, strings.TrimRight(row, " "))
	}
	return append(out, axis(fit, wide))
}

// cell is the part of the bar of n that lies in the line, counted from below, where most takes all lines.
// Whatever is there at all can be seen.
func cell(n, most uint64, lines, line int) rune {
	parts := int(float64(n) / float64(most) * float64(8*lines))
	if n > 0 {
		parts = max(parts, 1)
	}
	return eighths[min(max(parts-8*line, 0), 8)]
}

// axis names each tenth minute.
func axis(fit, wide int) string {
	line := strings.Repeat(" ", scaleWidth+1)
	for minute := 0; minute < fit; minute += 10 {
		name := "now"
		if minute > 0 {
			name = "+" + strconv.Itoa(minute) + "m"
		}
		line += fmt.Sprintf("%-*s", 10*wide, name)
	}
	return strings.TrimRight(line, " ")
}

// short writes a number in at most six characters, down to the next that can be written so.
func short(n uint64) string {
	switch {
	case n >= 1_000_000_000:
		return fmt.Sprintf("%.1fG", float64(n/100_000_000)/10)
	case n >= 1_000_000:
		return fmt.Sprintf("%.1fM", float64(n/100_000)/10)
	case n >= 10_000:
		return fmt.Sprintf("%.1fk", float64(n/100)/10)
	}
	return strconv.FormatUint(n, 10)
}
