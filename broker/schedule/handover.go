package schedule

import "github.com/carillonmq/carillon/storage"

// A DueMessage is what the scheduler hands to the publisher when the time of a
// message has come and its claim is committed.
type DueMessage struct {
	storage.Ref
	Target string
}

// A Verdict is what the publisher tells the scheduler of a target topic.
type Verdict struct {
	Target string
	// Parked: the target is stuck. Everything of it that was handed over and not
	// acknowledged is the scheduler's again, listed in Returned; the publisher
	// keeps nothing but the timer of its next probe.
	Parked   bool
	Returned []storage.Ref
	// Otherwise a probe of the parked target succeeded: it may be fed again.
}

// A Publisher is handed what is due. Neither call blocks.
type Publisher interface {
	// Hand passes messages on, in order of delivery.
	Hand(due []DueMessage)
	// Probe answers each verdict of a target being parked: nothing that was handed over before
	// it is on its way any more. It also has a target watched that the claim holds already.
	Probe(target string)
}
