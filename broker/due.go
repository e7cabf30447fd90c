package broker

import "github.com/carillonmq/carillon/storage"

// A dueMessage is what the scheduler hands to the publisher when the time of a
// message has come and its claim is committed.
type dueMessage struct {
	storage.Ref
	Target string
}

// A verdict is what the publisher tells the scheduler of a target topic.
type verdict struct {
	Target string
	// Parked: the target is stuck. Everything of it that was handed over and not
	// acknowledged is the scheduler's again, listed in Returned; the publisher
	// keeps nothing but the timer of its next probe.
	Parked   bool
	Returned []storage.Ref
	// Otherwise a probe of the parked target succeeded: it may be fed again.
}
