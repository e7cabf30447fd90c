package node

import "errors"

var (
	// ErrNoTarget says that no other voter is there to take leadership.
	ErrNoTarget = errors.New("no member to hand leadership to")
	// ErrNoRoomToReceive says that this node cannot catch up for lack of room.
	ErrNoRoomToReceive = errors.New("this node is too far behind for the log, and the snapshot that the leader sends has no room beside the schedule here, which stays until the new one is whole")
	// errRefused says that a snapshot is not taken.
	errRefused = errors.New("snapshot refused")
	// errNoGreeting says that something else than a node has connected.
	errNoGreeting = errors.New("no greeting")
	// errNotWritten says that a follower could not write what it was sent.
	errNotWritten = errors.New("the follower could not write its log")
	// errHangs says that the leader says nothing since it cannot write its log.
	errHangs = errors.New("the disk of this node hangs")
)
