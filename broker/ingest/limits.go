package ingest

import "github.com/carillonmq/carillon/raftfsm"

// Limits bound what an Ingest puts into the log at a time.
type Limits struct {
	Proposal int // bytes of a command that holds more than one message
}

// DefaultLimits returns those that a node runs with.
func DefaultLimits() Limits { return Limits{Proposal: raftfsm.ProposalBytes} }
