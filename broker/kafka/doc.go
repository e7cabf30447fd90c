// Package kafka is the broker's adapter to Kafka: a [Source] that reads delay topics, a [Sink] that
// writes target topics, and the few requests that neither needs. Beside the package client it is the
// only one that knows franz-go.
//
//	ingest.Source <- Source: one client; partitions assigned directly, no consumer group
//	deliver.Sink  <- Sink:   a few clients, shared by targets that answer equally fast
//
// Nothing here decides: positions, retries, partitions and dead letters are the broker's.
package kafka
