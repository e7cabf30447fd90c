// Package table prints rows in columns, for people.
package table

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// between is what parts two columns.
const between = 2

// A Table keeps its rows until it is flushed.
type Table struct {
	out  io.Writer
	rows [][]string // nil: a gap
}

// New returns a table that is printed to w. head are the names of its columns; none: it has no names.
func New(w io.Writer, head ...any) *Table {
	t := &Table{out: w}
	if len(head) > 0 {
		t.Row(head...)
	}
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Text(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, row)
}

// Gap adds an empty line. The rows after it have columns of their own.
func (t *Table) Gap() { t.rows = append(t.rows, nil) }

// Flush prints the table.
func (t *Table) Flush() error {
	var text strings.Builder
	for len(t.rows) > 0 {
		gap := slices.IndexFunc(t.rows, func(row []string) bool { return row == nil })
		part := t.rows
		if gap >= 0 {
			part, t.rows = t.rows[:gap], t.rows[gap+1:]
		} else {
			t.rows = nil
		}
		write(&text, part)
		if gap >= 0 {
			text.WriteByte('\n')
		}
	}
	if _, err := io.WriteString(t.out, text.String()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// write puts the rows into columns that are as wide as they must be, without space at the ends of lines.
func write(out *strings.Builder, rows [][]string) {
	var widths []int // in runes
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+between))
		}
		out.WriteString(strings.TrimRight(line.String(), " "))
		out.WriteByte('\n')
	}
}

// Text returns the text as a terminal may have it. Ids, reasons and names come from others: control
// characters within them could move the cursor, clear the screen or retitle the window, so they are
// shown as Go writes them in a string.
func Text(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}
