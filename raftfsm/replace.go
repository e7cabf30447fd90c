package raftfsm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// memberOf returns the member that a Raft id stands for: n3 for n3@57.
func memberOf(raftID string) string {
	id, _, _ := strings.Cut(raftID, "@")
	return id
}

// succeeds reports whether the first id was given to the same member after the
// second: n3@57 after n3, n3@102 after n3@57. The number is the log index at which
// the older one had been removed.
func succeeds(newer, older string) bool {
	index := func(raftID string) uint64 {
		_, text, _ := strings.Cut(raftID, "@")
		i, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0 // n3
		}
		return i
	}
	return memberOf(newer) == memberOf(older) && index(newer) > index(older)
}

// nextRaftID returns the id under which a member comes back when the log ends at last:
// no later replacement can end up with the same.
func nextRaftID(memberID string, last uint64) string { return fmt.Sprintf("%s@%d", memberID, last) }

// replaceable returns the member that is to be replaced, or ErrReplace: it must be
// another one than this node, which leads.
func (c memberConfig) replaceable(memberID string) (Member, error) {
	m, ok := c.member(memberID)
	if !ok {
		return Member{}, fmt.Errorf("%w: %q: not one of cluster.members %v", ErrReplace, memberID, c.memberIDs())
	}
	if memberID == c.NodeID {
		return Member{}, fmt.Errorf("%w: %s: it leads: stop it first", ErrReplace, memberID)
	}
	return m, nil
}

// A replacement is what is left to do to replace a member.
type replacement struct {
	Remove string // the Raft id that goes; "" when it is gone
	Done   bool   // it is back under a new one
}

// replacing decides from who answers, by Raft id, what to do with the member in the
// group of servers. It refuses (ErrReplace) what is not needed, and what would leave
// too few voters to commit even that.
func replacing(memberID string, servers []Server, answers func(raftID string) bool) (replacement, error) {
	i := slices.IndexFunc(servers, func(s Server) bool { return memberOf(s.RaftID) == memberID })
	if i < 0 {
		return replacement{}, nil
	}
	old := servers[i]
	if !old.Voter && old.RaftID != memberID {
		return replacement{Done: true}, nil // on its way already
	}
	if answers(old.RaftID) {
		return replacement{}, fmt.Errorf("%w: %s: it answers: stop it and empty its node.data_dir first", ErrReplace, memberID)
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
		return replacement{}, fmt.Errorf("%w: %s: only %d of the other %d voters answer: start them first", ErrReplace, memberID, alive, rest)
	}
	return replacement{Remove: old.RaftID}, nil
}
