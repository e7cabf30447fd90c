package kafka

import "errors"

var (
	errNoCertificate = errors.New("the file holds no certificate")
	errMechanism     = errors.New("no such mechanism")
	// errClosed is what Poll returns after Close.
	errClosed = errors.New("source is closed")
)
