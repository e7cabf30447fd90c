package main

import "testing"

func TestDev_refusesPortsThatCannotBe(t *testing.T) {
	for _, test := range []struct {
		dev  dev
		want string // "": nothing is wrong
	}{
		{dev{nodes: 3, kafkaPort: 9092, raftPort: 7301, apiPort: 7401}, ""},
		{dev{nodes: 3, kafkaPort: 1, raftPort: 65530, apiPort: 65533}, ""},
		{dev{nodes: 1, kafkaPort: 65535, raftPort: 65533, apiPort: 65534}, ""},
		{dev{nodes: 1, kafkaPort: 0, raftPort: 7301, apiPort: 7401}, `--kafka-port is "0": use 1 to 65535`},
		{dev{nodes: 1, kafkaPort: 70000, raftPort: 7301, apiPort: 7401}, `--kafka-port is "70000": use 1 to 65535`},
		{dev{nodes: 1, kafkaPort: 9092, raftPort: -1, apiPort: 7401}, `--raft-port is "-1": use 1 to 65535`},
		{dev{nodes: 3, kafkaPort: 9092, raftPort: 7301, apiPort: 65534}, `--api-port is "65534": use 1 to 65533`},
		{dev{nodes: 3, kafkaPort: 9092, raftPort: 7301, apiPort: 7303},
			`--api-port is "7303": its ports 7303 to 7305 overlap with --raft-port, which takes 7301 to 7303; choose another`},
		{dev{nodes: 3, kafkaPort: 9092, raftPort: 7403, apiPort: 7401},
			`--api-port is "7401": its ports 7401 to 7403 overlap with --raft-port, which takes 7403 to 7405; choose another`},
		{dev{nodes: 3, kafkaPort: 7302, raftPort: 7301, apiPort: 7401},
			`--raft-port is "7301": its ports 7301 to 7303 overlap with --kafka-port, which takes 7302 to 7302; choose another`},
	} {
		got := ""
		if err := test.dev.checkPorts(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v:\n got %s\nwant %s", test.dev, got, test.want)
		}
	}
}
