// Package deadletter tells what lies in the dead-letter topics, and puts it back into the schedule. It
// reads Kafka when it is asked, by no consumer group and with bounded work, so any node may be asked.
//
//	List    the newest first, page by page  <--+
//	Get     one, in full                    <--+-- Kafka
//	Replay  one, at the leader              <--+
//	           `--> order.Desk --> log: scheduled, and marked as replayed
//	Extent, ReadOn: all in their order      <--'
//	           `--> broker/bulk, step by step, likewise
package deadletter
