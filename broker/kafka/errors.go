package kafka

import "errors"

var (
	errNoCertificate = errors.New("the file holds no certificate")
	errMechanism     = errors.New("no such mechanism")
	// errNoTopicID: without an id a topic that is deleted and created again would go on at its old offset.
	errNoTopicID = errors.New("no topic id from Kafka: upgrade it to 2.8 or newer")
	// errNotTold and errHalfTold are what a leader's answer lacks when Kafka gives no reason.
	errNotTold  = errors.New("the Kafka broker said nothing of the partition")
	errHalfTold = errors.New("the Kafka broker told the first offset but not the last")
	// errReplaced is why a partition stalls whose records before the next one are others than those that were read.
	errReplaced = errors.New("records that were read already have been replaced")
	// errSilent is why no connection is opened to a Kafka broker that has not answered for a while.
	errSilent = errors.New("the Kafka broker does not answer")
	// errClosed is what Poll returns after Close.
	errClosed = errors.New("source is closed")
)
