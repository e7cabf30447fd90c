package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
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
// becomes shorter is looked at when it does.
func (n *Node) campaignAlone(r *raft.Raft) error {
	voters := slices.DeleteFunc(slices.Clone(servers(r)), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
	if len(voters) != 1 || voters[0].ID != n.raftID() {
		return nil
	}
	return errors.Join(
		n.reload(r, func(c *raft.ReloadableConfig) { c.HeartbeatTimeout -= time.Millisecond }),
		n.reload(r, func(c *raft.ReloadableConfig) { c.HeartbeatTimeout += time.Millisecond }))
}

// mostBehind is by how many log entries a member may be behind that is chosen from some: what is on its
// way under load, milliseconds.
const mostBehind = 128

// transferTimeout bounds a hand-over: to a hung follower raft would try longer.
const transferTimeout = time.Second

// TransferLeadership hands leadership to the voter whose log reaches furthest,
// of those that answer and follow. It blocks for a second at most; commands are refused
// with raftfsm.ErrNotLeader meanwhile. That and ErrNoTarget say that there was
// nothing to do.
func (n *Node) TransferLeadership(ctx context.Context) error {
	_, err := n.transfer(ctx, func(string, uint64) bool { return true })
	return err
}

// TransferLeadershipTo is TransferLeadership to one of the members, whose ids are
// given, and returns which. It passes over those that are far behind: Raft would have to catch one up first,
// and proposes nothing meanwhile.
func (n *Node) TransferLeadershipTo(ctx context.Context, members []string) (string, error) {
	return n.transfer(ctx, func(id string, behind uint64) bool {
		return behind <= mostBehind && slices.Contains(members, id)
	})
}

func (n *Node) transfer(ctx context.Context, fits func(member string, behind uint64) bool) (string, error) {
	r := n.running()
	if r == nil || r.State() != raft.Leader {
		return "", raftfsm.ErrNotLeader
	}
	last, term := r.LastIndex(), r.CurrentTerm()
	var target raft.Server
	var best peer
	for _, s := range servers(r) {
		p := n.transport.peer(s.ID)
		if s.Suffrage != raft.Voter || s.ID == n.raftID() || !p.recent(n.patience()) || !p.isReady(term) ||
			!fits(member.Of(string(s.ID)), last-min(p.lastIndex, last)) {
			continue
		}
		if target.ID == "" || p.lastIndex > best.lastIndex {
			target, best = s, p
		}
	}
	if target.ID == "" {
		return "", ErrNoTarget
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	to := member.Of(string(target.ID))
	n.transport.update(target.ID, func(p *peer) { p.taking = true })
	transfer := transferFuture{answeredAtTheEnd(r.LeadershipTransferToServer(target.ID, target.Address), n.closed), func() {
		n.transport.update(target.ID, func(p *peer) { p.taking, p.triedIn, p.tried = false, term, time.Now() })
	}}
	if err := n.await(ctx, transfer); err != nil {
		return "", fmt.Errorf("hand leadership to %s: %w", to, err)
	}
	return to, nil
}

// A transferFuture tells when Raft has ended a hand-over, which may be long after nobody waits for it any more.
type transferFuture struct {
	raft.Future
	ended func()
}

func (f transferFuture) Error() error {
	defer f.ended()
	return f.Future.Error()
}

// isReady reports whether leadership of the term may be handed to the member: it has taken this leader's log for its own, and
// if it was to lead before in this term, and did not, it was sent all of it since.
//
// Raft asks the goroutine that sends the log to a member whether that has all of it, by a channel that takes one question. One
// that is not answered before a hand-over is over stays there while the goroutine is busy, and the next hand-over to that
// member waits for room, whatever happens: nothing is proposed meanwhile, and if this node loses its leadership by then,
// nothing is whenever it leads again (https://github.com/hashicorp/raft/issues/696, v1.8.0 has it too). When the goroutine
// has nothing left to send it takes the question; then it sends a request without entries.
func (p peer) isReady(term uint64) bool {
	return !p.taking && p.followed == term && (p.triedIn != term || p.upToDate.After(p.tried))
}
