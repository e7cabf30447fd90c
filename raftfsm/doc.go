// Package raftfsm holds what is replicated: the commands and their binary form,
// the state machine that applies them to a [storage.Store], the feed from which a
// leader hears what was applied, and the snapshots, which are the store's segments.
// It runs nothing: no network, no clock, no goroutine.
//
// Package raftfsm/node runs Raft around it, raftfsm/raftlog is the log on disk that
// Raft runs on, and raftfsm/member decides whose disk this is and what it may do.
// DESIGN.md, beside this file, names the invariants.
package raftfsm
