package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// loadWith loads with the flags, --name=value each, the variables of this process, and a file
// of the given text, if any.
func loadWith(t *testing.T, file string, flags ...string) (Settings, error) {
	t.Helper()
	layers := Layers{Flags: map[string]string{}, Environ: os.Environ()}
	for _, flag := range flags {
		name, text, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		layers.Flags[name] = text
	}
	if file != "" {
		path := filepath.Join(t.TempDir(), "carillon.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		layers.Flags[FileFlag] = path
	}
	return Load(Keys(), layers)
}

func TestConfigFile_holdsEveryKeyAtItsDefault(t *testing.T) {
	const path = "../../configs/carillon.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := loadWith(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default().Resolved(), s.Config); diff != "" {
		t.Errorf("%s differs from the defaults (-default +file):\n%s", path, diff)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
		if !hasKey(tree, strings.Split(k.Name, ".")) {
			t.Errorf("%s leaves out %s", path, k.Name)
		}
	}
	route := tree["routes"].([]any)[0].(map[string]any)
	for _, name := range names(reflect.TypeFor[Route]()) {
		if _, ok := route[name]; !ok {
			t.Errorf("%s leaves out routes[].%s", path, name)
		}
	}
}

func hasKey(tree map[string]any, path []string) bool {
	value, ok := tree[path[0]]
	if len(path) == 1 || !ok {
		return ok
	}
	section, ok := value.(map[string]any)
	return ok && hasKey(section, path[1:])
}

// example returns for a key a value other than its default, as a flag or variable
// gives it, and as a line of the file does.
func example(k Key) (text, line string) {
	switch {
	case k.Name == "cluster.members":
		text = `[{id: n9, raft: "a:1", api: "a:2"}]`
	case k.Name == "routes":
		text = `[{from: "x*", to: y, partitioner: crc32, max_delay: 7d, start: latest, missing_target_timeout: 0s, max_missing_targets: 7, dead_letter: z}]`
	case k.Name == "api.oidc.roles":
		text = `[{value: ops, role: operator, read_payload: true, topics: ["a*", b], targets: [c]}]`
	case k.typ.Kind() == reflect.Slice:
		return "x:1, y:2", `["x:1", "y:2"]`
	case k.typ.Kind() == reflect.Bool:
		text = "true"
	case k.typ.Kind() == reflect.Int:
		text = "7"
	case k.typ.Name() == "Duration":
		text = "1h30m"
	default:
		text = "other"
	}
	return text, text
}

// Every key that a later change adds is covered, since the keys come from the struct.
func TestSettings_everyKeyCanBeSetByFileVariableAndFlag(t *testing.T) {
	for _, k := range Keys() {
		text, line := example(k)
		file := line
		for _, section := range reversed(strings.Split(k.Name, ".")) {
			file = fmt.Sprintf("{%s: %s}", section, file)
		}
		t.Run(k.Name, func(t *testing.T) {
			fromFile, err := loadWith(t, file)
			if err != nil {
				t.Fatal(err)
			}
			fromFlag, err := loadWith(t, "", "--"+k.Name+"="+text)
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv(k.Variable(), text)
			fromVariable, err := loadWith(t, "")
			if err != nil {
				t.Fatal(err)
			}

			defaults := Default()
			value := k.in(&fromFile.Config).Interface()
			if cmp.Equal(k.in(&defaults).Interface(), value) {
				t.Errorf("the file leaves the default %v", value)
			}
			if diff := cmp.Diff(fromFile.Config, fromFlag.Config); diff != "" {
				t.Errorf("the flag says something else than the file (-file +flag):\n%s", diff)
			}
			if diff := cmp.Diff(fromFile.Config, fromVariable.Config); diff != "" {
				t.Errorf("the variable says something else than the file (-file +variable):\n%s", diff)
			}
			if got := fromFlag.Origins[k.Name]; got != "flag --"+k.Name {
				t.Errorf("origin of a flag is %q", got)
			}
			if got := fromVariable.Origins[k.Name]; got != "variable "+k.Variable() {
				t.Errorf("origin of a variable is %q", got)
			}
			if got := fromFile.Origins[k.Name]; !strings.HasPrefix(got, "file ") {
				t.Errorf("origin of a file's key is %q", got)
			}
		})
	}
}

func reversed(parts []string) []string {
	var back []string
	for _, part := range parts {
		back = append([]string{part}, back...)
	}
	return back
}

func TestSettings_listOfTheFileReplacesTheDefault(t *testing.T) {
	s, err := loadWith(t, "targets: {deny: []}\nroutes: [{from: a, to: b}]")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Config.Targets.Deny) != 0 {
		t.Errorf("targets.deny is %v", s.Config.Targets.Deny)
	}
	want := NewRoute("a")
	want.To = "b"
	if diff := cmp.Diff([]Route{want}, s.Config.Routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

// YAML has its own idea of what a number, a truth or a day is.
func TestSettings_takeTheTextAsItIsWritten(t *testing.T) {
	for _, text := range []string{
		"0123", "0o17", "1e5", "0x1F", "0b11", "1.50", "1_000", "+1", ".5", ".inf", "12345678901234567890123",
		"2026-01-01", "2026-01-01T10:00:00Z", "True", "yes", "off", "a:b",
	} {
		s, err := loadWith(t, "kafka: {sasl: {username: &name "+text+", password: *name}}\nroutes:\n- from: "+text, "--cluster.members=[{id: "+text+"}]")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		sasl := s.Config.Kafka.SASL
		for what, got := range map[string]string{
			"username": sasl.Username, "password": sasl.Password.Reveal(),
			"route": s.Config.Routes[0].From, "member": s.Config.Cluster.Members[0].ID,
		} {
			if got != text {
				t.Errorf("%s becomes the %s %s", text, what, got)
			}
		}
	}
}

func TestSettings_nullLeavesTheDefault(t *testing.T) {
	s, err := loadWith(t, "kafka: {brokers: null, tls: ~, sasl: {password: }}\nlog: {level: null}\nroutes: [{from: x, to: ~}]")
	if err != nil {
		t.Fatal(err)
	}
	want := Default().Resolved()
	want.Routes = []Route{NewRoute("x")}
	if diff := cmp.Diff(want, s.Config); diff != "" {
		t.Errorf("differs from the defaults (-default +got):\n%s", diff)
	}
}

// Left out, they are for all; a list that is there must say so.
func TestSettings_takeAnEmptyListOfARoleForNoneAtAll(t *testing.T) {
	for _, given := range []string{"[]", `""`, `","`, "null", "~", ""} {
		for _, key := range []string{"topics", "targets"} {
			roles := "[{value: ops, role: operator, " + key + ": " + given + "}]"
			section := "api: {oidc: {issuer: 'https://id.example.com', audience: carillon, roles: " + roles + "}}"
			for _, load := range []func() (Settings, error){
				func() (Settings, error) { return loadWith(t, section) },
				func() (Settings, error) {
					return loadWith(t, "", "--api.oidc.issuer=https://id.example.com", "--api.oidc.audience=carillon", "--api.oidc.roles="+roles)
				},
			} {
				s, err := load()
				if err != nil {
					t.Fatal(err)
				}
				want := "api.oidc.roles[0]." + key + ` is "[]": it has no pattern; write ["*"], or leave it out, for all`
				if err := s.Config.Validate(); err == nil || err.Error() != want {
					t.Errorf("%s: %s:\n got %v\nwant %s", key, given, err, want)
				}
			}
		}
	}
}

func TestConfig_printsARoleForAllAsItWasRead(t *testing.T) {
	before, err := loadWith(t, "", "--api.oidc.issuer=https://id.example.com", "--api.oidc.audience=carillon", "--api.oidc.roles=[{value: ops, role: operator}]")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := before.Print(&out); err != nil {
		t.Fatal(err)
	}
	after, err := loadWith(t, out.String())
	if err != nil || after.Config.Validate() != nil {
		t.Errorf("printed:\n%s\nerrors %v, %v", out.String(), err, after.Config.Validate())
	}
}
