package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// three is a sound configuration of the second of three nodes.
func three() Config {
	c := Default()
	c.Node.ID = "n2"
	c.Cluster.Members = []Member{
		{ID: "n1", Raft: "127.0.0.1:7301", API: "127.0.0.1:7401"},
		{ID: "n2", Raft: "127.0.0.1:7302", API: "127.0.0.1:7402"},
		{ID: "n3", Raft: "127.0.0.1:7303", API: "127.0.0.1:7403"},
	}
	return c
}

// oidc is a sound section but for what is given.
func oidc(issuer, role string) OIDC {
	return OIDC{Issuer: issuer, Audience: "carillon", NameClaim: "sub", RoleClaim: "groups", Roles: []OIDCRole{{Value: "ops", Role: role}}}
}

func TestConfig_listensOffLoopbackForWhoAnIssuerKnows(t *testing.T) {
	c := three()
	c.API.Listen, c.API.OIDC = ":7401", oidc("https://id.example.com", "admin")
	if err := c.Resolved().Validate(); err != nil {
		t.Error(err)
	}
}

func TestConfig_defaultsAreSound(t *testing.T) {
	c := Default().Resolved()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Node.ID != "n1" || c.Raft.Listen != "127.0.0.1:7301" || c.API.Listen != "127.0.0.1:7401" {
		t.Errorf("the only member is not this node: id %q, raft %q, api %q", c.Node.ID, c.Raft.Listen, c.API.Listen)
	}
}

func TestConfig_listensWhereItsMemberEntrySays(t *testing.T) {
	c := three()
	c.API.Listen = "localhost:9999"
	c = c.Resolved()
	if c.Raft.Listen != "127.0.0.1:7302" || c.API.Listen != "localhost:9999" {
		t.Errorf("raft listens on %q, api on %q", c.Raft.Listen, c.API.Listen)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestConfig_namesFieldValueAndRemedy(t *testing.T) {
	const openRaft = "it can be reached from other machines and nothing authenticates them; name a certificate for raft.tls and no raft.tls.optional, listen on 127.0.0.1, or say raft.allow_unauthenticated: true where the network is trusted"
	const openAPI = "it can be reached from other machines and nothing authenticates them; name a file for api.tokens, listen on 127.0.0.1, or say api.allow_unauthenticated: true where the network is trusted"
	const name = "use 1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit first"
	for _, test := range []struct {
		what   string
		change func(*Config)
		want   string
	}{
		{"no id among several members", func(c *Config) { c.Node.ID = "" }, `node.id is "": cluster.members has no such id; use one of n1, n2, n3`},
		{"an id that is no member", func(c *Config) { c.Node.ID = "n4" }, `node.id is "n4": cluster.members has no such id; use one of n1, n2, n3`},
		{"no data folder", func(c *Config) { c.Node.DataDir = "" }, `node.data_dir is "": name a folder, it is created when missing`},
		{"a cluster name with a space", func(c *Config) { c.Cluster.Name = "my cluster" }, `cluster.name is "my cluster": ` + name},
		{"an id with the separator of Raft ids", func(c *Config) { c.Cluster.Members[0].ID = "n1@2" }, `cluster.members[0].id is "n1@2": ` + name},
		{"an id twice", func(c *Config) { c.Cluster.Members[2].ID = "n1" }, `cluster.members[2].id is "n1": cluster.members[0].id has it already; give every member its own`},
		{"an address twice", func(c *Config) { c.Cluster.Members[2].API = "127.0.0.1:7301" }, `cluster.members[2].api is "127.0.0.1:7301": cluster.members[0].raft has it already; give every member its own`},
		{"an address without port", func(c *Config) { c.Cluster.Members[0].Raft = "node1" }, `cluster.members[0].raft is "node1": write host:port, the port 1 to 65535`},
		{"an address without host", func(c *Config) { c.Cluster.Members[0].Raft = ":7301" }, `cluster.members[0].raft is ":7301": write host:port, the port 1 to 65535`},
		{"a raise in the middle of an upgrade", func(c *Config) { c.Cluster.RaiseAfter = time.Minute }, "cluster.raise_after is \"1m\": there is no way back from it: use at least 10m, or 0s to leave it to `carillon cluster raise`"},
		{"a heartbeat of a nanosecond", func(c *Config) { c.Raft.Heartbeat = 1 }, `raft.heartbeat is "1ns": use 20ms to 10m`},
		{"no skew at all", func(c *Config) { c.Clock.MaxSkew = 0 }, `clock.max_skew is "0s": use 10ms to 1h`},
		{"a negative skew", func(c *Config) { c.Clock.MaxSkew = -time.Second }, `clock.max_skew is "-1s": use 10ms to 1h`},
		{"no outcome for any time", func(c *Config) { c.Outcomes.Keep = 0 }, `outcomes.keep is "0s": use 1s to 100y`},
		{"outcomes for ever", func(c *Config) { c.Outcomes.Keep = 101 * 365 * 24 * time.Hour }, `outcomes.keep is "101y": use 1s to 100y`},
		{"no outcomes", func(c *Config) { c.Outcomes.Max = 0 }, `outcomes.max is "0": use 1 to 100000000; each takes some 70 bytes of memory on every node`},
		{"any number of outcomes", func(c *Config) { c.Outcomes.Max = 1_000_000_000 }, `outcomes.max is "1000000000": use 1 to 100000000; each takes some 70 bytes of memory on every node`},
		{"any skew", func(c *Config) { c.Clock.MaxSkew = 24 * time.Hour }, `clock.max_skew is "1d": use 10ms to 1h`},
		{"an unknown log store", func(c *Config) { c.Raft.Log = "rocksdb" }, `raft.log is "rocksdb": use wal or boltdb`},
		{"raft on all addresses", func(c *Config) { c.Raft.Listen = ":7301" }, `raft.listen is ":7301": ` + openRaft},
		{"raft on a host name", func(c *Config) { c.Raft.Listen = "node2:7301" }, `raft.listen is "node2:7301": ` + openRaft},
		{"api on a network", func(c *Config) { c.API.Listen = "10.0.0.1:7401" }, `api.listen is "10.0.0.1:7401": ` + openAPI},
		{"api on no port", func(c *Config) { c.API.Listen = "127.0.0.1" }, `api.listen is "127.0.0.1": write host:port, such as 127.0.0.1:7401; an empty host listens on all addresses`},
		{"no broker", func(c *Config) { c.Kafka.Brokers = nil }, `kafka.brokers is "[]": name at least one broker, host:port`},
		{"a broker without port", func(c *Config) { c.Kafka.Brokers = []string{"kafka"} }, `kafka.brokers[0] is "kafka": write host:port, the port 1 to 65535`},
		{"an unknown compression", func(c *Config) { c.Kafka.Compression = "brotli" }, `kafka.compression is "brotli": use none, gzip, snappy, lz4 or zstd`},
		{"certificates without TLS", func(c *Config) { c.Kafka.TLS.CA = "ca.pem" }, `kafka.tls.enabled is "false": ca.pem is named, which only TLS reads; say true`},
		{"a certificate without key", func(c *Config) { c.Kafka.TLS = TLS{Enabled: true, Cert: "c.pem"} }, `kafka.tls.key is "": kafka.tls.cert is set; name its key too`},
		{"a key without certificate", func(c *Config) { c.Kafka.TLS = TLS{Enabled: true, Key: "k.pem"} }, `kafka.tls.cert is "": kafka.tls.key is set; name its certificate too`},
		{"raft with optional TLS on a network", func(c *Config) {
			c.Raft.Listen, c.Raft.TLS = ":7301", RaftTLS{Cert: "c.pem", Key: "k.pem", CA: "ca.pem", Optional: true}
		}, `raft.listen is ":7301": ` + openRaft},
		{"a raft certificate without CA", func(c *Config) { c.Raft.TLS = RaftTLS{Cert: "c.pem", Key: "k.pem"} }, `raft.tls.ca is "": raft.tls.cert is set; name who signs the certificates of the nodes, an authority of their own rather than one that signs for others too`},
		{"optional raft TLS without certificate", func(c *Config) { c.Raft.TLS.Optional = true }, `raft.tls.cert is "": other keys of raft.tls are set, which only TLS reads; name the certificate of this node, and its key`},
		{"an api key without certificate", func(c *Config) { c.API.TLS.Key = "k.pem" }, `api.tls.cert is "": api.tls.key is set; name its certificate too`},
		{"an api CA without TLS", func(c *Config) { c.API.TLS.ClientCA = "ca.pem" }, `api.tls.cert is "": other keys of api.tls are set, which only TLS reads; name the certificate of this node, and its key`},
		{"an issuer in the clear", func(c *Config) { c.API.OIDC = oidc("http://id.example.com", "viewer") }, `api.oidc.issuer is "http://id.example.com": whoever is on the way could give keys of their own; use https, or http on loopback`},
		{"an issuer that is no URL", func(c *Config) { c.API.OIDC = oidc("id.example.com", "viewer") }, `api.oidc.issuer is "id.example.com": write the URL that the claim iss of its tokens has, such as https://id.example.com/realms/main`},
		{"roles without an issuer", func(c *Config) { c.API.OIDC = oidc("", "viewer") }, `api.oidc.issuer is "": other keys of api.oidc are set, which count for tokens of an issuer alone; name it, or take them out`},
		{"an issuer for anybody", func(c *Config) { c.API.OIDC = oidc("https://a", "viewer"); c.API.OIDC.Audience = "" }, `api.oidc.audience is "": tokens of the issuer for other programs would count here; name what those for this cluster have in their claim aud`},
		{"an issuer without roles", func(c *Config) { c.API.OIDC = oidc("https://a", "viewer"); c.API.OIDC.Roles = nil }, `api.oidc.roles is "[]": nobody whom the issuer knows may do anything; give at least one, such as {value: carillon-admins, role: admin}`},
		{"an unknown role of an issuer", func(c *Config) { c.API.OIDC = oidc("https://a", "root") }, `api.oidc.roles[0].role is "root": use viewer, operator or admin`},
		{"a role of an issuer for a broken pattern", func(c *Config) { c.API.OIDC = oidc("https://a", "viewer"); c.API.OIDC.Roles[0].Topics = []string{"["} }, `api.oidc.roles[0].topics is "[": write a pattern over topic names, such as "*.delay"; * ? and [abc] have a meaning`},
		{"a role of an issuer for no topics", func(c *Config) { c.API.OIDC = oidc("https://a", "viewer"); c.API.OIDC.Roles[0].Topics = []string{} }, `api.oidc.roles[0].topics is "[]": it has no pattern; write ["*"], or leave it out, for all`},
		{"a role of an issuer for more patterns than nodes tell each other", func(c *Config) {
			c.API.OIDC = oidc("https://a", "viewer")
			c.API.OIDC.Roles[0].Targets = []string{strings.Repeat("x", 6<<10)}
		}, `api.oidc.roles[0] is "ops": topics and targets take 6228 bytes, 6144 at most: use fewer patterns, and wider ones`},
		{"a role of nobody", func(c *Config) { c.API.OIDC = oidc("https://a", "viewer"); c.API.OIDC.Roles[0].Value = "" }, `api.oidc.roles[0].value is "": write what the claim groups of those has who have the role`},
		{"a password without mechanism", func(c *Config) { c.Kafka.SASL.Password = "x" }, `kafka.sasl.mechanism is "": a user name or password is set; use plain, scram-256 or scram-512`},
		{"an unknown mechanism", func(c *Config) { c.Kafka.SASL = SASL{"gssapi", "u", "p"} }, `kafka.sasl.mechanism is "gssapi": use plain, scram-256 or scram-512`},
		{"a mechanism without user", func(c *Config) { c.Kafka.SASL = SASL{"plain", "", "p"} }, `kafka.sasl.username is "": kafka.sasl.mechanism is plain; give the user name too`},
		{"a mechanism without password", func(c *Config) { c.Kafka.SASL = SASL{"plain", "u", ""} }, `kafka.sasl.password is "": kafka.sasl.mechanism is plain; give the password too`},
		{"no route", func(c *Config) { c.Routes = nil }, `routes is "[]": give at least one, such as {from: "*.delay"}`},
		{"a route of nothing", func(c *Config) { c.Routes[0].From = ""; c.Routes[0].To = "orders" }, `routes[0].from is "": write a pattern over topic names, such as "*.delay"; * ? and [abc] have a meaning`},
		{"a broken pattern", func(c *Config) { c.Routes[0].From = "[.delay" }, `routes[0].from is "[.delay": write a pattern over topic names, such as "*.delay"; * ? and [abc] have a meaning`},
		{"a route without target", func(c *Config) { c.Routes[0].From = "timers" }, `routes[0].from is "timers": it does not end in .delay, so the target has no default; give routes[0].to`},
		{"a target that is no topic name", func(c *Config) { c.Routes[0].To = "or ders" }, `routes[0].to is "or ders": topic name "or ders" holds ' ': use letters, digits, dot, hyphen and underscore`},
		{"a target that is denied", func(c *Config) { c.Routes[0].To = "__offsets" }, `routes[0].to is "__offsets": targets.deny "__*" matches it; take that pattern out or narrow it, or choose another target`},
		{"a target that is a delay topic", func(c *Config) { c.Routes[0].To = "b.delay" }, `routes[0].to is "b.delay": it is a delay topic, routes[].from "*.delay" matches it; choose a topic that no route reads`},
		{"a target that takes dead letters", func(c *Config) { c.Routes[0].To = "carillon.dead-letter" }, `routes[0].to is "carillon.dead-letter": dead letters go there, by dead_letter; choose a topic of its own`},
		{"a target that takes another route's dead letters", func(c *Config) {
			c.Routes[0].To = "bills.dead"
			c.Routes = append(c.Routes, Route{From: "bills", To: "bills.out", DeadLetter: "bills.dead", MaxDelay: 1})
		}, `routes[0].to is "bills.dead": dead letters go there, by dead_letter; choose a topic of its own`},
		{"less than no missing target", func(c *Config) { c.Routes[0].MaxMissingTargets = -1 }, `routes[0].max_missing_targets is "-1": give a number of topics, 0 for no bound, or leave it out for 10000`},
		{"no delay at all", func(c *Config) { c.Routes[0].MaxDelay = 0 }, `routes[0].max_delay is "0s": give a duration above zero, or leave it out for 100y`},
		{"an unknown start", func(c *Config) { c.Routes[0].Start = "first" }, `routes[0].start is "first": use earliest or latest`},
		{"a dead-letter topic that is a delay topic", func(c *Config) { c.DeadLetter.Topic = "dead.delay" }, `dead_letter.topic is "dead.delay": it is a delay topic, routes[].from "*.delay" matches it; choose a topic that no route reads`},
		{"a dead-letter topic without name", func(c *Config) { c.DeadLetter.Topic = "" }, `dead_letter.topic is "": topic name is empty: give 1 to 249 characters`},
		{"a deny pattern that denies nothing", func(c *Config) { c.Targets.Deny = []string{" audit"} }, `targets.deny is " audit": no topic has a blank in its name, so it matches none; take the blanks out`},
		{"a broken allow pattern", func(c *Config) { c.Targets.Allow = []string{"*", "["} }, `targets.allow is "[": write a pattern over topic names, such as "*.delay"; * ? and [abc] have a meaning`},
		{"no target at all", func(c *Config) { c.Targets.Allow = []string{} }, `targets.allow is "[]": nothing could be delivered; give at least one pattern, such as "*"`},
		{"exactly once", func(c *Config) { c.Delivery = "exactly-once" }, `delivery is "exactly-once": it is not built yet; use at-least-once`},
		{"an unknown delivery", func(c *Config) { c.Delivery = "at-most-once" }, `delivery is "at-most-once": use at-least-once`},
		{"an unknown level", func(c *Config) { c.Log.Level = "loud" }, `log.level is "loud": use debug, info, warn or error`},
		{"an unknown format", func(c *Config) { c.Log.Format = "xml" }, `log.format is "xml": use text or json`},
	} {
		c := three()
		test.change(&c)
		err := c.Resolved().Validate()
		if err == nil {
			t.Errorf("%s: no error, want %s", test.what, test.want)
			continue
		}
		// Some mistakes break two rules; the first named is the one meant.
		joined := err.(interface{ Unwrap() []error }).Unwrap()
		found := false
		for _, err := range joined {
			var field *FieldError
			if !errors.As(err, &field) {
				t.Errorf("%s: %v is no FieldError", test.what, err)
			}
			found = found || err.Error() == test.want
		}
		if !found {
			t.Errorf("%s:\n got %v\nwant %s", test.what, err, test.want)
		}
	}
}

func TestConfig_saysOfANodeThatIsNoMemberOnlyThat(t *testing.T) {
	c := three()
	c.Node.ID = "n4"
	err := c.Resolved().Validate()
	if want := `node.id is "n4": cluster.members has no such id; use one of n1, n2, n3`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestConfig_listensOffLoopbackWhenToldSo(t *testing.T) {
	c := three()
	c.Raft.Listen, c.Raft.AllowUnauthenticated = "0.0.0.0:7301", true
	c.API.Listen, c.API.AllowUnauthenticated = "[::]:7401", true
	if err := c.Resolved().Validate(); err != nil {
		t.Error(err)
	}
	c.API.Tokens, c.API.AllowUnauthenticated = "tokens.yaml", false
	c.Raft.TLS, c.Raft.AllowUnauthenticated = RaftTLS{Cert: "c.pem", Key: "k.pem", CA: "ca.pem"}, false
	if err := c.Resolved().Validate(); err != nil {
		t.Error(err)
	}
}

func TestConfig_firstRouteThatMatchesWins(t *testing.T) {
	c := Default()
	c.Routes = []Route{{From: "timers", To: "alarms"}, {From: "pay.*.delay", DeadLetter: "pay.dead"}, {From: "*.delay"}}
	for topic, want := range map[string][2]string{
		"timers":           {"alarms", "carillon.dead-letter"},
		"pay.eu.delay":     {"pay.eu", "pay.dead"},
		"orders.delay":     {"orders", "carillon.dead-letter"},
		"orders.delay.old": {"", ""},
	} {
		r, ok := c.Route(topic)
		var got [2]string
		if ok {
			got = [2]string{r.Target(topic), c.DeadLetterTopic(r)}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", topic, diff)
		}
	}
}

// Where no route has a bound no missing target goes on trial, though what waits for routes that are gone has one.
func TestConfig_leastMostMissingCountsRoutesWithABound(t *testing.T) {
	for _, tt := range []struct {
		bounds []int
		want   int
	}{{[]int{0}, 0}, {[]int{0, 50_000}, 50_000}, {[]int{300, 0, 20}, 20}} {
		c := Default()
		c.Routes = nil
		for _, bound := range tt.bounds {
			r := NewRoute("*.delay")
			r.MaxMissingTargets = bound
			c.Routes = append(c.Routes, r)
		}
		if got := c.LeastMostMissing(); got != tt.want {
			t.Errorf("bounds %v: %d, want %d", tt.bounds, got, tt.want)
		}
	}
}

func TestTargets_denyWinsOverAllow(t *testing.T) {
	targets := Targets{Allow: []string{"pay.*", "orders"}, Deny: []string{"pay.secret*"}}
	for topic, want := range map[string]bool{"orders": true, "pay.eu": true, "pay.secret.eu": false, "orders.eu": false} {
		if got := targets.Allows(topic); got != want {
			t.Errorf("%s is allowed: %v, want %v", topic, got, want)
		}
	}
	if Default().Targets.Allows("__consumer_offsets") {
		t.Error("internal topics are allowed by default")
	}
}

func TestDuration_readsDaysAndYears(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"300ms": 300 * time.Millisecond, "1h30m": 90 * time.Minute, "5m": 5 * time.Minute, "2h": 2 * time.Hour, "0s": 0,
		"7d": 7 * 24 * time.Hour, "1y": 365 * 24 * time.Hour, "100y": defaultMaxDelay,
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%s is %v, %v, want %v", text, got, err, want)
		}
		if back := FormatDuration(want); back != text {
			t.Errorf("%v is written %s, want %s", want, back, text)
		}
	}
	for _, text := range []string{"", "5", "-1s", "-1d", "1.5d", "293y", "P1Y", "soon"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestTopicName_isCheckedAsKafkaDoes(t *testing.T) {
	for _, name := range []string{"orders", "a", "Orders.EU-1_x", strings.Repeat("x", 249)} {
		if err := CheckTopicName(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a b", "a/b", "caf\u00e9", "a\n", strings.Repeat("x", 250)} {
		if err := CheckTopicName(name); err == nil {
			t.Errorf("%q passes", name)
		}
	}
}

func TestSecret_isMasked(t *testing.T) {
	if got := Secret("hunter2").String(); got != "********" {
		t.Errorf("a secret prints as %q", got)
	}
	if got := Secret("").String(); got != "" {
		t.Errorf("no secret prints as %q", got)
	}
}
