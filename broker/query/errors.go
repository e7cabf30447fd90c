package query

import (
	"errors"
	"fmt"

	"github.com/carillonmq/carillon/raftfsm"
)

// ErrIDsClosed says that messages cannot be looked up by their ids yet.
var ErrIDsClosed = errors.New("messages cannot be looked up by their ids before feature level 3 is in force and the leader has read the old ones: list them instead")

// A NotLeaderError says that another node must be asked. It is raftfsm.ErrNotLeader.
type NotLeaderError struct {
	Leader string // id of the member that leads, as far as this node knows; "" if it does not
}

// Error names the node to ask.
func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return "this node does not lead, and knows no leader: ask again when a majority of the members runs"
	}
	return fmt.Sprintf("this node does not lead: ask %s", e.Leader)
}

// Is reports whether it is asked for by its other name.
func (e *NotLeaderError) Is(other error) bool { return other == raftfsm.ErrNotLeader }
