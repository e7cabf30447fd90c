package reach

import "errors"

var (
	errNoCertificate = errors.New("the file holds no certificate")
	errMechanism     = errors.New("no such mechanism")
	// errSilent is why no connection is opened to a Kafka broker that has not answered for a while.
	errSilent = errors.New("the Kafka broker does not answer")
)
