// Package terminal draws whole screens on a terminal, and leaves it as it was.
package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// Sequences of xterm, which every terminal of today understands.
const (
	enter = "\x1b[?1049h" + // the other screen: what was there comes back on leave
		"\x1b[?25l" + // without a cursor
		"\x1b[?7l" // what is too wide does not go on in the next line
	leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"

	home       = "\x1b[H"
	clearRight = "\x1b[K" // to the end of the line
	clearBelow = "\x1b[J" // to the end of the screen
)

// A Screen is a terminal that is drawn on. It is drawn by one goroutine; any may close it.
type Screen struct {
	out     io.Writer
	size    func() (width, height int, err error)
	restore func() error // the mode of the terminal
	once    sync.Once
	err     error // of Close
}

// Is reports whether both are a terminal.
func Is(in io.Reader, out io.Writer) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && Shows(out)
}

// Shows reports whether what is written there is shown on a terminal.
func Shows(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Open takes the terminal over: keys come at once, without being shown, and Ctrl-C is a key. The caller must
// close the screen, whatever happens.
func Open(in, out *os.File) (*Screen, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("take the terminal over: %w", err)
	}
	s := &Screen{
		out:     out,
		size:    func() (int, int, error) { return term.GetSize(int(out.Fd())) },
		restore: func() error { return term.Restore(int(in.Fd()), before) },
	}
	if _, err := io.WriteString(out, enter); err != nil {
		return nil, errors.Join(fmt.Errorf("take the terminal over: %w", err), s.Close())
	}
	return s, nil
}

// Close leaves the terminal as Open has found it. Only the first call does something.
func (s *Screen) Close() error {
	s.once.Do(func() {
		_, err := io.WriteString(s.out, leave)
		if err = errors.Join(err, s.restore()); err != nil {
			s.err = fmt.Errorf("leave the terminal as it was: %w", err)
		}
	})
	return s.err
}

// CloseOnPanic closes the screen when the goroutine panics, which goes on: what it says would be lost on the
// other screen, and the shell left in a mode that shows nothing of what is typed. Every goroutine beside
// the one that closes defers it.
func (s *Screen) CloseOnPanic() {
	if r := recover(); r != nil {
		_ = s.Close() // the panic says more
		panic(r)
	}
}

// Size returns columns and lines at the moment; of a terminal that does not tell them, 80 and 24.
func (s *Screen) Size() (width, height int) {
	width, height, err := s.size()
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Draw has the lines take the place of what is there, in one write: each is written over the one before and
// only what is left of that cleared, so that nothing flickers. width is that of the screen: behind a line
// that fills it the cursor still stands on its last character, which must not be cleared.
func (s *Screen) Draw(lines []string, width int) error {
	var text strings.Builder
	text.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			text.WriteString("\r\n")
		}
		text.WriteString(line)
		if utf8.RuneCountInString(line) < width {
			text.WriteString(clearRight)
		}
	}
	text.WriteString(clearBelow)
	if _, err := io.WriteString(s.out, text.String()); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}
