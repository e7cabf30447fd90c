package main

import (
	"errors"
	"fmt"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
)

// advise returns what adds to a node's error what the user is to do about it. Where
// other members have what the node has lost, that is one of our commands.
func advise(c config.Config) func(error) error {
	replace := "run `carillon cluster replace " + c.Node.ID + "`"
	orReplace := ", or empty the directory and " + replace
	if len(c.Cluster.Members) == 1 {
		orReplace = ""
	}
	return func(err error) error {
		switch {
		case errors.Is(err, member.ErrOtherDisk):
			return fmt.Errorf("%w: %s against one of the others; if a majority of the members has lost its disks, nothing replaces them: restore the disks", err, replace)
		case errors.Is(err, member.ErrReplaced):
			return fmt.Errorf("%w: stop this node, empty the directory and start it again, it joins and copies the schedule", err)
		case errors.Is(err, raftfsm.ErrDamaged):
			return fmt.Errorf("%w: restore it%s", err, orReplace)
		case errors.Is(err, member.ErrOtherLog), errors.Is(err, node.ErrNoRoomToReceive):
			return fmt.Errorf("%w%s", err, orReplace)
		}
		return err
	}
}
