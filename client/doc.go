// Package client is what an application imports to have Kafka messages delivered later.
//
// Carillon reads delay topics. A record there says in its headers when it is due and where it goes:
//
//	deliver-at         RFC 3339 time with zone, or epoch milliseconds; wins over deliver-after
//	deliver-after      delay from the record's timestamp: milliseconds, 1h30m, or PT90S
//	deliver-to         target topic; default: the route's, else the delay topic without ".delay"
//	deliver-key        key of the delivered record, text; default: the record's own key
//	deliver-key-base64 the same for any bytes, in base64, also the empty key; from feature level 2 on
//	deliver-partition  partition of the target; default: by the key, as Kafka's Java client does
//	deliver-id         the caller's name for the message, 1 to 256 bytes, not topic/number/number
//
// From feature level 3 on there are as well:
//
//	deliver-cancel        true: cancel the message that waits under deliver-id; no time beside it
//	deliver-if            absent, present or a seq: take effect only if that waits under deliver-id
//	deliver-expires-at    from then on it is not delivered any more; written as deliver-at
//	deliver-expires-after the same as a delay from the due time; written as deliver-after
//
// Milliseconds below 100000000000, before March 1973, are refused: they are seconds by mistake. A
// plus sign before a number or a delay changes nothing: deliver-after +1 is one millisecond. Every
// header counts: a malformed deliver-after is refused even beside a good deliver-at.
//
// Any Kafka client can write these headers. The [Producer] here and the broker share one reading of
// them: what [Stamp] accepts is what the broker accepts.
//
//	producer, err := client.NewProducer(kgo.SeedBrokers("127.0.0.1:9092"))
//	...
//	record := &client.Record{Topic: "orders.delay", Value: []byte("remind me")}
//	sent, err := producer.Schedule(ctx, record, client.After(24*time.Hour), client.ID("reminder"))
//
// A [Producer] can share the application's own *kgo.Client: see [NewProducerFrom]. To use that
// client alone, [Stamp] the record and produce it as usual.
//
// An [Admin] asks the cluster itself, over its HTTP API: it schedules without Kafka, cancels and changes
// what waits with an answer, lists it, and does what operators do.
//
//	admin, err := client.NewAdmin([]string{"carillon-1:7401", "carillon-2:7401"}, client.AdminOptions{Token: client.TokenFile("token")})
//	...
//	_, err = admin.Cancel(ctx, client.Name{Topic: "orders.delay", ID: "reminder"}, "paid")
//	if errors.Is(err, client.ErrTooLate) { ... }
//
// Delivered records carry delivered-id, delivered-for, delivered-from and delivered-seq. A consumer
// that must not act twice remembers delivered-seq. It names one message for ever; an id can come
// again.
package client
