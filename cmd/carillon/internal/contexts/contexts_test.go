package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBook_isReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon", "contexts.yaml")
	b, err := Read(path)
	if err != nil || len(b.Contexts) != 0 {
		t.Fatalf("missing file: %v, %v", b, err)
	}
	prod := Context{Name: "prod", API: []string{"n1:7401", "n2:7401"}, TokenFile: "/t", CAFile: "/ca", CertFile: "/c", KeyFile: "/k"}
	for _, c := range []Context{prod, {Name: "test", API: []string{"https://t"}}} {
		err := Change(path, func(written *Book) error {
			err := written.Add(c)
			b = *written
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(path)
	if diff := cmp.Diff(b, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got.Current != "prod" {
		t.Errorf("in use is %q, want the first one", got.Current)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("%v lie beside it, %v", left, err)
	}
}

func TestBook_refusesWhatItDoesNotHave(t *testing.T) {
	b := Book{Current: "a", Contexts: []Context{{Name: "a"}}}
	for name, do := range map[string]func() error{
		"use":    func() error { return b.Use("b") },
		"remove": func() error { return b.Remove("b") },
		"get":    func() error { _, err := b.Get("b"); return err },
	} {
		if err := do(); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Add(Context{Name: "a"}); !errors.Is(err, ErrTaken) {
		t.Errorf("add once more: %v", err)
	}
	for _, name := range []string{"", "-a", "a b", "a/b", "é"} {
		if err := b.Add(Context{Name: name}); !errors.Is(err, ErrName) {
			t.Errorf("add %q: %v", name, err)
		}
	}
	if diff := cmp.Diff(Book{Current: "a", Contexts: []Context{{Name: "a"}}}, b); diff != "" {
		t.Errorf("it has changed:\n%s", diff)
	}
}

func TestBook_withoutTheOneInUseUsesNone(t *testing.T) {
	b := Book{Current: "a", Contexts: []Context{{Name: "a"}, {Name: "b"}}}
	if err := b.Remove("a"); err != nil || b.Current != "" || len(b.Contexts) != 1 {
		t.Errorf("%v, %v", b, err)
	}
}

// Two shells add one each.
func TestChange_losesNoneOfTwoAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.yaml")
	const each = 8
	var done sync.WaitGroup
	for i := range each {
		done.Go(func() {
			if err := Change(path, func(b *Book) error { return b.Add(Context{Name: string(rune('a' + i))}) }); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if b, err := Read(path); err != nil || len(b.Contexts) != each {
		t.Errorf("%d contexts, want %d, %v", len(b.Contexts), each, err)
	}
}
