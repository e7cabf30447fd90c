package terminal

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

func pretended() (s *Screen, out *bytes.Buffer, restored *int) {
	out, restored = &bytes.Buffer{}, new(int)
	return &Screen{
		out:     out,
		size:    func() (int, int, error) { return 0, 0, errors.New("no terminal") },
		restore: func() error { *restored++; return nil },
	}, out, restored
}

func TestScreen_isLeftOnce(t *testing.T) {
	s, out, restored := pretended()
	for range 3 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if *restored != 1 || out.String() != leave {
		t.Errorf("restored %d times, wrote %q", *restored, out)
	}
}

func TestScreen_isLeftBeforeAPanicIsShown(t *testing.T) {
	s, out, restored := pretended()
	func() {
		defer func() {
			if r := recover(); r != "oh" {
				t.Errorf("panic %v", r)
			}
			if *restored != 1 || !strings.HasSuffix(out.String(), leave) {
				t.Errorf("restored %d times, wrote %q", *restored, out)
			}
		}()
		defer s.CloseOnPanic()
		panic("oh")
	}()
	t.Run("without one it stays", func(t *testing.T) {
		s, _, restored := pretended()
		s.CloseOnPanic()
		if *restored != 0 {
			t.Error("it was closed")
		}
	})
}

// A screen that is cleared before it is drawn flickers.
func TestScreen_isNeverClearedAsAWhole(t *testing.T) {
	s, out, _ := pretended()
	if err := s.Draw([]string{"a", "é b"}, 3); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[Ha\x1b[K\r\né b\x1b[J"; out.String() != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestScreen_isOf80By24WhereTheTerminalDoesNotTell(t *testing.T) {
	s, _, _ := pretended()
	if w, h := s.Size(); w != 80 || h != 24 {
		t.Errorf("%d by %d", w, h)
	}
}

func TestIs_tellsFilesApart(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if Is(file, file) || Is(&bytes.Buffer{}, file) {
		t.Error("a file is taken for a terminal")
	}
}
