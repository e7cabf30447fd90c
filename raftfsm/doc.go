// Package raftfsm holds everything that is replicated: the commands and their
// binary form, the state machine that applies them to a [storage.Store], and
// the [Node] that runs Raft around it with its log, its snapshots, its members
// and its birth. It is the only package that knows hashicorp/raft.
//
// DESIGN.md, beside this file, draws the formats and names the invariants.
package raftfsm
