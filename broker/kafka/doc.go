// Package kafka is the broker's adapter to Kafka: a [Source] that reads delay topics, and a [Sink] that
// writes target topics.
//
//	ingest.Source <- Source: one client; partitions assigned directly, no consumer group
//	deliver.Sink  <- Sink:   a few clients, shared by targets that answer equally fast
//
// How a client reaches Kafka is package reach. Positions, retries, the choice of a partition and dead
// letters are the broker's. What is decided here is which way a record takes: whether its target is quick,
// slow or stuck, and which client it shares with whom. And it is decided when a partition that fails is read
// again, and what of it is skipped because it does not fit in memory.
package kafka
