// Package raftlog is what Raft keeps on disk beside the schedule: the log, in
// hashicorp/raft-wal's segments or in bbolt, and its term and vote. It mends what a
// crash or a full disk leaves of a log, makes the log fit the schedule at a start,
// and gives raft a log without the data of its commands, which are read when they
// are sent or applied.
//
// DESIGN.md, beside this file, says why.
package raftlog
