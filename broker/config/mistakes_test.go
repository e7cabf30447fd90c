package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettings_refuseWhatIsNoKey(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"kafka:\n  broker: [a:1]\n", "carillon.yaml:2: unknown key kafka.broker; did you mean brokers?"},
		{"heartbeat: 1s\n", "carillon.yaml:1: unknown key heartbeat; did you mean raft.heartbeat?"},
		{"Log: {level: info}\n", "carillon.yaml:1: unknown key Log; did you mean log?"},
		{"xyzzy: 1\n", "carillon.yaml:1: unknown key xyzzy"},
		{"routes:\n- from: '*.delay'\n  max-delay: 1s\n", "carillon.yaml:3: unknown key routes[0].max-delay; did you mean max_delay?"},
		{"cluster:\n  members:\n  - {id: n1, addr: 'a:1'}\n", "carillon.yaml:3: unknown key cluster.members[0].addr"},
		{"log: debug\n", `carillon.yaml:1: log is "debug": write its keys, indented, below it`},
		{"log: {level: info}\nlog: {level: warn}\n", `mapping key "log" already defined at line 1`},
		{"routes: [{from: *x}]", "a value begins with * and is not in quotes: put it in quotes"},
		{"log: [", "did not find expected node content"},
		{"log: {level: warn}\n---\nlog: {format: json}\n", "carillon.yaml: the --- in line 2 begins a second document: write one alone"},
		{"log: {level: warn}\n---\n", "carillon.yaml: the --- in line 2 begins a second document: write one alone"},
		{"log: {level: warn}\n---\nlog: [", "did not find expected node content"},
		{"targets: {deny: [null]}", `targets.deny[0] is "null": write a value, or take the item out`},
		{"targets:\n  deny:\n  - secret\n  -\n", `targets.deny[1] is "null": write a value, or take the item out`},
		{"routes: [~]", `routes[0] is "null": write a value, or take the item out`},
		{"api: {oidc: {roles: [{value: ops, role: viewer, topics: [~]}]}}", `api.oidc.roles[0].topics[0] is "null": write a value, or take the item out`},
		{"targets: {deny: '[__*]'}", `targets.deny is "[__*]": write names parted by commas, without brackets`},
	} {
		_, err := loadWith(t, test.file)
		if err == nil || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%q:\n got %v\nwant %s", test.file, err, test.want)
		}
	}
}

func TestSettings_refuseWhatCannotBeRead(t *testing.T) {
	for _, test := range []struct{ flag, want string }{
		{"--raft.heartbeat=300", `raft.heartbeat is "300": write a duration such as 300ms, 5s, 1h30m, 7d or 100y`},
		{"--cluster.bootstrap=yes", `cluster.bootstrap is "yes": write true or false`},
		{"--cluster.members=n1", `cluster.members is "n1": write a list such as [{id: ...}]`},
		{"--cluster.members=[n1]", `cluster.members[0] is "n1": write {id: ..., raft: ..., api: ...}`},
		{"--cluster.members=[{ID: n1}]", `unknown key cluster.members[0].ID; did you mean id?`},
		{"--routes=[{from: x, max_delay: soon}]", `routes[0].max_delay is "soon": write a duration such as 300ms, 5s, 1h30m, 7d or 100y`},
		{"--routes=[{from: x, max_missing_targets: few}]", `routes[0].max_missing_targets is "few": write a whole number`},
		{"--routes=[{from: x, partitioner: md5}]", `routes[0].partitioner is "md5": there is no such partitioner; use murmur2, crc32, fnv1a or source`},
		{"--routes=[{from: [x]}]", `routes[0].from is "[x]": write a single value`},
		{"--routes=[{from: x}]\n---\n[{from: y}]", `routes is "[{from: x}]\n---\n[{from: y}]": write a list such as [{from: ...}]`},
		{"--targets.deny=[__*]", `targets.deny is "[__*]": write names parted by commas, without brackets`},
		{"--targets.deny= [a, \"b*\"] ", `targets.deny is "[a, \"b*\"]": write names parted by commas, without brackets`},
		{"--routes={", `routes is "{": write a list such as [{from: ...}]`},
	} {
		_, err := loadWith(t, "", test.flag)
		name, _, _ := strings.Cut(test.flag, "=")
		if want := "flag " + name + ": " + test.want; err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", test.flag, err, want)
		}
		if _, ok := errors.AsType[*FlagError](err); !ok {
			t.Errorf("%s: %v is no error of a flag", test.flag, err)
		}
	}
}

// A list of names in text may have brackets, of which a pattern is made.
func TestSettings_takeBracketsOfPatterns(t *testing.T) {
	s, err := loadWith(t, "---\nlog: {level: info}\n...\n", "--targets.deny=[ab]*,x[cd]", "--kafka.brokers=[::1]:9092")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"[ab]*", "x[cd]"}, s.Config.Targets.Deny); diff != "" {
		t.Error(diff)
	}
}

func TestSettings_refuseVariablesThatAreNoKey(t *testing.T) {
	const noKey = "; every variable that begins with CARILLON_ is a key, see carillon config: unset it"
	for entry, hint := range map[string]string{
		"CARILLON_KAFKA_BROKER=a:1":  "; did you mean CARILLON_KAFKA_BROKERS?",
		"CARILLON_KAFAK_BROKERS=a:1": "; did you mean CARILLON_KAFKA_BROKERS?",
		"CARILLON_LOGLEVEL=":         "; did you mean CARILLON_LOG_LEVEL?",
		"CARILLON_API_PORT=7401":     noKey, // Kubernetes would say tcp://
		"CARILLON_VERSION=1":         noKey,
	} {
		name, _, _ := strings.Cut(entry, "=")
		err := unknownVariables([]string{"HOME=/", entry, "CARILLON_KAFKA_BROKERS=a:1"})
		if want := "unknown variable " + name + hint; err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", entry, err, want)
		}
	}
}

// What Kubernetes sets in every pod beside services called carillon, carillon-n1 and carillon-kafka.
func TestSettings_takeVariablesOfKubernetesForNoMistake(t *testing.T) {
	err := unknownVariables([]string{
		"CARILLON_SERVICE_HOST=10.0.0.1", "CARILLON_SERVICE_PORT=7401", "CARILLON_SERVICE_PORT_API=7401",
		"CARILLON_PORT=tcp://10.0.0.1:7401", "CARILLON_PORT_7401_TCP=tcp://10.0.0.1:7401",
		"CARILLON_PORT_7401_TCP_PROTO=tcp", "CARILLON_PORT_7401_TCP_PORT=7401", "CARILLON_PORT_7401_TCP_ADDR=10.0.0.1",
		"CARILLON_N1_SERVICE_HOST=fd00::1", "CARILLON_N1_PORT=udp://[fd00::1]:7401", "CARILLON_N1_PORT_7401_UDP_ADDR=fd00::1",
		"CARILLON_KAFKA_SERVICE_HOST=10.0.0.2", "CARILLON_KAFKA_PORT_9092_TCP=tcp://10.0.0.2:9092",
		"CARILLON_CONFIG=carillon.yaml", "CARILLON_NODE_ID=n1",
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSettings_nameTheFileThatIsMissing(t *testing.T) {
	_, err := loadWith(t, "", "--config=nowhere.yaml")
	if want := "read configuration: open nowhere.yaml: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSettings_showNoSecretInAnError(t *testing.T) {
	for _, file := range []string{
		"kafka: {sasl: {password: [hunter2, x]}}",
		"kafka: {sasl: {password: {hunter2: x}}}",
		"kafka: {sasl: {password: {x: hunter2}}}",
		"kafka: {sasl: {password: !!int hunter2, mechanism: [x]}}",
		"kafka: {sasl: {password: !!int hunter2, mechanism: [x]}}",
		"kafka: {sasl: {password: *hunter2}}",
		"kafka: {sasl: hunter2}",
		"kafka: hunter2",
		"routes: [{from: x, password: hunter2}]",
	} {
		_, err := loadWith(t, file)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", file, err)
		}
	}
	_, err := loadWith(t, "", "--routes=[{from: x, password: hunter2}]")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("flag: %v", err)
	}
}

func TestConfig_printsNoSecret(t *testing.T) {
	s, err := loadWith(t, "", "--kafka.sasl.password=hunter2")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.Print(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), `password: '********' # flag --kafka.sasl.password`) {
		t.Errorf("printed:\n%s", out.String())
	}
}

// What `carillon config` prints can be used as a configuration file.
func TestConfig_printsAConfigurationFile(t *testing.T) {
	before, err := loadWith(t, "", "--routes=[{from: 'x*', to: y, start: latest}]", "--kafka.brokers=a:1,b:2", "--raft.heartbeat=1s", "--node.data_dir=true")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := before.Print(&out); err != nil {
		t.Fatal(err)
	}
	after, err := loadWith(t, out.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Config, after.Config); diff != "" {
		t.Errorf("printed:\n%s\nread differently (-before +after):\n%s", out.String(), diff)
	}
}
