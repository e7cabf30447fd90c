package main

import "errors"

var (
	// errBuild says that the test binary cannot be built from the source: nothing was played.
	errBuild = errors.New("build the test binary")
	// errScript says that a script is wrong, not what it plays.
	errScript = errors.New("the script is wrong")
	// errNothing says that a run proved nothing.
	errNothing = errors.New("nothing was checked")
	// errFound says that a run has found problems.
	errFound = errors.New("problems were found")
	// errMissed says that mutants were played and no check noticed.
	errMissed = errors.New("mutants were not found")
	// errNotTried says that nothing is known of mutants, since they do not apply or build.
	errNotTried = errors.New("mutants were not tried")
)
