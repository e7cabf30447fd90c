// Package node runs one member of a Raft group: it opens the data directory, is born
// into its cluster, takes part in Raft, proposes commands, flushes the schedule,
// keeps the followers supplied, and hands leadership over. What is replicated is
// package raftfsm's; who the node is, package raftfsm/member decides.
//
// DESIGN.md, beside this file, names the invariants.
package node
