package disk

import "errors"

var (
	// ErrFull is returned when the disk has no room. Nothing was changed:
	// the same call succeeds once there is room.
	ErrFull = errors.New("storage: disk full")

	// ErrInUse is returned by Open when another process holds the directory.
	ErrInUse = errors.New("storage: directory is in use by another process")
)
