package broker

import "errors"

var (
	// errLeadershipLost ends a term.
	errLeadershipLost = errors.New("leadership was lost")
	// errRaise says that not every member understands the feature level, or that it
	// is not known.
	errRaise = errors.New("cannot raise the feature level")
)
