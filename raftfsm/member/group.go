package member

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// A Member is one node of the cluster as the configuration names it. Its ID is
// what users see; the id that Raft knows it by is a matter of this package.
type Member struct {
	ID   string `json:"id"`
	Raft string `json:"raft"` // host:port that the other members dial, resolved at dial time
	API  string `json:"api"`  // host:port of its HTTP API
}

// Config is what the configuration says of a node's place among the members and
// of the directory that is to be its own.
type Config struct {
	NodeID      string // one of Members
	ClusterName string
	Members     []Member // identical on all nodes, ascending by ID
	Bootstrap   bool     // these members may found a new cluster

	DataDir string
	Log     string   // kind of Raft's log in DataDir
	Parts   []string // folders of DataDir that are there only where an identity was
	Needed  []string // files in DataDir without which a node that has started must not go on
}

// Check returns c with its members in order, or ErrConfig with field, value and remedy.
func (c Config) Check() (Config, error) {
	bad := func(field, value, remedy string) (Config, error) {
		return Config{}, fmt.Errorf("%w: %s: %s: %s", ErrConfig, field, value, remedy)
	}
	c.Members = slices.SortedFunc(slices.Values(c.Members), func(a, b Member) int { return strings.Compare(a.ID, b.ID) })

	seen := map[string]string{}
	for _, m := range c.Members {
		if m.ID == "" || strings.ContainsAny(m.ID, "@= \t\n\x00") {
			return bad("cluster.members[].id", fmt.Sprintf("%q", m.ID), "give a name without spaces, @ and =")
		}
		if _, _, err := net.SplitHostPort(m.Raft); err != nil {
			return bad("cluster.members["+m.ID+"].raft", fmt.Sprintf("%q", m.Raft), "give host:port")
		}
		for _, key := range []string{"id " + m.ID, "address " + m.Raft} {
			if _, twice := seen[key]; twice {
				return bad("cluster.members", key, "is there twice, name it once")
			}
			seen[key] = m.ID
		}
	}
	_, ok := c.Member(c.NodeID)
	switch {
	case !ok:
		return bad("node.id", fmt.Sprintf("%q", c.NodeID), "is not one of cluster.members "+strings.Join(c.memberIDs(), ", "))
	case c.DataDir == "":
		return bad("node.data_dir", `""`, "name a directory")
	case c.ClusterName == "":
		return bad("cluster.name", `""`, "name the cluster")
	}
	return c, nil
}

// Member returns the member of that id.
func (c Config) Member(id string) (Member, bool) {
	for _, m := range c.Members {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

func (c Config) memberIDs() []string {
	ids := make([]string, len(c.Members))
	for i, m := range c.Members {
		ids[i] = m.ID
	}
	return ids
}

// sameGroup compares ids and Raft addresses; API addresses may change.
func sameGroup(a, b []Member) bool {
	return slices.EqualFunc(a, b, func(x, y Member) bool { return x.ID == y.ID && x.Raft == y.Raft })
}

// Describe lists members with their Raft addresses.
func Describe(ms []Member) string {
	s := make([]string, len(ms))
	for i, m := range ms {
		s[i] = m.ID + " at " + m.Raft
	}
	return fmt.Sprint(s)
}
