package access

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carillonmq/carillon/broker/reload"
)

var born = time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)

func readFile(t *testing.T, path string) Book {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadBook(path, text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func create(t *testing.T, path string, g Grant) string {
	t.Helper()
	token, err := Create(path, g, born)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestCreate_makesATokenThatIsKnownUntilItIsRevoked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	want := Grant{Name: "anna@ops", Role: Operator, ReadPayload: true, Topics: []string{"orders.*", "a.delay"}, Targets: []string{"[o-p]*"}}
	anna := create(t, path, want)
	other := create(t, path, Grant{Name: "prometheus", Role: Viewer})

	got, err := readFile(t, path).Check(anna)
	want.ID = strings.Split(anna, "_")[1]
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	entries := readFile(t, path).Entries()
	if len(entries) != 2 || !entries[0].Created.Equal(born.Truncate(time.Second)) {
		t.Errorf("the file has %d tokens, the first of %v", len(entries), entries[0].Created)
	}

	if revoked, err := Revoke(path, want.ID); err != nil || revoked.Name != want.Name {
		t.Errorf("revoked %+v, error %v", revoked, err)
	}
	if _, err := readFile(t, path).Check(anna); !errors.Is(err, ErrUnknown) {
		t.Errorf("a revoked token: %v", err)
	}
	if _, err := readFile(t, path).Check(other); err != nil {
		t.Errorf("the other token: %v", err)
	}
	if _, err := Revoke(path, want.ID); err == nil || !strings.Contains(err.Error(), `has no token of the id "`+want.ID+`": `) || !errors.Is(err, ErrNoToken) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestCreate_keepsNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	token := create(t, path, Grant{Name: "anna", Role: Viewer})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if secret := strings.Split(token, "_")[2]; strings.Contains(string(text), secret) {
		t.Error("the file has the secret in clear")
	}
}

// A node may run as a group of its own that reads the file.
func TestCreate_leavesTheModeAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	create(t, path, Grant{Name: "anna", Role: Viewer})
	for _, want := range []os.FileMode{0o600, 0o640} {
		if err := os.Chmod(path, want); err != nil {
			t.Fatal(err)
		}
		create(t, path, Grant{Name: "bert", Role: Viewer})
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode %v and error %v, want %v", info.Mode(), err, want)
		}
	}
}

// A token in it would not count: nodes refuse the file.
func TestCreate_refusesAFileThatOthersMayRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	token := create(t, path, Grant{Name: "anna", Role: Viewer})
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	const says = "has mode 0644, so that others may read or change it: run chmod"
	if _, err := Create(path, Grant{Name: "bert", Role: Viewer}, born); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("create: %v", err)
	}
	if _, err := Revoke(path, strings.Split(token, "_")[1]); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("revoke: %v", err)
	}
	if n := len(readFile(t, path).Entries()); n != 1 {
		t.Errorf("%d tokens, want 1", n)
	}
}

func TestCreate_doesNotTouchAFileThatItCannotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	const text = "tokens:\n  - id: x\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, Grant{Name: "anna", Role: Viewer}, born); err == nil || !strings.Contains(err.Error(), path+":2: ") {
		t.Errorf("error %v names no line", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("the file is now %q, error %v", got, err)
	}
}

func TestCreate_losesNoneOfTwoAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	const each = 8
	var done sync.WaitGroup
	for range each {
		done.Go(func() {
			if _, err := Create(path, Grant{Name: "anna", Role: Viewer}, born); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := len(readFile(t, path).Entries()); n != each {
		t.Errorf("%d tokens, want %d", n, each)
	}
}

func TestToken_isRefusedWhenAnyCharacterIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	token := create(t, path, Grant{Name: "anna", Role: Admin})
	book := readFile(t, path)
	for i := range token {
		for _, c := range []byte{'0', 'z', '_', ' ', 0} {
			wrong := []byte(token)
			if wrong[i] == c {
				continue
			}
			wrong[i] = c
			if _, err := book.Check(string(wrong)); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%q at %d: %v", c, i, err)
			}
		}
	}
	for _, wrong := range []string{"", "carillon", token + "0", token[1:], strings.ToUpper(token), " " + token} {
		if _, err := book.Check(wrong); !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), token[20:40]) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// The id is public: a token that somebody made up to it, well formed, is not the token.
func TestToken_isRefusedWithAnotherSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	token := create(t, path, Grant{Name: "anna", Role: Admin})
	parts := strings.Split(token, "_")
	made, _ := newToken()
	head := "carillon_" + parts[1] + "_" + strings.Split(made, "_")[2]
	if _, err := readFile(t, path).Check(head + "_" + check(head)); !errors.Is(err, ErrUnknown) {
		t.Errorf("another secret: %v", err)
	}
	if _, err := readFile(t, path).Check(made); !errors.Is(err, ErrUnknown) {
		t.Errorf("another id: %v", err)
	}
}

// A node that reads a file while it is written keeps the tokens that it knows.
func TestReadBook_takesAnEmptiedFileForNobodysWish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml") // not in the bubble: it is removed after it
	synctest.Test(t, func(t *testing.T) {
		open := func() (*reload.Keeper[Book], error) {
			parse := func(texts [][]byte) (Book, error) { return ReadBook(path, texts[0]) }
			return reload.Open("api.tokens", []reload.File{{Path: path, Secret: true, Optional: true}}, parse, slog.New(slog.DiscardHandler))
		}
		keeper, err := open()
		if err != nil {
			t.Fatalf("before there is a file: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go keeper.Run(ctx)
		known := func(what string, want int, failing bool) {
			t.Helper()
			time.Sleep(5 * time.Second)
			if n := len(keeper.InForce().Entries()); n != want || keeper.Failing() != failing {
				t.Errorf("%s: %d tokens are known, failing: %t; want %d, %t", what, n, keeper.Failing(), want, failing)
			}
		}
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		known("no file", 0, false)
		create(t, path, Grant{Name: "anna", Role: Viewer})
		known("a token", 1, false)
		write("")
		known("a file of no bytes", 1, true)
		const says = "tokens.yaml:1: nothing stands here"
		if _, err := open(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("at the start: %v", err)
		}
		if _, err := Create(path, Grant{Name: "bert", Role: Viewer}, born); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("a token put into it: %v", err)
		}
		write("# Who may use the API.\n")
		known("a comment", 1, true)
		write("tokens: []\n")
		known("a list of none", 0, false)
	})
}

func FuzzToken(f *testing.F) {
	made, _ := newToken()
	f.Add(made)
	f.Add("carillon___")
	f.Fuzz(func(t *testing.T, text string) {
		id, _, err := readToken(text)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if !strings.HasPrefix(text, "carillon_"+id+"_") {
			t.Errorf("%q has the id %q", text, id)
		}
	})
}

func FuzzReadBook(f *testing.F) {
	f.Add("tokens:\n  - {id: abcdefgh, name: anna, role: viewer, sha256: " + strings.Repeat("0f", 32) + "}\n")
	f.Add("tokens: [{topics: [[]], targets: {}, created: 1}]")
	f.Add("tokens:\n- &a {id: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ReadBook("tokens.yaml", []byte(text))
		if err != nil {
			return
		}
		again, err := b.text()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ReadBook("tokens.yaml", again)
		if diff := cmp.Diff(b, back, cmp.AllowUnexported(Book{}), cmpopts.IgnoreUnexported(Entry{})); diff != "" || err != nil {
			t.Errorf("%q is written as %q, %v (-was +is):\n%s", text, again, err, diff)
		}
	})
}

func TestReadBook_namesFileLineAndRemedy(t *testing.T) {
	digest := strings.Repeat("0f", 32)
	sound := "id: abcdefgh, name: anna, role: viewer, sha256: " + digest
	for text, want := range map[string]string{
		"":                   "t.yaml:1: nothing stands here, as in a file that is half written: restore it, or write tokens: []",
		"# nobody\n":         "t.yaml:1: nothing stands here, as in a file that is half written: restore it, or write tokens: []",
		"tokens: [":          "t.yaml: ",
		"- a\n":              "t.yaml:1: this is no token file: it has one key, tokens, with a list below it",
		"# one\ntoken: []\n": "t.yaml:2: this is no token file: it has one key, tokens, with a list below it",
		"tokens: {}\n":       "t.yaml:1: tokens is no list: write one entry a token, each begun by a dash",
		"tokens:\n- anna\n":  "t.yaml:2: an entry is no set of keys: write id, name, role and sha256 below one dash",
		"tokens:\n- {" + sound + ", secret: hunter2}":                                        "t.yaml:2: unknown key of a token: use id, name, role, read_payload, topics, targets, created, sha256",
		"tokens:\n- {" + sound + ", role: admin}":                                            "t.yaml:2: role stands here twice: take one out",
		"tokens:\n- {" + sound + "}\n- {" + sound + "}":                                      "t.yaml:3: id abcdefgh stands in line 2 already: take one of the two out",
		"tokens:\n- {id: abcdefgh, name: anna, role: viewer}":                                "t.yaml:2: a token has no sha256: make it with `carillon token create`, or take it out",
		"tokens:\n- {id: a-b, name: anna, role: viewer, sha256: " + digest + "}":             "t.yaml:2: id is not 8 letters and digits: make tokens with `carillon token create`",
		"tokens:\n- {id: abcdefgh, name: \"a\\nb\", role: viewer, sha256: " + digest + "}":   `t.yaml:2: name is "a\nb": ` + nameRemedy,
		"tokens:\n- {id: abcdefgh, name: anna, role: root, sha256: " + digest + "}":          `t.yaml:2: role is "root": use viewer, operator or admin`,
		"tokens:\n- {" + sound + ", read_payload: yes}":                                      `t.yaml:2: read_payload is "yes": write true or false`,
		"tokens:\n- {" + sound + ", created: today}":                                         `t.yaml:2: created is "today": write a time as 2027-01-01T00:00:00Z, or take it out`,
		"tokens:\n- {" + sound + ", topics: []}":                                             `t.yaml:2: topics is no list of patterns: write ["*"], or leave it out, for all`,
		"tokens:\n- {" + sound + ", targets: ['[']}":                                         `t.yaml:2: targets: "[": write a pattern over topic names, such as "*.delay"; * ? and [abc] have a meaning`,
		"tokens:\n- {" + sound + ", targets: [' orders']}":                                   `t.yaml:2: targets: " orders": no topic has a blank in its name, so it matches none: take the blanks out`,
		"tokens:\n- {" + sound + ", topics: [\"ord\\ter\"]}":                                 `t.yaml:2: topics: "ord\ter": no topic has a blank in its name`,
		"tokens:\n- {" + sound + ", targets: [x, ~]}":                                        `t.yaml:2: targets: an item is null: write a pattern, or take the item out`,
		"tokens:\n- {" + sound + "}\n---\ntokens: []\n":                                      "t.yaml:3: the --- here begins a second document: put all tokens into the first",
		"# none yet\n---\n---\ntokens: []\n":                                                 "t.yaml:3: the --- here begins a second document: put all tokens into the first",
		"tokens: []\n---\n[":                                                                 "t.yaml: yaml: ",
		"tokens:\n- {" + sound + ", targets: [[x]]}":                                         `t.yaml:2: targets: "": write a pattern over topic names, such as "*.delay"; * ? and [abc] have a meaning`,
		"tokens:\n- {id: abcdefgh, name: anna, role: viewer, sha256: carillon_abcdefgh_S_C}": "t.yaml:2: sha256 is not 64 hexadecimal digits: it is the digest of a token, which `carillon token create` writes, and never the token itself",
		"tokens:\n- {id: abcdefgh, name: anna, role: viewer, sha256: " + digest + "0f}":      "t.yaml:2: sha256 is not 64 hexadecimal digits: it is the digest of a token, which `carillon token create` writes, and never the token itself",
		"tokens:\n- {id: [x], name: anna, role: viewer, sha256: " + digest + "}":             "t.yaml:2: id is no single value: write one",
	} {
		_, err := ReadBook("t.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows a secret: %v", text, err)
		}
	}
	for _, text := range [][]byte{nil, []byte("tokens:\n"), []byte("tokens: []\n"), []byte("# nobody\ntokens: []\n")} {
		if b, err := ReadBook("t.yaml", text); err != nil || len(b.Entries()) != 0 {
			t.Errorf("%q: %d tokens, %v", text, len(b.Entries()), err)
		}
	}
}

// A node tells another what a caller may, in a header.
func TestCheckSize_boundsWhatNodesTellEachOther(t *testing.T) {
	digest := strings.Repeat("0f", 32)
	patterns := func(n int) []string { return slices.Repeat([]string{"<orders>.*"}, n) } // which JSON writes longer
	for n, want := range map[int]bool{10: true, 200: true, 300: false, 5000: false} {
		g := Grant{Name: "anna", Role: Viewer, Topics: patterns(n / 2), Targets: patterns(n / 2)}
		if err := CheckSize(g); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "use fewer patterns, and wider ones") {
			t.Errorf("%d patterns: %v", n, err)
		}
		text := "tokens:\n- {id: abcdefgh, name: anna, role: viewer, sha256: " + digest + ", topics: [\"" + strings.Join(patterns(n), `", "`) + "\"]}"
		if _, err := ReadBook("t.yaml", []byte(text)); (err == nil) != want || err != nil && !strings.HasPrefix(err.Error(), "t.yaml:2: topics and targets take ") {
			t.Errorf("a file with %d patterns: %v", n, err)
		}
	}
}

// Every role x permission x scope.
func TestGrant_allowsWhatItsRoleAndPatternsSay(t *testing.T) {
	everything, ofTopic, ofBoth := Object{}, Object{Topic: "orders.delay"}, Object{Topic: "orders.delay", Target: "orders"}
	foreign, ofTarget := Object{Topic: "bills.delay", Target: "orders"}, Object{Target: "orders"}
	objects := []Object{everything, ofTopic, ofBoth, foreign, ofTarget}
	scopes := map[string]struct {
		topics, targets []string
		reaches         []bool // of the objects
	}{
		"all":          {nil, nil, []bool{true, true, true, true, true}},
		"said all":     {[]string{"*"}, []string{"*"}, []bool{true, true, true, true, true}},
		"topic":        {[]string{"orders.*"}, nil, []bool{false, true, true, false, false}},
		"target":       {nil, []string{"orders"}, []bool{false, false, true, true, true}},
		"both":         {[]string{"orders.delay"}, []string{"orders"}, []bool{false, false, true, false, false}},
		"other target": {nil, []string{"bills", "order?"}, []bool{false, false, true, true, true}},
		"neither":      {[]string{"x"}, []string{"y"}, []bool{false, false, false, false, false}},
	}
	holds := map[Role]map[Permission]bool{
		Viewer:   {View: true},
		Operator: {View: true, Operate: true},
		Admin:    {View: true, Operate: true, Administer: true},
		"":       {},
	}
	for role, permissions := range holds {
		for _, p := range []Permission{View, ReadPayload, Operate, Administer, "fly"} {
			for _, payload := range []bool{false, true} {
				held := permissions[p] || p == ReadPayload && payload
				for name, scope := range scopes {
					g := Grant{Role: role, ReadPayload: payload, Topics: scope.topics, Targets: scope.targets}
					if g.Holds(p) != held {
						t.Errorf("%s with payload %t holds %s: %t", role, payload, p, !held)
					}
					for i, o := range objects {
						if want := held && scope.reaches[i]; g.Allows(p, o) != want {
							t.Errorf("%s for %s with payload %t allows %s on %+v: %t", role, name, payload, p, o, !want)
						}
					}
				}
			}
		}
	}
}
