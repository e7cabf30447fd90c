package deadletter

import "errors"

var (
	// ErrTopic: the topic is none that dead letters go to by the configuration.
	ErrTopic = errors.New("no dead-letter topic")
	// ErrGone: there is no record at this place, any more or yet.
	ErrGone = errors.New("no dead letter there")
	// ErrKafka: Kafka does not give what is asked for at the moment.
	ErrKafka = errors.New("kafka does not give it")
)
