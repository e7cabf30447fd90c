package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/cmd/carillon/internal/contexts"
)

// Where a context is named, no other cluster is asked, and none is shown another's token.
func TestNodeFlags_sayWhoIsAskedAndWhoAsks(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path, err := contexts.Path()
	if err != nil {
		t.Fatal(err)
	}
	err = contexts.Change(path, func(b *contexts.Book) error {
		b.Current = "used"
		b.Contexts = []contexts.Context{
			{Name: "used", API: []string{"used:1"}, TokenFile: file("used.token")},
			{Name: "prod", API: []string{"prod:1"}, TokenFile: file("prod.token")},
			{Name: "open", API: []string{"open:1"}},
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	given := file("given.token")
	for _, test := range []struct {
		what       string
		flags      nodeFlags
		api, token string // variables
		asks, as   string
	}{
		{"nothing", nodeFlags{}, "", "", "used:1", "used.token"},
		{"variables", nodeFlags{}, "env:1", "env.token", "env:1", "env.token"},
		{"an address in a variable", nodeFlags{}, "env:1", "", "env:1", ""},
		{"a token in a variable", nodeFlags{}, "", "env.token", "used:1", "env.token"},
		{"a context", nodeFlags{context: "prod"}, "", "", "prod:1", "prod.token"},
		{"a context, and variables of another cluster", nodeFlags{context: "prod"}, "env:1", "env.token", "prod:1", "prod.token"},
		{"a context without a token, and variables", nodeFlags{context: "open"}, "env:1", "env.token", "open:1", ""},
		{"a context and a token's file", nodeFlags{context: "prod", tokenFile: given}, "env:1", "env.token", "prod:1", "given.token"},
		{"an address", nodeFlags{addresses: addresses{"flag:1"}}, "env:1", "env.token", "flag:1", "env.token"},
		{"an address and a context", nodeFlags{addresses: addresses{"flag:1"}, context: "prod"}, "env:1", "", "flag:1", "prod.token"},
	} {
		t.Setenv(config.APIVariable, test.api)
		t.Setenv(config.TokenVariable, test.token)
		to, err := test.flags.reach()
		if got := strings.Join(to.addresses, ","); err != nil || got != test.asks || to.token != test.as {
			t.Errorf("%s: asks %s as %q, %v; want %s as %q", test.what, got, to.token, err, test.asks, test.as)
		}
	}
}

// Of a script whose variable is not set: the cluster of the context in use would be asked instead.
func TestFlags_refuseToBeEmpty(t *testing.T) {
	for _, flag := range []string{"api", "context", "token-file", "ca-file", "cert-file", "key-file", "config"} {
		verb := []string{"pause", "--topic", "orders.delay", "--why", "stock-taking"}
		if flag == "config" {
			verb = []string{"token", "revoke", "4fQz81Lm", "--api.tokens", "tokens.yaml"}
		}
		var out, errs strings.Builder
		code := run(t.Context(), append(verb, "--"+flag, ""), strings.NewReader(""), &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), "--"+flag) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("--%s: exit code %d, %q, want %d", flag, code, errs.String(), exitUsage)
		}
	}
}
