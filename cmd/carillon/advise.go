package main

import (
	"errors"
	"fmt"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// sameDisk is what else helps a node whose disk is gone. An older copy of the disk has forgotten votes and entries that
// others count on: such a node may have the cluster lose what it has acknowledged.
const sameDisk = "mount the same disk again, never an older copy of it"

// restore says what to do about a data directory that is damaged, of a node of a cluster
// of so many members. Where it has others, they have what it has lost. An id that is not
// known is empty.
func restore(id string, members int) string {
	switch {
	case id == "":
		return sameDisk + "; or, if the cluster has other members, empty the directory and run `carillon cluster replace` with the id of this one"
	case members == 1:
		return sameDisk + ", unless nothing else is left: it delivers again what was delivered since, and lacks what came since"
	}
	return sameDisk + ", or empty the directory and run `carillon cluster replace " + id + "`"
}

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
			return fmt.Errorf("%w: %s against one of the others; if a majority of the members has lost its disks, nothing replaces them: mount the same disks again", err, replace)
		case errors.Is(err, member.ErrReplaced):
			return fmt.Errorf("%w: stop this node, empty the directory and start it again, it joins and copies the schedule", err)
		case errors.Is(err, raftfsm.ErrDamaged), errors.Is(err, storage.ErrCorrupt):
			return fmt.Errorf("%w: %s", err, restore(c.Node.ID, len(c.Cluster.Members)))
		case errors.Is(err, member.ErrOtherLog), errors.Is(err, node.ErrNoRoomToReceive):
			return fmt.Errorf("%w%s", err, orReplace)
		}
		return err
	}
}
