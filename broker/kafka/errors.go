package kafka

import "errors"

var (
	errNoCertificate = errors.New("the file holds no certificate")
	errMechanism     = errors.New("no such mechanism")
	// errNoTopicID: without an id a topic that is deleted and created again would go on at its old offset.
	errNoTopicID = errors.New("no topic id from Kafka: upgrade it to 2.8 or newer")
	// errClosed is what Poll returns after Close.
	errClosed = errors.New("source is closed")
	// errSinkClosed is what questions to a Sink return after Close.
	errSinkClosed = errors.New("sink is closed")
)
