package config

import (
	"slices"
	"time"
)

// A Config is everything that can be set of a node. It does not change while the
// node runs. The tags name the keys of the configuration file and say what each
// is for; configs/carillon.yaml has them all with units and consequences.
type Config struct {
	Node       Node       `yaml:"node"`
	Cluster    Cluster    `yaml:"cluster"`
	Raft       Raft       `yaml:"raft"`
	Clock      Clock      `yaml:"clock"`
	API        API        `yaml:"api"`
	Kafka      Kafka      `yaml:"kafka"`
	Routes     []Route    `yaml:"routes" help:"which topics are delay topics, and how their messages are delivered; first match wins"`
	Delivery   string     `yaml:"delivery" help:"at-least-once"`
	Targets    Targets    `yaml:"targets"`
	DeadLetter DeadLetter `yaml:"dead_letter"`
	Outcomes   Outcomes   `yaml:"outcomes"`
	Log        Log        `yaml:"log"`
}

// A Node says who this node is.
type Node struct {
	ID      string `yaml:"id" help:"which of cluster.members this node is; can be left out when there is one"`
	DataDir string `yaml:"data_dir" help:"folder of everything the node stores"`
}

// A Cluster is the same on all nodes.
type Cluster struct {
	Name      string   `yaml:"name" help:"name of the cluster, checked against the data folder"`
	Bootstrap bool     `yaml:"bootstrap" help:"this is a new cluster: found it when all members are empty"`
	Members   []Member `yaml:"members" help:"every node of the cluster with its addresses"`
	// RaiseAfter 0: never.
	RaiseAfter time.Duration `yaml:"raise_after" help:"raise the feature level when all members have understood a higher one for this long; 0s: carillon cluster raise does"`
}

// A Member is one node as the others reach it; host names are resolved at dial time.
type Member struct {
	ID   string `yaml:"id"`
	Raft string `yaml:"raft"`
	API  string `yaml:"api"`
}

// A Raft sets replication among the members.
type Raft struct {
	Listen               string        `yaml:"listen" help:"address to listen on for Raft; empty: the member entry of this node"`
	Heartbeat            time.Duration `yaml:"heartbeat" help:"a leader that is silent for this long is replaced"`
	Log                  string        `yaml:"log" help:"wal or boltdb"`
	TLS                  RaftTLS       `yaml:"tls"`
	AllowUnauthenticated bool          `yaml:"allow_unauthenticated" help:"listen for Raft off loopback although nothing authenticates the peers"`
}

// A RaftTLS holds names of PEM files, of which a running node takes changes.
type RaftTLS struct {
	Cert     string `yaml:"cert" help:"PEM file of the certificate that this node shows to the others, and what signed it; empty: no TLS"`
	Key      string `yaml:"key" help:"PEM file of the certificate's key"`
	CA       string `yaml:"ca" help:"PEM file of the authorities that sign the certificates of the nodes"`
	Optional bool   `yaml:"optional" help:"take peers without TLS as well, and reach those without it that have none: while it is brought in"`
}

// A Clock says how far the clocks of the nodes may differ.
type Clock struct {
	MaxSkew time.Duration `yaml:"max_skew" help:"a node whose clock is further than this from the median of the members does not lead"`
}

// An API sets the HTTP listener: health, metrics, status.
type API struct {
	Listen               string `yaml:"listen" help:"address to listen on for HTTP; empty: the member entry of this node"`
	Tokens               string `yaml:"tokens" help:"file of those who may use the API, kept by carillon token; empty: anybody may who reaches it"`
	OIDC                 OIDC   `yaml:"oidc"`
	TLS                  APITLS `yaml:"tls"`
	AllowUnauthenticated bool   `yaml:"allow_unauthenticated" help:"let anybody in who reaches the HTTP listener and shows no token, also off loopback"`
}

// OIDC says which tokens of another system count as well, and what they allow.
type OIDC struct {
	Issuer    string     `yaml:"issuer" help:"URL of the issuer whose tokens (JWTs) count for the API as well, as they name it; empty: none"`
	Audience  string     `yaml:"audience" help:"what its tokens must be for, by their claim aud"`
	CA        string     `yaml:"ca" help:"PEM file of the authorities that sign the issuer's certificate; empty: the system's"`
	NameClaim string     `yaml:"name_claim" help:"claim that says who has a token, for the log"`
	RoleClaim string     `yaml:"role_claim" help:"claim that the roles go by, a text or a list of texts; by dots within others, as realm_access.roles"`
	Roles     []OIDCRole `yaml:"roles" help:"what each value of that claim allows; the first that the claim has counts"`
}

// An OIDCRole is what a value of the claim allows; patterns as of a token, nil for all.
type OIDCRole struct {
	Value       string   `yaml:"value"`
	Role        string   `yaml:"role"`
	ReadPayload bool     `yaml:"read_payload"`
	Topics      []string `yaml:"topics"`
	Targets     []string `yaml:"targets"`
}

// An APITLS holds names of PEM files, of which a running node takes changes.
type APITLS struct {
	Cert     string `yaml:"cert" help:"PEM file of the certificate that the API shows, and what signed it; empty: no TLS"`
	Key      string `yaml:"key" help:"PEM file of the certificate's key"`
	CA       string `yaml:"ca" help:"PEM file of the authorities that sign the certificates of the other nodes' APIs; empty: the system's"`
	ClientCA string `yaml:"client_ca" help:"PEM file of the authorities that sign the certificates of callers; empty: they need none"`
	Optional bool   `yaml:"optional" help:"take requests without TLS as well, and ask nodes without it that have none: while it is brought in"`
}

// A Kafka says how to reach Kafka and how to write to it.
type Kafka struct {
	Brokers     []string `yaml:"brokers" help:"addresses of some brokers, host:port; name several, since a node that starts or takes over finds Kafka by one that answers"`
	Compression string   `yaml:"compression" help:"compression of what is written: none, which every client reads, gzip, snappy, lz4 or zstd"`
	TLS         TLS      `yaml:"tls"`
	SASL        SASL     `yaml:"sasl"`
}

// A TLS holds names of PEM files.
type TLS struct {
	Enabled bool   `yaml:"enabled" help:"speak TLS with the brokers"`
	CA      string `yaml:"ca" help:"PEM file of the authorities that sign the brokers' certificates; empty: the system's"`
	Cert    string `yaml:"cert" help:"PEM file of the client certificate"`
	Key     string `yaml:"key" help:"PEM file of the client certificate's key"`
}

// A SASL says how to log in to Kafka; an empty Mechanism means not at all.
type SASL struct {
	Mechanism string `yaml:"mechanism" help:"plain, scram-256 or scram-512; empty: none"`
	Username  string `yaml:"username" help:"user name"`
	Password  Secret `yaml:"password" help:"password; no flag, which every user of the machine could read"`
}

// A Targets says by patterns which topics messages may be delivered to.
type Targets struct {
	Allow []string `yaml:"allow" help:"patterns of topics that messages may be delivered to"`
	Deny  []string `yaml:"deny" help:"patterns of topics that they may not; wins over allow"`
}

// A DeadLetter says where messages go that cannot be delivered.
type DeadLetter struct {
	Topic string `yaml:"topic" help:"topic of messages that cannot be delivered; created when missing"`
}

// Outcomes bounds what is remembered of messages with an id that have ended. The leader's
// values count.
type Outcomes struct {
	Keep time.Duration `yaml:"keep" help:"how long it is known what became of a message with an id, after it ended"`
	Max  int           `yaml:"max" help:"of how many messages at most; beyond them the oldest are forgotten earlier"`
}

// A Log sets what the node writes to standard error.
type Log struct {
	Level  string `yaml:"level" help:"debug, info, warn or error"`
	Format string `yaml:"format" help:"text or json"`
}

// A Secret never shows in a log or in a printed configuration.
type Secret string

// String returns asterisks in place of the secret, whatever its length.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "********"
}

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// Default returns what holds for every key that is not set: a cluster of one
// node on loopback beside a Kafka on loopback.
func Default() Config {
	return Config{
		Node: Node{DataDir: "./data"},
		Cluster: Cluster{
			Name:    "carillon",
			Members: []Member{{ID: "n1", Raft: "127.0.0.1:7301", API: "127.0.0.1:7401"}},
		},
		Raft:       Raft{Heartbeat: 300 * time.Millisecond, Log: "wal"},
		Clock:      Clock{MaxSkew: 500 * time.Millisecond},
		API:        API{OIDC: OIDC{NameClaim: "sub", RoleClaim: "groups", Roles: []OIDCRole{}}},
		Kafka:      Kafka{Brokers: []string{"127.0.0.1:9092"}, Compression: "none"},
		Routes:     []Route{NewRoute("*" + delaySuffix)},
		Delivery:   AtLeastOnce,
		Targets:    Targets{Allow: []string{"*"}, Deny: []string{"__*"}},
		DeadLetter: DeadLetter{Topic: "carillon.dead-letter"},
		Outcomes:   Outcomes{Keep: 24 * time.Hour, Max: 1_000_000},
		Log:        Log{Level: "info", Format: "text"},
	}
}

// AtLeastOnce is the delivery mode in which a crash can repeat a message.
const AtLeastOnce = "at-least-once"

// Resolved returns the configuration with what one key takes from another filled
// in: the id of the only member, and the addresses to listen on.
func (c Config) Resolved() Config {
	if c.Node.ID == "" && len(c.Cluster.Members) == 1 {
		c.Node.ID = c.Cluster.Members[0].ID
	}
	self, _ := c.Self()
	if c.Raft.Listen == "" {
		c.Raft.Listen = self.Raft
	}
	if c.API.Listen == "" {
		c.API.Listen = self.API
	}
	return c
}

// Self returns the member entry of this node, and whether there is one.
func (c Config) Self() (Member, bool) {
	i := slices.IndexFunc(c.Cluster.Members, func(m Member) bool { return m.ID == c.Node.ID })
	if i < 0 {
		return Member{}, false
	}
	return c.Cluster.Members[i], true
}

// Route returns the first route that matches the topic, and whether there is one.
func (c Config) Route(topic string) (Route, bool) {
	i := slices.IndexFunc(c.Routes, func(r Route) bool { return r.Matches(topic) })
	if i < 0 {
		return Route{}, false
	}
	return c.Routes[i], true
}

// RouteOfPending returns the route of a message that waits: as Route, or, when the route
// of its delay topic has left the configuration meanwhile, one with the default values.
func (c Config) RouteOfPending(topic string) Route {
	if r, ok := c.Route(topic); ok {
		return r
	}
	return NewRoute(topic)
}

// MaxDelay is the longest that any route allows. What waits though its route is gone, or has another bound by
// now, may be due later.
func (c Config) MaxDelay() (longest time.Duration) {
	for _, r := range c.Routes {
		longest = max(longest, r.MaxDelay)
	}
	return longest
}

// LeastMissingTimeout is the shortest time for which any message waits for a target.
func (c Config) LeastMissingTimeout() time.Duration {
	least := NewRoute("").MissingTargetTimeout // of what waits though its route is gone
	for _, r := range c.Routes {
		least = min(least, r.MissingTargetTimeout)
	}
	return least
}

// LeastMostMissing is the least bound of missing targets that any route has, or 0 if none has one. What
// waits though its route is gone does not count: nobody could turn its bound off.
func (c Config) LeastMostMissing() (least int) {
	for _, r := range c.Routes {
		if r.MaxMissingTargets > 0 && (least == 0 || r.MaxMissingTargets < least) {
			least = r.MaxMissingTargets
		}
	}
	return least
}

// Authenticates reports whether callers are known by tokens.
func (a API) Authenticates() bool { return a.Tokens != "" || a.OIDC.Issuer != "" }

// IsDelayTopic reports whether a route matches the topic.
func (c Config) IsDelayTopic(topic string) bool {
	_, ok := c.Route(topic)
	return ok
}

// DeadLetterTopic returns where messages of the route go that cannot be delivered.
func (c Config) DeadLetterTopic(r Route) string {
	if r.DeadLetter != "" {
		return r.DeadLetter
	}
	return c.DeadLetter.Topic
}

// takesDeadLetters reports whether the topic is a dead-letter topic, of all routes or
// of one.
func (c Config) takesDeadLetters(topic string) bool {
	return topic == c.DeadLetter.Topic || slices.ContainsFunc(c.Routes, func(r Route) bool { return r.DeadLetter == topic })
}

// DeadLetterTopics returns every topic that dead letters may go to.
func (c Config) DeadLetterTopics() []string {
	topics := []string{c.DeadLetter.Topic}
	for _, route := range c.Routes {
		topics = append(topics, c.DeadLetterTopic(route))
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}
