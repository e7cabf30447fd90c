package table

import (
	"strings"
	"testing"
)

func TestTable_isInColumnsWithoutSpaceAtTheEnd(t *testing.T) {
	var out strings.Builder
	table := New(&out, "id", "seq", "note")
	table.Row("reminder-7", 3, "")
	table.Row("r", 12345, "x")
	table.Gap()
	table.Row("a", "b")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "id          seq    note\nreminder-7  3\nr           12345  x\n\na  b\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// An id of another's choice must not act on the terminal of who lists it.
func TestText_hasNothingThatATerminalObeys(t *testing.T) {
	for text, want := range map[string]string{
		"reminder-7 \"é\" 日": "reminder-7 \"é\" 日",
		"a\x1b[2Jb":          `a\x1b[2Jb`,
		"a\tb\nc\r":          `a\tb\nc\r`,
		"a\u202eb":           `a\u202eb`,
		"a\xffb":             `a\xffb`,
		"a\u009bb":           `a\u009bb`,
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
