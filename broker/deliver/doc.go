// Package deliver writes due messages to their target topics.
//
// The publisher (publisher.go) gives each target that has work a lane, so that no target
// waits for another. What it knows of the others, those that are stuck and those that
// are not known yet, is in the dispatcher (dispatcher.go, parked.go), and the prober asks
// Kafka for all of them together. A lane (lane.go) reads what it is handed, sends it in order
// (lane_flight.go), and tries again (lane_retry.go) or condemns (lane_condemn.go) what
// comes back. What Kafka has acknowledged ends in the log (acks.go). Which partition a
// message goes to is decided by the message alone (partition.go). DESIGN.md has the
// invariants; Sink is what Kafka has to do.
package deliver
