// Package reach is how a client of franz-go reaches Kafka, whatever it reads or writes there.
//
//	Config     brokers, TLS, login, compression and log as the options of a client
//	Hearing    which Kafka brokers are silent: clients that share one dial past them
//	Questions  what any Kafka broker can answer, asked of the next one when one does not
//	Survey     which of the Kafka brokers answer, each asked anew
//
// It knows of no topic. What reaches Kafka through it is package kafka, and the program for
// requests of its own.
package reach
