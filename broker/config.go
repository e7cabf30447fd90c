package broker

import (
	"slices"
	"time"
)

// A Config is everything that can be set of a node. It does not change while the
// node runs. The tags name the keys of the configuration file and say what each
// is for; configs/carillon.yaml has them all with units and consequences.
type Config struct {
	Node       NodeConfig       `mapstructure:"node"`
	Cluster    ClusterConfig    `mapstructure:"cluster"`
	Raft       RaftConfig       `mapstructure:"raft"`
	API        APIConfig        `mapstructure:"api"`
	Kafka      KafkaConfig      `mapstructure:"kafka"`
	Routes     []Route          `mapstructure:"routes" help:"which topics are delay topics, and how their messages are delivered; first match wins"`
	Delivery   string           `mapstructure:"delivery" help:"at-least-once"`
	Targets    TargetsConfig    `mapstructure:"targets"`
	DeadLetter DeadLetterConfig `mapstructure:"dead_letter"`
	Log        LogConfig        `mapstructure:"log"`
}

// A NodeConfig says who this node is.
type NodeConfig struct {
	ID      string `mapstructure:"id" help:"which of cluster.members this node is; can be left out when there is one"`
	DataDir string `mapstructure:"data_dir" help:"folder of everything the node stores"`
}

// A ClusterConfig is the same on all nodes.
type ClusterConfig struct {
	Name      string   `mapstructure:"name" help:"name of the cluster, checked against the data folder"`
	Bootstrap bool     `mapstructure:"bootstrap" help:"this is a new cluster: found it when all members are empty"`
	Members   []Member `mapstructure:"members" help:"every node of the cluster with its addresses"`
}

// A Member is one node as the others reach it; host names are resolved at dial time.
type Member struct {
	ID   string `mapstructure:"id" yaml:"id"`
	Raft string `mapstructure:"raft" yaml:"raft"`
	API  string `mapstructure:"api" yaml:"api"`
}

// A RaftConfig sets replication among the members.
type RaftConfig struct {
	Listen               string        `mapstructure:"listen" help:"address to listen on for Raft; empty: the member entry of this node"`
	Heartbeat            time.Duration `mapstructure:"heartbeat" help:"a leader that is silent for this long is replaced"`
	Log                  string        `mapstructure:"log" help:"wal or boltdb"`
	AllowUnauthenticated bool          `mapstructure:"allow_unauthenticated" help:"listen for Raft off loopback although nothing authenticates the peers"`
}

// An APIConfig sets the HTTP listener: health, metrics, status.
type APIConfig struct {
	Listen               string `mapstructure:"listen" help:"address to listen on for HTTP; empty: the member entry of this node"`
	AllowUnauthenticated bool   `mapstructure:"allow_unauthenticated" help:"listen for HTTP off loopback although nothing authenticates the callers"`
}

// A KafkaConfig says how to reach Kafka.
type KafkaConfig struct {
	Brokers []string   `mapstructure:"brokers" help:"addresses of some brokers, host:port"`
	TLS     TLSConfig  `mapstructure:"tls"`
	SASL    SASLConfig `mapstructure:"sasl"`
}

// A TLSConfig holds names of PEM files.
type TLSConfig struct {
	Enabled bool   `mapstructure:"enabled" help:"speak TLS with the brokers"`
	CA      string `mapstructure:"ca" help:"PEM file of the authorities that sign the brokers' certificates; empty: the system's"`
	Cert    string `mapstructure:"cert" help:"PEM file of the client certificate"`
	Key     string `mapstructure:"key" help:"PEM file of the client certificate's key"`
}

// A SASLConfig says how to log in to Kafka; an empty Mechanism means not at all.
type SASLConfig struct {
	Mechanism string `mapstructure:"mechanism" help:"plain, scram-256 or scram-512; empty: none"`
	Username  string `mapstructure:"username" help:"user name"`
	Password  Secret `mapstructure:"password" help:"password; better given as a variable than as a flag"`
}

// A TargetsConfig says by patterns which topics messages may be delivered to.
type TargetsConfig struct {
	Allow []string `mapstructure:"allow" help:"patterns of topics that messages may be delivered to"`
	Deny  []string `mapstructure:"deny" help:"patterns of topics that they may not; wins over allow"`
}

// A DeadLetterConfig says where messages go that cannot be delivered.
type DeadLetterConfig struct {
	Topic string `mapstructure:"topic" help:"topic of messages that cannot be delivered; created when missing"`
}

// A LogConfig sets what the node writes to standard error.
type LogConfig struct {
	Level  string `mapstructure:"level" help:"debug, info, warn or error"`
	Format string `mapstructure:"format" help:"text or json"`
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

// DefaultConfig returns what holds for every key that is not set: a cluster of one
// node on loopback beside a Kafka on loopback.
func DefaultConfig() Config {
	return Config{
		Node: NodeConfig{DataDir: "./data"},
		Cluster: ClusterConfig{
			Name:    "carillon",
			Members: []Member{{ID: "n1", Raft: "127.0.0.1:7301", API: "127.0.0.1:7401"}},
		},
		Raft:       RaftConfig{Heartbeat: 300 * time.Millisecond, Log: "wal"},
		Kafka:      KafkaConfig{Brokers: []string{"127.0.0.1:9092"}},
		Routes:     []Route{NewRoute("*" + delaySuffix)},
		Delivery:   AtLeastOnce,
		Targets:    TargetsConfig{Allow: []string{"*"}, Deny: []string{"__*"}},
		DeadLetter: DeadLetterConfig{Topic: "carillon.dead-letter"},
		Log:        LogConfig{Level: "info", Format: "text"},
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

// DeadLetterTopic returns where messages of the route go that cannot be delivered.
func (c Config) DeadLetterTopic(r Route) string {
	if r.DeadLetter != "" {
		return r.DeadLetter
	}
	return c.DeadLetter.Topic
}
