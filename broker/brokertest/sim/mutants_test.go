package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/mutants"
)

// A module whose simulator finds a lost message from seed 3 on when limit is not 1, and whose
// seed 2 is noisy whatever the code does.
var toy = map[string]string{
	"go.mod":                   "module toy\n\ngo 1.26\n",
	"limit/limit.go":           "package limit\n\nconst Limit = 1\n",
	plantedDir + "/lost.patch": planted("limit/limit.go", "const Limit = 1", "const Limit = 2"),
	plantedDir + "/odd.patch":  planted("limit/limit.go", "const Limit = 1", "const Limit = \"x\" + 1"),
	plantedDir + "/old.patch":  planted("limit/limit.go", "const Limit = 5", "const Limit = 2"),
	plantedDir + "/tame.patch": planted("limit/limit.go", "const Limit = 1", "const Limit = 1 // one"),
	"broker/brokertest/play/a_test.go": `package play

import (
	"flag"
	"os"
	"strings"
	"testing"
	"toy/limit"
)

var script, report = flag.String("script", "", ""), flag.String("report", "", "")

func TestPlay(t *testing.T) {
	text, _ := os.ReadFile(*script)
	seed := strings.TrimSpace(string(text))
	said := ""
	if limit.Limit != 1 && seed >= "3" {
		said = "{\"check\":\"lost\",\"text\":\"orders/0/1\"}"
	}
	if seed == "2" {
		said = "{\"check\":\"bounds\",\"text\":\"always\"}"
	}
	os.WriteFile(*report, []byte("{\"problems\":["+said+"],\"produced\":1}"), 0o600)
	if said != "" {
		t.Fail()
	}
}
`,
}

func planted(path, from, to string) string {
	return "Breaks: nothing. It is a test.\n\ndiff --git a/" + path + " b/" + path + "\n--- a/" + path + "\n+++ b/" + path +
		"\n@@ -1,3 +1,3 @@\n package limit\n \n-" + from + "\n+" + to + "\n"
}

// toyHunt returns a hunt in the module at root.
func toyHunt(t *testing.T, root, dir string) *hunt {
	t.Helper()
	t.Chdir(root)
	h, err := newHunt(t.Context(), hunting{dir: dir, seeds: 1, workers: 2, timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.close() })
	h.script = func(seed uint64) string { return string(rune('0' + seed)) }
	return h
}

func toyModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range toy {
		to := filepath.Join(root, filepath.FromSlash(path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.Command("git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, said)
	}
	return root
}

func TestMutants_tellAFindFromWhatWasNotTried(t *testing.T) {
	root, dir := toyModule(t), t.TempDir()
	h := toyHunt(t, root, dir)
	all, err := mutants.Read(plantedDir)
	if err != nil {
		t.Fatal(err)
	}
	var results []result
	for _, p := range all {
		f, err := h.tryPlanted(t.Context(), p, 5)
		results = append(results, result{p.Name, f, err})
	}
	var table bytes.Buffer
	err = summarize(results, &table)
	if !errors.Is(err, errMissed) || !errors.Is(err, errNotTried) || !strings.Contains(err.Error(), "odd, old") {
		t.Errorf("error %v, want errMissed, and errNotTried for odd and old", err)
	}
	for _, line := range []string{"lost 3 lost", "odd - does not build", "old - does not apply", "tame 5 not found", "1 of 4 found; seeds needed: median 3, worst 3"} {
		if !strings.Contains(strings.Join(strings.Fields(table.String()), " "), line) {
			t.Errorf("the table has no line %q:\n%s", line, table.String())
		}
	}
	if !errors.Is(results[1].err, errBuild) || !errors.Is(results[2].err, mutants.ErrDoesNotApply) {
		t.Errorf("errors %v and %v, want errBuild and ErrDoesNotApply", results[1].err, results[2].err)
	}

	// Another run goes on where this one has ended.
	if err := h.close(); err != nil {
		t.Fatal(err)
	}
	h = toyHunt(t, root, dir)
	played := make(chan uint64, 10)
	script := h.script
	h.script = func(seed uint64) string {
		played <- seed
		return script(seed)
	}
	lost, tame := all[0], all[3]
	if f, err := h.tryPlanted(t.Context(), lost, 6); err != nil || f.Seeds != 3 || len(played) > 0 {
		t.Errorf("found again as %+v, error %v, with %d seeds: want what was known", f, err, len(played))
	}
	tame.Patch = append(tame.Patch, '\n')
	if f, err := h.tryPlanted(t.Context(), tame, 1); err != nil || f.found() || len(played) != 1 {
		t.Errorf("%+v, error %v, with %d seeds: want one, since the patch has changed", f, err, len(played))
	}
	if f, err := h.tryPlanted(t.Context(), tame, 3); err != nil || f.found() || len(played) != 3 {
		t.Errorf("%+v, error %v, with %d seeds: want two more", f, err, len(played))
	}
}

func TestLogbook_isAboutOneSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	open := func(source string) *logbook {
		l, err := openLogbook(path, source)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open("one")
	l.Planted["lost"] = trial{Find: find{Seeds: 3}}
	if err := l.noteUsual(7, []string{"bounds"}); err != nil {
		t.Fatal(err)
	}
	if l = open("one"); l.Planted["lost"].Find.Seeds != 3 || len(l.Usual[7]) != 1 {
		t.Errorf("kept %+v, want what was saved", l.kept)
	}
	if l = open("two"); len(l.Planted) > 0 || len(l.Usual) > 0 || l.Source != "two" {
		t.Errorf("kept %+v for another source", l.kept)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openLogbook(path, "two"); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("error %v for a damaged file", err)
	}
}

func TestMutants_wantWhatThereIs(t *testing.T) {
	t.Chdir(toyModule(t))
	for args, want := range map[string]string{
		"-only nothing": "none of the 4 names", "-only lost,nothing": `begins with "nothing"`, "-only lost,": `begins with ""`,
		"-seeds 0": "want more than 0", "-workers 0": "-workers 0", "-workers -1": "-workers -1", "-timeout 0": "-timeout 0s",
	} {
		err := runMutants(context.Background(), append(strings.Fields(args), "-dir", t.TempDir()), new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
}

func TestFailedTest_namesIt(t *testing.T) {
	for said, want := range map[string]string{
		"ok\n--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n": "TestA",
		"panic: test timed out after 3m0s\nrunning":                  "its tests (panic: test timed out after 3m0s)",
		"panic: nil map\n\ngoroutine 7":                              "its tests (panic: nil map)",
		"FAIL":                                                       "its tests",
	} {
		if got := failedTest(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}
