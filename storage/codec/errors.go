package codec

import "errors"

var (
	// ErrCorrupt is returned when bytes on disk, or in a stream, are not what
	// was written. Nothing was changed.
	ErrCorrupt = errors.New("storage: corrupt")

	// ErrVersion is returned when a file or stream was written in a format that
	// this program does not know.
	ErrVersion = errors.New("storage: unknown format version")
)
