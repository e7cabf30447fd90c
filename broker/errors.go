package broker

import "errors"

var (
	// ErrNoIDs is why nothing can be said of an id.
	ErrNoIDs = errors.New("ids are not served")
	// errLeadershipLost ends a term.
	errLeadershipLost = errors.New("leadership was lost")
	// errClockWrong is why a node would not lead better, whatever it reaches: it would hand leadership back.
	errClockWrong = errors.New("its clock is wrong: set it right")
	// errRaise says that not every member understands the feature level, or that it
	// is not known.
	errRaise = errors.New("cannot raise the feature level")
)
