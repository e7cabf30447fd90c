// Package kafka is the broker's adapter to Kafka: a [Source] that reads delay topics, and a [Sink] that
// writes target topics.
//
//	ingest.Source <- Source: a client that fetches, partitions assigned directly, no consumer group; another one that asks
//	deliver.Sink  <- Sink:   a few clients, shared by targets that answer equally fast
//
// How a client reaches Kafka is package reach. Where reading goes on, when a record is sent again, to which
// partition, and what becomes a dead letter for its instruction is the broker's to decide. Decided here is
// which way a record takes: whether its target is quick, slow, stuck or suspect, and with whom it shares a client;
// when a partition that fails is fetched again; and that a batch which does not fit in memory is skipped.
package kafka
