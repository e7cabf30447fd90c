package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A FieldError says what is wrong with one key of the configuration.
type FieldError struct {
	Field  string // the key, such as raft.heartbeat or routes[0].to
	Value  string // as it was given
	Remedy string // why it cannot be, and what can
}

// Error returns field, value and remedy in one line.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %q: %s", e.Field, e.Value, e.Remedy)
}

// Validate returns everything that is wrong with the configuration, each problem
// a *FieldError, joined; nil when there is nothing. It wants a resolved one.
func (c Config) Validate() error {
	var p problems
	p.checkNode(c)
	p.checkMembers(c.Cluster)
	p.checkListeners(c)
	raft := c.Raft.TLS
	p.checkServes("raft.tls", raft.Cert, raft.Key, raft.CA != "" || raft.Optional)
	if raft.Cert != "" && raft.CA == "" {
		p.add("raft.tls.ca", "", "raft.tls.cert is set; name who signs the certificates of the nodes, an authority of their own rather than one that signs for others too")
	}
	api := c.API.TLS
	p.checkServes("api.tls", api.Cert, api.Key, api.CA != "" || api.ClientCA != "" || api.Optional)
	p.checkOIDC(c.API.OIDC)
	p.checkKafka(c.Kafka)
	p.checkRoutes(c)
	if len(c.Targets.Allow) == 0 {
		p.add("targets.allow", "[]", `nothing could be delivered; give at least one pattern, such as "*"`)
	}
	p.checkPatterns("targets.allow", c.Targets.Allow)
	p.checkPatterns("targets.deny", c.Targets.Deny)
	p.checkTopic("dead_letter.topic", c.DeadLetter.Topic, c)
	p.checkOutcomes(c.Outcomes)
	p.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	p.oneOf("log.format", c.Log.Format, "text", "json")
	if c.Delivery == "exactly-once" {
		p.add("delivery", c.Delivery, "it is not built yet; use at-least-once")
	} else {
		p.oneOf("delivery", c.Delivery, AtLeastOnce)
	}
	return errors.Join(p...)
}

// problems gathers what Validate finds.
type problems []error

func (p *problems) add(field, value, remedy string, args ...any) {
	*p = append(*p, &FieldError{Field: field, Value: value, Remedy: fmt.Sprintf(remedy, args...)})
}

func (p *problems) oneOf(field, value string, choices ...string) {
	if !slices.Contains(choices, value) {
		last := len(choices) - 1
		p.add(field, value, "use %s", strings.TrimPrefix(strings.Join(choices[:last], ", ")+" or "+choices[last], " or "))
	}
}

// nodeID leaves out @, which separates a member's id from its incarnation in Raft ids.
var nodeID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const (
	minHeartbeat = 20 * time.Millisecond
	maxHeartbeat = 10 * time.Minute
	// minRaiseAfter outlasts the restarts of a rolling upgrade.
	minRaiseAfter = 10 * time.Minute
	// minSkew is a few times what a comparison of clocks over a network is wrong by.
	minSkew = 10 * time.Millisecond
	maxSkew = time.Hour
	// minKeep outlasts what follows at once on a delivery; maxKeep is as long as a delay may be.
	minKeep = time.Second
	maxKeep = defaultMaxDelay
	// mostOutcomes take 7 GB of memory on each node, and as many keys as well.
	mostOutcomes = 100_000_000
)

func (p *problems) checkNode(c Config) {
	if _, ok := c.Self(); !ok {
		ids := make([]string, len(c.Cluster.Members))
		for i, m := range c.Cluster.Members {
			ids[i] = m.ID
		}
		p.add("node.id", c.Node.ID, "cluster.members has no such id; use one of %s", strings.Join(ids, ", "))
	}
	if c.Node.DataDir == "" {
		p.add("node.data_dir", "", "name a folder, it is created when missing")
	}
	if !nodeID.MatchString(c.Cluster.Name) {
		p.add("cluster.name", c.Cluster.Name, "use 1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit first")
	}
	if after := c.Cluster.RaiseAfter; after != 0 && after < minRaiseAfter {
		p.add("cluster.raise_after", FormatDuration(after), "there is no way back from it: use at least %v, or 0s to leave it to `carillon cluster raise`", FormatDuration(minRaiseAfter))
	}
	if c.Raft.Heartbeat < minHeartbeat || c.Raft.Heartbeat > maxHeartbeat {
		p.add("raft.heartbeat", FormatDuration(c.Raft.Heartbeat), "use %v to %v", minHeartbeat, FormatDuration(maxHeartbeat))
	}
	if c.Clock.MaxSkew < minSkew || c.Clock.MaxSkew > maxSkew {
		p.add("clock.max_skew", FormatDuration(c.Clock.MaxSkew), "use %v to %v", minSkew, FormatDuration(maxSkew))
	}
	p.oneOf("raft.log", c.Raft.Log, "wal", "boltdb")
}

func (p *problems) checkOutcomes(c Outcomes) {
	if c.Keep < minKeep || c.Keep > maxKeep {
		p.add("outcomes.keep", FormatDuration(c.Keep), "use %v to %v", minKeep, FormatDuration(maxKeep))
	}
	if c.Max < 1 || c.Max > mostOutcomes {
		p.add("outcomes.max", strconv.Itoa(c.Max), "use 1 to %d; each takes some 70 bytes of memory on every node", mostOutcomes)
	}
}

func (p *problems) checkMembers(c Cluster) {
	if len(c.Members) == 0 {
		p.add("cluster.members", "[]", "list every node of the cluster, at least this one")
	}
	seen := map[string]string{} // id or address -> the field that has it
	once := func(field, value string) {
		if other, ok := seen[value]; ok {
			p.add(field, value, "%s has it already; give every member its own", other)
		}
		seen[value] = field
	}
	for i, m := range c.Members {
		field := fmt.Sprintf("cluster.members[%d]", i)
		if !nodeID.MatchString(m.ID) {
			p.add(field+".id", m.ID, "use 1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit first")
		}
		once(field+".id", m.ID)
		p.checkAddress(field+".raft", m.Raft)
		once(field+".raft", m.Raft)
		p.checkAddress(field+".api", m.API)
		once(field+".api", m.API)
	}
}

// checkAddress wants an address that can be dialled.
func (p *problems) checkAddress(field, address string) {
	host, port, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || n == 0 || host == "" {
		p.add(field, address, "write host:port, the port 1 to 65535")
	}
}

// checkListeners is silent for a node that is no member: its addresses have no
// default, and checkNode has said why.
func (p *problems) checkListeners(c Config) {
	if _, ok := c.Self(); !ok {
		return
	}
	p.checkListener(listener{"raft", "127.0.0.1:7301", "name a certificate for raft.tls and no raft.tls.optional, listen on 127.0.0.1"}, c.Raft.Listen,
		c.Raft.TLS.Cert != "" && !c.Raft.TLS.Optional || c.Raft.AllowUnauthenticated)
	p.checkListener(listener{"api", "127.0.0.1:7401", "name a file for api.tokens, listen on 127.0.0.1"}, c.API.Listen, c.API.Authenticates() || c.API.AllowUnauthenticated)
}

// checkPair wants a certificate with its key.
func (p *problems) checkPair(section, cert, key string) {
	if cert != "" && key == "" {
		p.add(section+".key", "", "%s.cert is set; name its key too", section)
	}
	if key != "" && cert == "" {
		p.add(section+".cert", "", "%s.key is set; name its certificate too", section)
	}
}

// checkServes wants a certificate of a listener where other keys of its section are set.
func (p *problems) checkServes(section, cert, key string, others bool) {
	p.checkPair(section, cert, key)
	if others && cert == "" && key == "" {
		p.add(section+".cert", "", "other keys of %s are set, which only TLS reads; name the certificate of this node, and its key", section)
	}
}

// A listener is one of a node: the section of its keys, an address as it may have, and
// what to do about one that lets everybody in.
type listener struct{ section, example, remedy string }

func (p *problems) checkListener(l listener, address string, allowed bool) {
	host, port, err := net.SplitHostPort(address)
	if _, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil {
		p.add(l.section+".listen", address, "write host:port, such as %s; an empty host listens on all addresses", l.example)
		return
	}
	if !IsLoopback(host) && !allowed {
		p.add(l.section+".listen", address, "it can be reached from other machines and nothing authenticates them;"+
			" %s, or say %s.allow_unauthenticated: true where the network is trusted", l.remedy, l.section)
	}
}

// IsLoopback reports whether the host is reached from this machine alone: localhost,
// 127.0.0.0/8 or ::1. It looks no name up.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

func (p *problems) checkKafka(c Kafka) {
	if len(c.Brokers) == 0 {
		p.add("kafka.brokers", "[]", "name at least one broker, host:port")
	}
	for i, address := range c.Brokers {
		p.checkAddress(fmt.Sprintf("kafka.brokers[%d]", i), address)
	}
	p.oneOf("kafka.compression", c.Compression, "none", "gzip", "snappy", "lz4", "zstd")
	if file := cmp.Or(c.TLS.CA, c.TLS.Cert, c.TLS.Key); file != "" && !c.TLS.Enabled {
		p.add("kafka.tls.enabled", "false", "%s is named, which only TLS reads; say true", file)
	}
	p.checkPair("kafka.tls", c.TLS.Cert, c.TLS.Key)
	p.checkSASL(c.SASL)
}

func (p *problems) checkSASL(c SASL) {
	if c.Mechanism == "" {
		if c.Username != "" || c.Password != "" {
			p.add("kafka.sasl.mechanism", "", "a user name or password is set; use plain, scram-256 or scram-512")
		}
		return
	}
	p.oneOf("kafka.sasl.mechanism", c.Mechanism, "plain", "scram-256", "scram-512")
	if c.Username == "" {
		p.add("kafka.sasl.username", "", "kafka.sasl.mechanism is %s; give the user name too", c.Mechanism)
	}
	if c.Password == "" {
		p.add("kafka.sasl.password", "", "kafka.sasl.mechanism is %s; give the password too", c.Mechanism)
	}
}

func (p *problems) checkRoutes(c Config) {
	if len(c.Routes) == 0 {
		p.add("routes", "[]", `give at least one, such as {from: "*.delay"}`)
	}
	for i, r := range c.Routes {
		field := fmt.Sprintf("routes[%d]", i)
		p.checkPatterns(field+".from", []string{r.From})
		if r.To == "" && !strings.HasSuffix(r.From, delaySuffix) {
			p.add(field+".from", r.From, "it does not end in %s, so the target has no default; give %s.to", delaySuffix, field)
		}
		if r.To != "" {
			p.checkTopic(field+".to", r.To, c)
			if why, remedy := c.Targets.objection(r.To); why != "" && CheckTopicName(r.To) == nil {
				p.add(field+".to", r.To, "%s; %s, or choose another target", why, remedy)
			}
			if c.takesDeadLetters(r.To) {
				p.add(field+".to", r.To, "dead letters go there, by dead_letter; choose a topic of its own")
			}
		}
		if r.MaxMissingTargets < 0 {
			p.add(field+".max_missing_targets", strconv.Itoa(r.MaxMissingTargets), "give a number of topics, 0 for no bound, or leave it out for %d", defaultMaxMissing)
		}
		if r.MaxDelay <= 0 {
			p.add(field+".max_delay", FormatDuration(r.MaxDelay), "give a duration above zero, or leave it out for %s", FormatDuration(defaultMaxDelay))
		}
		if r.Start != "" {
			p.oneOf(field+".start", r.Start, StartEarliest, StartLatest)
		}
		if r.DeadLetter != "" {
			p.checkTopic(field+".dead_letter", r.DeadLetter, c)
		}
	}
}

// checkTopic wants a topic that messages can be written to: one that a route reads
// from would bring them back.
func (p *problems) checkTopic(field, topic string, c Config) {
	if err := CheckTopicName(topic); err != nil {
		p.add(field, topic, "%v", err)
		return
	}
	if r, ok := c.Route(topic); ok {
		p.add(field, topic, "it is a delay topic, routes[].from %q matches it; choose a topic that no route reads", r.From)
	}
}

func (p *problems) checkPatterns(field string, patterns []string) {
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			p.add(field, pattern, `write a pattern over topic names, such as "*.delay"; * ? and [abc] have a meaning`)
		} else if strings.ContainsFunc(pattern, unicode.IsSpace) { // one of targets.deny would deny nothing
			p.add(field, pattern, "no topic has a blank in its name, so it matches none; take the blanks out")
		}
	}
}
