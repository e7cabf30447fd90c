package reach

import "errors"

var (
	errNoCertificate = errors.New("the file holds no certificate")
	errMechanism     = errors.New("no such mechanism")
	// errOtherKafka is why nothing is asked of a Kafka that is not the one that was used before.
	errOtherKafka = errors.New("another Kafka answers")
	// errSilent is why no connection is opened to a Kafka broker that has not answered for a while.
	errSilent = errors.New("the Kafka broker does not answer")
)
