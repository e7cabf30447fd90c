package member

import "errors"

var (
	// ErrConfig says that a field of Config is missing or out of range.
	ErrConfig = errors.New("invalid configuration")
	// ErrForeignData says that the data directory belongs to another node or
	// another cluster.
	ErrForeignData = errors.New("data directory of another node")
	// ErrMembers says that the configured members differ from those of the log.
	ErrMembers = errors.New("members differ")
	// ErrReplace says that a member cannot be replaced now.
	ErrReplace = errors.New("cannot replace member")
)
