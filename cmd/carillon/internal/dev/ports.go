package dev

import (
	"fmt"
	"net"
	"strconv"

	"github.com/carillonmq/carillon/broker/config"
)

const maxPort = 65535

// A portRange is the ports that one flag takes: the first, and those that follow.
type portRange struct {
	flag        string
	first, last int
}

func (d *Cluster) ports() []portRange {
	more := d.Nodes - 1
	return []portRange{
		{"--kafka-port", d.KafkaPort, d.KafkaPort},
		{"--raft-port", d.RaftPort, d.RaftPort + more},
		{"--api-port", d.APIPort, d.APIPort + more},
	}
}

// CheckPorts refuses ports that are none, and ranges that overlap.
func (d *Cluster) CheckPorts() error {
	ranges := d.ports()
	for i, r := range ranges {
		if highest := maxPort - (r.last - r.first); r.first < 1 || r.first > highest {
			return r.wrong("use 1 to %d", highest)
		}
		for _, other := range ranges[:i] {
			if r.first <= other.last && other.first <= r.last {
				return r.wrong("its ports %d to %d overlap with %s, which takes %d to %d; choose another",
					r.first, r.last, other.flag, other.first, other.last)
			}
		}
	}
	return nil
}

// checkFree refuses ports that others use. A child would say so in terms of its own
// configuration, and another Kafka answers as well as the own one.
func (d *Cluster) checkFree() error {
	for _, r := range d.ports() {
		for port := r.first; port <= r.last; port++ {
			listener, err := net.Listen("tcp", Loopback(port))
			if err != nil {
				return fmt.Errorf("%w: %w", r.wrong("port %d cannot be used, free it or choose another", port), err)
			}
			if err := listener.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrong returns what is wrong with the ports, in terms of the flag.
func (r portRange) wrong(remedy string, args ...any) error {
	return &config.FieldError{Field: r.flag, Value: strconv.Itoa(r.first), Remedy: fmt.Sprintf(remedy, args...)}
}
