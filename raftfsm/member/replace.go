package member

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Of returns the member that a Raft id stands for: n3 for n3@57.
func Of(raftID string) string {
	id, _, _ := strings.Cut(raftID, "@")
	return id
}

// Succeeds reports whether the first id was given to the same member after the
// second: n3@57 after n3, n3@102 after n3@57. The number is the log index at which
// the older one had been removed.
func Succeeds(newer, older string) bool {
	index := func(raftID string) uint64 {
		_, text, _ := strings.Cut(raftID, "@")
		i, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0 // n3
		}
		return i
	}
	return Of(newer) == Of(older) && index(newer) > index(older)
}

// NextRaftID returns the id under which a member comes back when the log ends at last:
// no later replacement can end up with the same.
func NextRaftID(memberID string, last uint64) string { return fmt.Sprintf("%s@%d", memberID, last) }

// Replaceable returns the member that is to be replaced, or ErrReplace: it must be
// another one than this node, which leads.
func (c Config) Replaceable(memberID string) (Member, error) {
	m, ok := c.Member(memberID)
	if !ok {
		return Member{}, fmt.Errorf("%w: %q: not one of cluster.members %v", ErrReplace, memberID, c.memberIDs())
	}
	if memberID == c.NodeID {
		return Member{}, fmt.Errorf("%w: %s: it leads: stop it first", ErrReplace, memberID)
	}
	return m, nil
}

// A Replacement is what is left to do to replace a member.
type Replacement struct {
	Remove string // the Raft id that goes; "" when it is gone
	Done   bool   // it is back under a new one
}

// Replacing decides from who answers, by Raft id, what to do with the member in the
// group of servers. It refuses (ErrReplace) what is not needed, and what would leave
// too few voters to commit even that.
func Replacing(memberID string, servers []Server, answers func(raftID string) bool) (Replacement, error) {
	i := slices.IndexFunc(servers, func(s Server) bool { return Of(s.RaftID) == memberID })
	if i < 0 {
		return Replacement{}, nil
	}
	old := servers[i]
	if !old.Voter && old.RaftID != memberID {
		return Replacement{Done: true}, nil // on its way already
	}
	if answers(old.RaftID) {
		return Replacement{}, fmt.Errorf("%w: %s: it answers: stop it and empty its node.data_dir first", ErrReplace, memberID)
	}
	rest, alive := 0, 0
	for _, s := range servers {
		if !s.Voter || s.RaftID == old.RaftID {
			continue
		}
		rest++
		if answers(s.RaftID) {
			alive++
		}
	}
	if alive < rest/2+1 {
		return Replacement{}, fmt.Errorf("%w: %s: only %d of the other %d voters answer: start them first", ErrReplace, memberID, alive, rest)
	}
	return Replacement{Remove: old.RaftID}, nil
}
