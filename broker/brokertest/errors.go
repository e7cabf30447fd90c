package brokertest

import "errors"

var (
	// errChecksNothing is what a script gets that would pass whatever the product does.
	errChecksNothing = errors.New("the script checks nothing")
	// errCut is what a host gets that dials another it is cut off from.
	errCut = errors.New("connection refused: the link is cut")
	// errExpired is what a node gets that asks another for its clock while none can.
	errExpired = errors.New("certificate has expired")
	// errNoSink is what a node gets that may not deliver.
	errNoSink = errors.New("no client of Kafka can be made")
	// errNoEffect is what a step gives that finds nothing to do: an event may have done it before,
	// or a line was left out of the script.
	errNoEffect = errors.New("nothing to do")
)
