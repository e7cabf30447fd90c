// Package message is what waits: a record of a delay topic with what its producer asked for,
// the form in which it is stored, what is delivered of it, and the dead letter that
// takes its place when it cannot be. It knows no clock, no log and no Kafka.
package message
