package dev

import "testing"

func TestDev_refusesPortsThatCannotBe(t *testing.T) {
	for _, test := range []struct {
		dev  *Cluster
		want string // "": nothing is wrong
	}{
		{&Cluster{Nodes: 3, KafkaPort: 9092, RaftPort: 7301, APIPort: 7401}, ""},
		{&Cluster{Nodes: 3, KafkaPort: 1, RaftPort: 65530, APIPort: 65533}, ""},
		{&Cluster{Nodes: 1, KafkaPort: 65535, RaftPort: 65533, APIPort: 65534}, ""},
		{&Cluster{Nodes: 1, KafkaPort: 0, RaftPort: 7301, APIPort: 7401}, `--kafka-port is "0": use 1 to 65535`},
		{&Cluster{Nodes: 1, KafkaPort: 70000, RaftPort: 7301, APIPort: 7401}, `--kafka-port is "70000": use 1 to 65535`},
		{&Cluster{Nodes: 1, KafkaPort: 9092, RaftPort: -1, APIPort: 7401}, `--raft-port is "-1": use 1 to 65535`},
		{&Cluster{Nodes: 3, KafkaPort: 9092, RaftPort: 7301, APIPort: 65534}, `--api-port is "65534": use 1 to 65533`},
		{&Cluster{Nodes: 3, KafkaPort: 9092, RaftPort: 7301, APIPort: 7303},
			`--api-port is "7303": its ports 7303 to 7305 overlap with --raft-port, which takes 7301 to 7303; choose another`},
		{&Cluster{Nodes: 3, KafkaPort: 9092, RaftPort: 7403, APIPort: 7401},
			`--api-port is "7401": its ports 7401 to 7403 overlap with --raft-port, which takes 7403 to 7405; choose another`},
		{&Cluster{Nodes: 3, KafkaPort: 7302, RaftPort: 7301, APIPort: 7401},
			`--raft-port is "7301": its ports 7301 to 7303 overlap with --kafka-port, which takes 7302 to 7302; choose another`},
	} {
		got := ""
		if err := test.dev.CheckPorts(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v:\n got %s\nwant %s", test.dev.ports(), got, test.want)
		}
	}
}
