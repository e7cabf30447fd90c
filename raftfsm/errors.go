package raftfsm

import "errors"

// What becomes of a command that is proposed.
var (
	// ErrNotLeader says that the command was certainly not proposed, because
	// this node does not lead, or is handing leadership over.
	ErrNotLeader = errors.New("not the leader")
	// ErrBusy says that the command was certainly not proposed, because too much
	// was in flight until the context ended, or Raft did not take it in time.
	ErrBusy = errors.New("busy")
	// ErrInDoubt says that the outcome is unknown: the command may have been
	// committed, or may still be. The term must end.
	ErrInDoubt = errors.New("outcome unknown")
	// ErrClosed says that the command was certainly not proposed, because the
	// node is closed or has failed.
	ErrClosed = errors.New("node is closed")
	// ErrTooLarge says that an encoded command exceeds MaxCommandBytes.
	ErrTooLarge = errors.New("command too large")
	// ErrLevel says that the feature level in force does not allow the form of a
	// command: it was certainly not proposed. The proposer did not ask for the level.
	ErrLevel = errors.New("feature level too low")
	// ErrNoRoom says that the node must not accept messages now: the disk is
	// nearly full, or what was accepted cannot be written fast enough.
	ErrNoRoom = errors.New("no room")
)

var (
	// ErrCommand says that bytes are not a command of this version. A command that is proposed and would be such
	// bytes, since a value in it cannot be, was certainly not proposed.
	ErrCommand = errors.New("malformed command")
	// ErrUnknownCommand says that a command has a version or kind that this
	// binary does not know: a newer one wrote it.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrDamaged says that the data directory lacks a part that it once had.
	ErrDamaged = errors.New("data directory is damaged")
)
