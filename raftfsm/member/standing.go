package member

import (
	"cmp"

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

// Level returns what the node understands.
func (s *Standing) Level() storage.Level { return cmp.Or(s.Understands, storage.LevelOne) }

// A Server is a member as Raft knows it.
type Server struct {
	RaftID  string `json:"raft_id"` // the member's id, after a replacement with "@" and a number
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}
