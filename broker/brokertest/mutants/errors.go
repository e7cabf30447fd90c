package mutants

import "errors"

var (
	// ErrPatch is returned for a file that is no patch of a planted bug.
	ErrPatch = errors.New("not a patch of a planted bug")
	// ErrDoesNotApply is returned when the source is not what a patch was written for: write
	// the same bug into today's code.
	ErrDoesNotApply = errors.New("mutant does not apply")
	// ErrInUse is returned for a directory in which another process, or another tree, tries mutants.
	ErrInUse = errors.New("the directory is in use")
)
