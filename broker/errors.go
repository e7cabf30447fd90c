package broker

import "errors"

var (
	// errStalePosition ends a term whose records the log did not expect: another
	// leader has ingested meanwhile, or a position was moved.
	errStalePosition = errors.New("source position is not the one in the log")
	// errPositionMoved ends a term after Kafka has lost records that were to be
	// read, or had been: the next one starts at the new positions.
	errPositionMoved = errors.New("source position was moved")
	// errRaise says that not every member understands the feature level, or that it
	// is not known.
	errRaise = errors.New("cannot raise the feature level")
)
