// Package brokertest runs a whole cluster in virtual time: real Raft nodes with
// their logs and stores on disk, a real Kafka client, and kfake, all inside one
// testing/synctest bubble. Scripts (broker/testdata/*.txt) say what happens to it;
// what happens is written down (observe.go, gather.go) and held against the promises
// (package ledger). It is for tests only.
package brokertest
