package raftfsm

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Leadership is one stretch of leading. It says nothing about what is committed:
// a term begins with Barrier.
type Leadership struct {
	Term uint64
	done chan struct{}
}

// Done is closed when the leadership is over.
func (l *Leadership) Done() <-chan struct{} { return l.done }

// Over reports whether the leadership is over.
func (l *Leadership) Over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Terms gives every Leadership as it begins. A reader that is slow gets the
// newest only; those it missed are over. One goroutine reads.
func (n *Node) Terms() <-chan *Leadership { return n.terms }

// leadershipLoop does nothing else, so that raft's LeaderCh, which keeps the
// newest value only, is read at once. Two trues in a row mean lost and regained.
func (n *Node) leadershipLoop(ctx context.Context, r *raft.Raft) {
	var now *Leadership
	end := func() {
		if now != nil {
			close(now.done)
			now = nil
		}
	}
	defer end()
	for {
		select {
		case <-ctx.Done():
			return
		case leads := <-r.LeaderCh():
			end()
			if !leads {
				n.log.Info("leadership lost")
				continue
			}
			now = &Leadership{Term: r.CurrentTerm(), done: make(chan struct{})}
			n.log.Info("leadership won", "term", now.Term)
			select {
			case <-n.terms: // nobody took it, and it is over
			default:
			}
			n.terms <- now
		}
	}
}

// campaignAlone has the only voter of a group call its election at once, as nobody
// else can lead: raft would first wait a heartbeat time-out for a leader. One that
// becomes shorter is looked at when it does. Nothing reloads beside it yet.
func (n *Node) campaignAlone(r *raft.Raft) error {
	voters := slices.DeleteFunc(slices.Clone(servers(r)), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
	if len(voters) != 1 || voters[0].ID != n.raftID() {
		return nil
	}
	usual := r.ReloadableConfig()
	shorter := usual
	shorter.HeartbeatTimeout -= time.Millisecond
	return errors.Join(r.ReloadConfig(shorter), r.ReloadConfig(usual))
}
