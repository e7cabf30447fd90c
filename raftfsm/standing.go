package raftfsm

import (
	"cmp"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// Standing is what a node tells another that asks whether it may be born, or which
// feature level all understand. Nodes of other versions read it: a field keeps its
// meaning, a new one may be missing.
type Standing struct {
	NodeID      string            `json:"node_id"`
	ClusterName string            `json:"cluster_name"`
	Incarnation string            `json:"incarnation"` // of the data directory, random
	Empty       bool              `json:"empty"`       // unborn: no Raft state
	Founders    map[string]string `json:"founders"`    // member id to incarnation; nil while unborn
	Members     []Member          `json:"members"`     // as configured there
	Servers     []Server          `json:"servers"`     // as the log has them
	// Understands is the newest feature level that the node's program understands.
	// Programs from before there were levels do not tell.
	Understands storage.Level `json:"understands,omitempty"`
}

// level returns what the node understands.
func (s *Standing) level() storage.Level { return cmp.Or(s.Understands, storage.LevelOne) }

// A Server is a member as Raft knows it.
type Server struct {
	RaftID  string `json:"raft_id"` // the member's id, after a replacement with "@" and a number
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}

// Status is what a node knows of itself and its cluster.
type Status struct {
	Node   string
	State  string // leader, follower, candidate; unborn before there is a Raft group, replaced when another disk has our place, failed after an error
	Leader string // member id, "" if unknown
	Term   uint64

	Waiting string // why the node is unborn, out of the group or failed

	Level       storage.Level // feature level in force, as far as the log is applied here
	Understands storage.Level // the newest that this node understands

	Members []MemberStatus // sorted by id

	AppliedIndex  uint64 // handed to the state machine
	CommitIndex   uint64
	LastIndex     uint64 // of the log
	SnapshotIndex uint64 // of the manifest
	UnsavedBytes  int64  // of log since the last flush
	LogError      string // of the last write to the log, "" if it succeeded
	FlushError    string // of the last flush, "" if it succeeded
	ReceiveError  string // of the last snapshot that a leader sent, "" if it was received or is needed no longer
}

// MemberStatus is one member as this node sees it.
type MemberStatus struct {
	Member
	RaftID      string // "" while the member is not in the group
	Voter       bool
	LastIndex   uint64    // of its log, known to the leader only
	LastContact time.Time // known to the leader only
}
