package member

import (
	"errors"
	"fmt"
)

var (
	// ErrConfig says that a field of Config is missing or out of range.
	ErrConfig = errors.New("invalid configuration")
	// ErrForeignData says that the data directory belongs to another node or
	// another cluster.
	ErrForeignData = errors.New("data directory of another node")
	// ErrMembers says that the configured members differ from those of the log.
	ErrMembers = errors.New("members differ")
	// ErrOtherLog is the ErrConfig of a data directory that holds a log of another kind.
	ErrOtherLog = fmt.Errorf("%w", ErrConfig)
	// ErrReplace says that a member cannot be replaced now.
	ErrReplace = errors.New("cannot replace member")
	// ErrOtherDisk says that the members know this one by a disk that it has lost: it
	// waits until it is replaced.
	ErrOtherDisk = errors.New("the cluster lives and knew another disk of this node")
	// ErrReplaced says that another disk has the place of this one.
	ErrReplaced = errors.New("holds what a replaced member had, and will not be part of the cluster again")
)
