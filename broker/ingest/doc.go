// Package ingest takes the records of delay topics into the replicated schedule.
//
// Two things run beside each other. The discovery looks at Kafka and says which partitions
// are read, and from where (discovery.go, look.go); what an answer proves is decided
// without a clock of its own in delaytopic.go and doubt.go. Ingest itself takes what
// the source reads, turns each record that arrives into an entry of the schedule, packs
// these into commands, and hears what came of them (ingest.go).
// DESIGN.md has the invariants.
package ingest
