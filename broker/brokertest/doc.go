// Package brokertest runs a whole cluster in virtual time: real Raft nodes with
// their logs and stores on disk, a real Kafka client, and kfake, all inside one
// testing/synctest bubble. Scripts (broker/testdata/*.txt) say what happens to it;
// after each the same invariants are checked (check.go). It is for tests only.
package brokertest
