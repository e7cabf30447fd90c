package main

import (
	"fmt"
	"strconv"

	"github.com/carillonmq/carillon/broker"
)

const maxPort = 65535

// A portRange is the ports that one flag takes: the first, and those that follow.
type portRange struct {
	flag        string
	first, last int
}

// checkPorts refuses ports that are none, and ranges that overlap.
func (d *dev) checkPorts() error {
	more := d.nodes - 1
	ranges := []portRange{
		{"--kafka-port", d.kafkaPort, d.kafkaPort},
		{"--raft-port", d.raftPort, d.raftPort + more},
		{"--api-port", d.apiPort, d.apiPort + more},
	}
	for i, r := range ranges {
		if highest := maxPort - (r.last - r.first); r.first < 1 || r.first > highest {
			return r.mistake("use 1 to %d", highest)
		}
		for _, other := range ranges[:i] {
			if r.first <= other.last && other.first <= r.last {
				return r.mistake("its ports %d to %d overlap with %s, which takes %d to %d; choose another",
					r.first, r.last, other.flag, other.first, other.last)
			}
		}
	}
	return nil
}

func (r portRange) mistake(remedy string, args ...any) error {
	return &usageError{&broker.FieldError{Field: r.flag, Value: strconv.Itoa(r.first), Remedy: fmt.Sprintf(remedy, args...)}}
}
