// Package storage is the durable schedule of one node: what waits, when it is
// due, and the small replicated values beside it.
//
// It knows nothing of Kafka and nothing of Raft. One goroutine, the writer,
// changes the schedule through [Store.Accept], [Store.Kill] and the setters;
// the replicated log that feeds it is the write-ahead log, so these calls only
// touch memory. From time to time the writer calls [Store.Freeze], and any other
// goroutine writes what was frozen to disk with [Frozen.Flush]; the log may then
// be truncated. Reading ([Store.Scan], [Store.Read], [Store.State]) is safe from
// any goroutine at any time.
//
// A message is named by its seq, a dense counter that starts at 1; (due, seq) is
// the order of delivery. One alive-set over seq says what is pending, wherever
// the message itself lies. All times are epoch milliseconds.
//
// DESIGN.md draws the formats and walks through what a crash can leave.
package storage
